import { z } from "zod";
import { exampleId } from "../../domain/ids.ts";
import { idOf, shownAddress, text, textOrNull, timestamp } from "../fields.ts";

export const unsubscribe = z
  .object({
    object: z.literal("unsubscribe"),
    id: idOf("unsubscribe"),
    email: shownAddress,
    reason: text("Why the record exists.", "UNSUBSCRIBED"),
    source: text(
      "How: `link` for a page, `one_click` for the button of a mail program, `mailto` for a mail. Others may follow.",
      "link",
    ),
    campaign_id: textOrNull("The newsletter or campaign whose mail was left.", exampleId("newsletter")),
    unsubscribed_at: timestamp.describe("When the recipient opted out."),
    created_at: timestamp.describe("When the record was created."),
  })
  .meta({ id: "Unsubscribe", description: "An opt-out of a recipient. It is never changed." });

import { z } from "zod";
import { FORM_FIELDS } from "../../db/entities/form.ts";
import { exampleId } from "../../domain/ids.ts";
import { idOf, int, text, textOrNull, timestamps } from "../fields.ts";
import { idParamOf } from "../rest/route.ts";

export const formParams = z.strictObject({ formId: idParamOf("form", "The id of the form.") });

export const form = z
  .object({
    object: z.literal("form"),
    id: idOf("form"),
    name: text("The name, for the team.", "Footer of the website"),
    list_id: idOf("list", "The id of the list that people join by it."),
    url: text(
      "Its page. Websites and programs post sign-ups to it, too.",
      `https://mail.example.com/f/${exampleId("form").slice(5)}.Zm9yLWFuLWV4YW1wbGUtMQ`,
    ),
    is_open: z.boolean().meta({ description: "Whether it takes sign-ups.", examples: [true] }),
    fields: z
      .array(z.enum(FORM_FIELDS))
      .meta({ description: "The inputs besides the address.", examples: [["first_name"]] }),
    text_id: idOf(
      "formText",
      "The id of its two texts: it changes with them, and a sign-up keeps that of the texts it saw.",
    ),
    consent_text: text("The text above its button.", "We send you our letter each week."),
    tracking_text: textOrNull("Its question whether opens and clicks may be counted; null where it asks none."),
    thank_you_url: textOrNull("Where a person is led after the sign-up; null for a page of this service."),
    sites: z
      .array(z.string())
      .meta({ description: "The origins whose scripts may use it.", examples: [["https://example.com"]] }),
    shown: int("How often it was shown, in the last 400 days.", 120),
    sent: int("Sign-ups that it took, in the last 400 days.", 30),
    confirmed: int("Sign-ups that were confirmed, in the last 400 days.", 21),
    ...timestamps,
  })
  .meta({ id: "Form", description: "A sign-up form of a list." });

import { z } from "zod";
import { ACCOUNT_PROVIDERS, ACCOUNT_STATUSES } from "../../db/entities/account.ts";
import { idOf, shownAddress, text, timestamp, timestamps } from "../fields.ts";
import { idParamOf } from "../rest/route.ts";

export const accountParams = z.strictObject({ accountId: idParamOf("account", "The id of the sending account.") });

export const emailAccount = z
  .object({
    object: z.literal("email_account"),
    id: idOf("account"),
    email: shownAddress.meta({ description: "The address that it sends from.", examples: ["news@example.com"] }),
    display_name: text("The name beside the address.", "Example News"),
    provider: z
      .enum(ACCOUNT_PROVIDERS)
      .meta({ description: "A hosted mailbox, or `SMTP_` for a relay.", examples: ["SMTP_OTHER"] }),
    status: z.enum(ACCOUNT_STATUSES).meta({
      description:
        "Only an `ACTIVE` account sends. `PENDING` until its first login, `ERROR` while its server refuses it or does not answer, `SUSPENDED` by the operator, `REVOKED` once the mailbox has withdrawn its access.",
      examples: ["ACTIVE"],
    }),
    last_checked_at: timestamp.nullable().describe("When its login was last checked."),
    ...timestamps,
  })
  .meta({ id: "EmailAccount", description: "A sending account, without its credentials." });

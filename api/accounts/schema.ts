import { z } from "zod";
import { ACCOUNT_PROVIDERS, ACCOUNT_STATUSES } from "../../db/entities/account.ts";
import { timestamp } from "../fields.ts";
import { idParam } from "../rest/route.ts";

export const accountParams = z.strictObject({ accountId: idParam });

/** A sending account, without its credentials. */
export const emailAccount = z.object({
  object: z.literal("email_account"),
  id: z.string(),
  email: z.string(),
  display_name: z.string(),
  provider: z.enum(ACCOUNT_PROVIDERS),
  status: z.enum(ACCOUNT_STATUSES),
  last_checked_at: timestamp.nullable(),
  created_at: timestamp,
  updated_at: timestamp,
});

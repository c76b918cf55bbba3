import type { z } from "zod";
import { instants, jsonRecord, plain } from "../../db/json.ts";
import type { emailAccount } from "./schema.ts";

/** SQL: a sending account, of a row of `email_accounts`. */
export const accountRecord = (row: string) =>
  jsonRecord<z.input<typeof emailAccount>>("email_account", {
    ...plain(row, "id", "email", "display_name", "provider", "status"),
    ...instants(row, "last_checked_at", "created_at", "updated_at"),
  });

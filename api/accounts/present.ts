import type { z } from "zod";
import type { EmailAccount } from "../../db/entities/account.ts";
import { instants, jsonRecord, plain } from "../../db/json.ts";
import { instant, instantOrNull } from "../rest/instant.ts";
import type { emailAccount } from "./schema.ts";

export const presentAccount = (account: EmailAccount): z.input<typeof emailAccount> => ({
  object: "email_account",
  id: account.id,
  email: account.email,
  display_name: account.displayName,
  provider: account.provider,
  status: account.status,
  last_checked_at: instantOrNull(account.lastCheckedAt),
  created_at: instant(account.createdAt),
  updated_at: instant(account.updatedAt),
});

/** SQL: the same of a row of `email_accounts`. */
export const accountRecord = (row: string) =>
  jsonRecord<z.input<typeof emailAccount>>("email_account", {
    ...plain(row, "id", "email", "display_name", "provider", "status"),
    ...instants(row, "last_checked_at", "created_at", "updated_at"),
  });

import { sql } from "kysely";
import type { z } from "zod";
import { instants, type JsonColumns, jsonRecord, plain } from "../../db/json.ts";
import type { ArmedSend } from "../../domain/sends/confirm.ts";
import { countsRecord } from "../../domain/sends/counts.ts";
import { listIdsOf } from "../../domain/sends/newsletters.ts";
import type { PreviewRow } from "../../domain/sends/preview.ts";
import { presentArmed, presentConfirmation, presentCost } from "../sends/present.ts";
import type { newsletter, newsletterSend, newsletterSendPreview, newsletterWithRecipients } from "./schema.ts";

const fieldsOf = (row: string): JsonColumns<Exclude<keyof z.input<typeof newsletter>, "object">> => ({
  ...plain(row, "id", "name", "subject", "from_email", "from_name", "body", "status", "status_reason"),
  lists: listIdsOf(row),
  ...plain(row, "send_id"),
  send_days: sql`${sql.ref(`${row}.send_days`)}::int[]`,
  ...instants(row, "send_at", "started_at", "completed_at", "created_at", "updated_at"),
});

/** SQL: a newsletter, of a row of `newsletters`. */
export const newsletterRecord = (row: string) => jsonRecord<z.input<typeof newsletter>>("newsletter", fieldsOf(row));

/** SQL: the same with its recipients by state. */
export const wholeNewsletterRecord = (row: string) =>
  jsonRecord<z.input<typeof newsletterWithRecipients>>("newsletter", {
    ...fieldsOf(row),
    recipients: countsRecord(sql.ref(`${row}.send_id`)),
  });

export const presentPreview = (row: PreviewRow, token: string): z.input<typeof newsletterSendPreview> => ({
  object: "newsletter_send_preview",
  id: row.id,
  newsletter_id: row.resource_id,
  recipients: {
    total: row.total,
    not_opted_in: row.ineligible,
    suppressed: row.suppressed,
    eligible: row.eligible,
  },
  ...presentCost(row),
  from_address: row.from_addresses[0] ?? "",
  sending_account_address: row.account_addresses[0] ?? "",
  ...presentConfirmation(row, token),
});

export const presentSend = (send: ArmedSend): z.input<typeof newsletterSend> => ({
  object: "newsletter_send",
  id: send.sendId,
  newsletter_id: send.resourceId,
  ...presentArmed(send),
});

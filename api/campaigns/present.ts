import { sql } from "kysely";
import type { z } from "zod";
import { instants, type JsonColumns, jsonRecord, plain } from "../../db/json.ts";
import type { ArmedSend } from "../../domain/sends/confirm.ts";
import { countsRecord } from "../../domain/sends/counts.ts";
import type { PreviewRow } from "../../domain/sends/preview.ts";
import { presentArmed, presentConfirmation, presentCost } from "../sends/present.ts";
import type { campaign, campaignSend, campaignSendPreview, campaignWithRecipients } from "./schema.ts";

const fieldsOf = (row: string): JsonColumns<Exclude<keyof z.input<typeof campaign>, "object">> => ({
  ...plain(row, "id", "name", "subject", "from_name", "body", "status", "status_reason", "segment_id", "account_ids"),
  ...plain(row, "send_id"),
  send_days: sql`${sql.ref(`${row}.send_days`)}::int[]`,
  ...instants(row, "send_at", "started_at", "completed_at", "created_at", "updated_at"),
});

/** SQL: a campaign, of a row of `campaigns`. */
export const campaignRecord = (row: string) => jsonRecord<z.input<typeof campaign>>("campaign", fieldsOf(row));

/** SQL: the same with its recipients by state. */
export const wholeCampaignRecord = (row: string) =>
  jsonRecord<z.input<typeof campaignWithRecipients>>("campaign", {
    ...fieldsOf(row),
    recipients: countsRecord(sql.ref(`${row}.send_id`)),
  });

export const presentPreview = (row: PreviewRow, token: string): z.input<typeof campaignSendPreview> => ({
  object: "campaign_send_preview",
  id: row.id,
  campaign_id: row.resource_id,
  recipients: {
    total: row.total,
    invalid: row.ineligible,
    suppressed: row.suppressed,
    eligible: row.eligible,
  },
  ...presentCost(row),
  from_addresses: row.from_addresses,
  sending_account_address: row.account_addresses[0] ?? "",
  sending_account_addresses: row.account_addresses,
  ...presentConfirmation(row, token),
});

export const presentSend = (send: ArmedSend): z.input<typeof campaignSend> => ({
  object: "campaign_send",
  id: send.sendId,
  campaign_id: send.resourceId,
  ...presentArmed(send),
});

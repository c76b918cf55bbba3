import type { z } from "zod";
import type { Campaign } from "../../db/entities/send.ts";
import type { ArmedSend } from "../../domain/sends/confirm.ts";
import type { PreviewRow } from "../../domain/sends/preview.ts";
import { instant, instantOrNull } from "../rest/instant.ts";
import { presentArmed, presentConfirmation, presentCost } from "../sends/present.ts";
import type { campaign, campaignSend, campaignSendPreview } from "./schema.ts";

export const presentCampaign = (record: Campaign): z.input<typeof campaign> => ({
  object: "campaign",
  id: record.id,
  name: record.name,
  subject: record.subject ?? null,
  from_name: record.fromName ?? null,
  body: record.body ?? null,
  status: record.status,
  status_reason: record.statusReason ?? null,
  segment_id: record.segmentId ?? null,
  account_ids: record.accountIds,
  send_id: record.sendId ?? null,
  send_days: record.sendDays,
  send_at: instantOrNull(record.sendAt),
  started_at: instantOrNull(record.startedAt),
  completed_at: instantOrNull(record.completedAt),
  created_at: instant(record.createdAt),
  updated_at: instant(record.updatedAt),
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

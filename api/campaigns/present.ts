import { sql } from "kysely";
import type { z } from "zod";
import type { ArmedSend } from "../../domain/sends/confirm.ts";
import { countsRecord } from "../../domain/sends/counts.ts";
import type { PreviewRow } from "../../domain/sends/preview.ts";
import { recordOf } from "../rest/record.ts";
import { presentArmed, presentConfirmation, presentCost } from "../sends/present.ts";
import { campaign, type campaignSend, type campaignSendPreview, campaignWithRecipients } from "./schema.ts";

export const campaignRecord = recordOf(campaign);

export const wholeCampaignRecord = recordOf(campaignWithRecipients, (row) => ({
  recipients: countsRecord(sql.ref(`${row}.send_id`)),
}));

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

import { sql } from "kysely";
import { countsRecord } from "../../domain/sends/ledger/counts.ts";
import { stepsProgress } from "../../domain/sequences/progress.ts";
import { recordOf } from "../rest/record.ts";
import { previewPresenter, sendPresenter } from "../sends/present.ts";
import { campaign, campaignWithRecipients } from "./schema.ts";

export const campaignRecord = recordOf(campaign);

export const wholeCampaignRecord = recordOf(campaignWithRecipients, (row) => ({
  recipients: countsRecord(sql.ref(`${row}.send_id`)),
  drip_steps: stepsProgress(row),
}));

export const presentPreview = previewPresenter("campaign", "invalid", (row) => ({
  from_addresses: row.from_addresses,
  sending_account_addresses: row.account_addresses,
}));

export const presentSend = sendPresenter("campaign");

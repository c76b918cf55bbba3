import { sql } from "kysely";
import { listIdsOf } from "../../domain/sends/drafts/drafts.ts";
import { countsRecord } from "../../domain/sends/ledger/counts.ts";
import { recordOf } from "../rest/record.ts";
import { previewPresenter, sendPresenter } from "../sends/present.ts";
import { newsletter, newsletterWithRecipients } from "./schema.ts";

export const newsletterRecord = recordOf(newsletter, (row) => ({ lists: listIdsOf(row) }));

export const wholeNewsletterRecord = recordOf(newsletterWithRecipients, (row) => ({
  lists: listIdsOf(row),
  recipients: countsRecord(sql.ref(`${row}.send_id`)),
}));

export const presentPreview = previewPresenter("newsletter", "not_opted_in", (row) => ({
  lists: row.target_ids,
  from_address: row.from_addresses[0] ?? "",
}));

export const presentSend = sendPresenter("newsletter");

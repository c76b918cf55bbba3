import { sql } from "kysely";
import type { z } from "zod";
import type { ArmedSend } from "../../domain/sends/confirm.ts";
import { countsRecord } from "../../domain/sends/counts.ts";
import { listIdsOf } from "../../domain/sends/drafts.ts";
import type { PreviewRow } from "../../domain/sends/preview.ts";
import { recordOf } from "../rest/record.ts";
import { presentArmed, presentConfirmation, presentCost } from "../sends/present.ts";
import { newsletter, type newsletterSend, type newsletterSendPreview, newsletterWithRecipients } from "./schema.ts";

export const newsletterRecord = recordOf(newsletter, (row) => ({ lists: listIdsOf(row) }));

export const wholeNewsletterRecord = recordOf(newsletterWithRecipients, (row) => ({
  lists: listIdsOf(row),
  recipients: countsRecord(sql.ref(`${row}.send_id`)),
}));

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

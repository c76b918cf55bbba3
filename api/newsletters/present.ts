import type { z } from "zod";
import type { Newsletter } from "../../db/entities/send.ts";
import type { ArmedSend } from "../../domain/sends/confirm.ts";
import type { PreviewRow } from "../../domain/sends/preview.ts";
import { instant, instantOrNull } from "../rest/instant.ts";
import { presentArmed, presentConfirmation, presentCost } from "../sends/present.ts";
import type { newsletter, newsletterSend, newsletterSendPreview } from "./schema.ts";

export const presentNewsletter = (letter: Newsletter, lists: string[]): z.input<typeof newsletter> => ({
  object: "newsletter",
  id: letter.id,
  name: letter.name,
  subject: letter.subject ?? null,
  from_email: letter.fromEmail ?? null,
  from_name: letter.fromName ?? null,
  body: letter.body ?? null,
  status: letter.status,
  status_reason: letter.statusReason ?? null,
  lists,
  send_id: letter.sendId ?? null,
  send_days: letter.sendDays,
  send_at: instantOrNull(letter.sendAt),
  started_at: instantOrNull(letter.startedAt),
  completed_at: instantOrNull(letter.completedAt),
  created_at: instant(letter.createdAt),
  updated_at: instant(letter.updatedAt),
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

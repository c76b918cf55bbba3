import type { z } from "zod";
import type { Newsletter, RecipientState } from "../../db/entities/send.ts";
import type { ArmedSend } from "../../domain/sends/confirm.ts";
import { COMPLAINT_THRESHOLD, COMPLAINT_WINDOW_DAYS } from "../../domain/sends/gates.ts";
import type { PreviewRow } from "../../domain/sends/preview.ts";
import { instant, instantOfText, instantOrNull } from "../rest/instant.ts";
import type { newsletter, newsletterSend, newsletterSendPreview, newsletterWithRecipients } from "./schema.ts";

export const presentNewsletter = (letter: Newsletter, lists: string[]): z.input<typeof newsletter> => ({
  object: "newsletter",
  id: letter.id,
  name: letter.name,
  subject: letter.subject ?? null,
  from_email: letter.fromEmail ?? null,
  from_name: letter.fromName ?? null,
  body: letter.body ?? null,
  status: letter.status,
  lists,
  send_days: letter.sendDays,
  send_at: instantOrNull(letter.sendAt),
  started_at: instantOrNull(letter.startedAt),
  completed_at: instantOrNull(letter.completedAt),
  created_at: instant(letter.createdAt),
  updated_at: instant(letter.updatedAt),
});

export const presentWithRecipients = (
  letter: Newsletter,
  lists: string[],
  counts: Record<RecipientState, number> | null,
): z.input<typeof newsletterWithRecipients> => ({
  ...presentNewsletter(letter, lists),
  recipients: counts && {
    total: Object.values(counts).reduce((sum, count) => sum + count, 0),
    queued: counts.QUEUED,
    sending: counts.SENDING,
    sent: counts.SENT,
    rejected: counts.REJECTED,
    deferred: counts.DEFERRED,
    unknown: counts.UNKNOWN,
    expired: counts.EXPIRED,
    suppressed: counts.SUPPRESSED,
    cancelled: counts.CANCELLED,
  },
});

export const presentPreview = (row: PreviewRow, token: string): z.input<typeof newsletterSendPreview> => ({
  object: "newsletter_send_preview",
  id: row.id,
  newsletter_id: row.resource_id,
  recipients: {
    total: row.total,
    not_opted_in: row.not_opted_in,
    suppressed: row.suppressed,
    eligible: row.eligible,
  },
  credits_required: row.credits_required,
  send_cap: {
    limit: row.cap_limit,
    used_today: row.cap_used_today,
    remaining: Math.max(0, row.cap_limit - row.cap_used_today),
  },
  from_address: row.from_address,
  sending_account_address: row.account_address,
  complaint_rate: {
    rate: Number(row.complaint_rate),
    threshold: COMPLAINT_THRESHOLD,
    window_days: COMPLAINT_WINDOW_DAYS,
  },
  confirmation: { token, expires_at: instantOfText(row.expires_at) },
});

export const presentSend = (send: ArmedSend): z.input<typeof newsletterSend> => ({
  object: "newsletter_send",
  id: send.sendId,
  newsletter_id: send.resourceId,
  status: "SCHEDULED",
  recipients: send.recipients,
  credits_reserved: send.recipients,
  send_at: send.sendAt,
  send_cap: { limit: send.cap.limit, used_today: send.cap.usedToday, remaining: send.cap.remaining },
});

import type { z } from "zod";
import type { Newsletter, RecipientState } from "../../db/entities/send.ts";
import { instant, instantOrNull } from "../rest/instant.ts";
import type { newsletter, newsletterWithRecipients } from "./schema.ts";

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
  send_at: instantOrNull(letter.sendAt ?? null),
  started_at: instantOrNull(letter.startedAt ?? null),
  completed_at: instantOrNull(letter.completedAt ?? null),
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

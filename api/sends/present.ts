import { COMPLAINT_THRESHOLD, COMPLAINT_WINDOW_DAYS } from "../../domain/sends/complaint-rate.ts";
import type { ArmedSend } from "../../domain/sends/confirm.ts";
import type { PreviewRow } from "../../domain/sends/preview.ts";

export const presentCost = (row: PreviewRow) => ({
  credits_required: row.credits_required,
  send_cap: {
    limit: row.cap_limit,
    used_today: row.cap_used_today,
    remaining: Math.max(0, row.cap_limit - row.cap_used_today),
  },
});

export const presentConfirmation = (row: PreviewRow, token: string) => ({
  complaint_rate: {
    rate: Number(row.complaint_rate),
    threshold: COMPLAINT_THRESHOLD,
    window_days: COMPLAINT_WINDOW_DAYS,
  },
  confirmation: { token, expires_at: new Date(row.expires_at).toISOString() },
});

export const presentArmed = (send: ArmedSend) => ({
  status: "SCHEDULED" as const,
  recipients: send.recipients,
  credits_reserved: send.recipients,
  send_at: send.sendAt,
  send_cap: { limit: send.cap.limit, used_today: send.cap.usedToday, remaining: send.cap.remaining },
});

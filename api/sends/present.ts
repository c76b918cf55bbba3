import { COMPLAINT_THRESHOLD, COMPLAINT_WINDOW_DAYS } from "../../domain/sends/complaint-rate.ts";
import type { ArmedSend } from "../../domain/sends/plan/confirm.ts";
import type { PreviewRow } from "../../domain/sends/plan/preview.ts";
import type { ResourceType } from "../../domain/sends/resource.ts";

/** An object with one field, whose name is known by its type. */
const field = <Name extends string, Value>(name: Name, value: Value) => ({ [name]: value }) as Record<Name, Value>;

/**
 * @param ineligible the field for recipients that are left out for another reason than a suppression
 * @param senders the fields of who sends it
 */
export const previewPresenter =
  <Type extends ResourceType, Ineligible extends string, Senders extends object>(
    type: Type,
    ineligible: Ineligible,
    senders: (row: PreviewRow) => Senders,
  ) =>
  (row: PreviewRow, token: string) => ({
    object: `${type}_send_preview` as const,
    id: row.id,
    ...field(`${type}_id`, row.resource_id),
    recipients: {
      total: row.total,
      ...field(ineligible, row.ineligible),
      suppressed: row.suppressed,
      eligible: row.eligible,
      tracked: row.tracked,
    },
    credits_required: row.eligible,
    send_at: row.send_at && new Date(row.send_at).toISOString(),
    send_cap: {
      limit: row.cap_limit,
      used_today: row.cap_used_today,
      remaining: Math.max(0, row.cap_limit - row.cap_used_today),
    },
    ...senders(row),
    sending_account_address: row.account_addresses[0] ?? "",
    complaint_rate: {
      rate: Number(row.complaint_rate),
      threshold: COMPLAINT_THRESHOLD,
      window_days: COMPLAINT_WINDOW_DAYS,
    },
    confirmation: { token, expires_at: new Date(row.expires_at).toISOString() },
  });

export const sendPresenter =
  <Type extends ResourceType>(type: Type) =>
  (send: ArmedSend) => ({
    object: `${type}_send` as const,
    id: send.sendId,
    ...field(`${type}_id`, send.resourceId),
    status: "SCHEDULED" as const,
    recipients: send.recipients,
    credits_reserved: send.recipients,
    send_at: send.sendAt,
    send_cap: { limit: send.cap.limit, used_today: send.cap.usedToday, remaining: send.cap.remaining },
  });

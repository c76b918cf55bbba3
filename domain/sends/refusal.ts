import { ApiError, type ErrorCode } from "../errors.ts";

/**
 * Why a preview or a confirm is refused, as a code that may stand in a workflow's history: it names no address and quotes
 * no content. The client reads the sentence.
 */
export const REFUSAL_REASONS = {
  no_subject: "The newsletter has no subject; set one with PATCH.",
  no_body: "The newsletter has no body; set one with PATCH.",
  no_from_email: "The newsletter has no from_email; set one with PATCH.",
  no_list: "The newsletter targets no list; attach a list in the app.",
  no_account:
    "The team has no sending account with the newsletter's from_email, or allowed for its domain; connect one in the app.",
  content_invalid: "The newsletter's subject or body uses merge tags that cannot be filled; change them with PATCH.",
  content_not_composable:
    "No message can be composed from the newsletter's subject, body and sender; change them with PATCH.",
  no_recipients:
    "The newsletter has no eligible recipients: no subscription to its lists is CONFIRMED with an address that is not suppressed.",
  account_gone:
    "The sending account of the preview is no longer connected; connect it again in the app, or make a new send-preview.",
  account_not_active: "The sending account is not ACTIVE; repair or resume it in the app.",
  no_send_domains: "The key's send_domains are empty, so it cannot send; create a key with the domain in the app.",
  domain_not_allowed:
    "The key's send_domains do not hold the domain of the newsletter's from_email; use a key that has it.",
  cap_exceeded: "The send has more recipients than are left of the key's daily send cap, which resets at midnight UTC.",
  complaints:
    "Complaints of the last 30 days reached 0.20 % of delivered mail; the API sends again once they are below.",
  credits: "The team has fewer email credits than the send has recipients; buy credits in the app.",
  test_key: "A test key cannot send; use a live key.",
  requires_approval: "The key needs approval for each send, which the API does not offer; send from the app.",
  used: "The confirmation token was used already; make a new send-preview for another send.",
  voided:
    "An operator cancelled the send before it was confirmed, which made the confirmation token void; make a new send-preview.",
  expired: "The confirmation token has expired; make a new send-preview.",
  other_key: "The preview was made with another key; make a new send-preview with this one.",
  tried_by_other_key:
    "Another key tried to confirm the preview, which made its confirmation token void; make a new send-preview.",
  drift: "Recipients, content or sending identity changed since the preview; make a new send-preview.",
  not_draft: "The newsletter is no longer a draft, so it cannot be sent; make a new newsletter.",
} as const;

export type RefusalReason = keyof typeof REFUSAL_REASONS;

/** The part of a refusal that may stand in a workflow's history: codes and numbers. */
export interface RefusalDetails {
  reason?: string;
  param?: string;
  retryAfterSeconds?: number;
}

/** A refused preview or confirm: the error the client sees, with the reason as a code of its own. */
export class Refusal extends ApiError {
  override name = "Refusal";
  readonly reason: RefusalReason;

  constructor(code: ErrorCode, reason: RefusalReason, options: { detail?: string; retryAfterSeconds?: number } = {}) {
    super(code, options.detail ? `${REFUSAL_REASONS[reason]} ${options.detail}` : REFUSAL_REASONS[reason], {
      retryAfterSeconds: options.retryAfterSeconds,
    });
    this.reason = reason;
  }
}

export const isRefusalReason = (value: unknown): value is RefusalReason =>
  typeof value === "string" && Object.hasOwn(REFUSAL_REASONS, value);

import { ApiError, type ErrorCode } from "../errors.ts";

/**
 * Why a draft is refused, as a code that may cross a workflow history: it names no address and quotes no content. The
 * sentence the client reads is made from it.
 */
export const REFUSAL_REASONS = {
  no_subject: "The newsletter has no subject; set one with PATCH.",
  no_body: "The newsletter has no body; set one with PATCH.",
  no_from_email: "The newsletter has no from_email; set one with PATCH.",
  no_list: "No list is attached to the newsletter; attach one in the app.",
  no_account:
    "No sending account has the newsletter's from_email or is allowed for its domain; connect one in the app.",
  content_invalid: "The newsletter's subject or body uses merge tags that cannot be filled.",
  no_recipients: "Nobody on the targeted lists is opted in and not suppressed.",
  account_gone: "The sending account of the preview is no longer connected.",
  account_not_active: "The sending account is not ACTIVE; repair or resume it in the app.",
  no_send_domains: "This key has an empty send_domains list, so it cannot send; mint one with the domain in the app.",
  domain_not_allowed: "This key's send_domains do not cover the newsletter's from_email.",
  cap_exceeded: "This send would take the key's lineage over its daily send cap, which resets at midnight UTC.",
  complaints: "Complaints of the last 30 days reached 0.20 % of delivered mail; sending over the API is stopped.",
  credits: "The team has fewer email credits left than this send needs.",
  test_key: "Test keys never send.",
  requires_approval: "This key needs approval for each send, which the API does not offer.",
  used: "The confirmation token was used already.",
  expired: "The confirmation token is past its expiry; make a new send-preview.",
  other_key: "The preview was made with another key; make a new send-preview with this one.",
  drift: "Recipients, content or sending identity changed since the preview; make a new send-preview.",
  not_draft: "The newsletter is no longer a draft.",
} as const;

export type RefusalReason = keyof typeof REFUSAL_REASONS;

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

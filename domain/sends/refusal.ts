import { ApiError, type ErrorCode } from "../errors.ts";
import { COMPLAINT_THRESHOLD, type ComplaintFigures } from "./complaint-rate.ts";
import type { ResourceType } from "./resource.ts";

/**
 * Codes that may stand in a workflow's history: they name no address and quote no content. The client reads the
 * sentence.
 */
const REFUSAL_REASONS = {
  no_subject: "The {draft} has no subject; set one with PATCH.",
  no_body: "The {draft} has no body; set one with PATCH.",
  no_from_email: "The newsletter has no from_email; set one with PATCH.",
  no_list: "The newsletter targets no list; attach a list in the app.",
  no_segment: "The campaign targets no segment, or its segment was deleted; attach a segment in the app.",
  segment_gone:
    "The segment that narrows the newsletter's lists was deleted; restore it, or choose another or none in the app.",
  no_account:
    "The team has no sending account with the newsletter's from_email, or allowed for its domain; connect one in the app.",
  no_attached_account: "The campaign has no sending account; attach one in the app.",
  content_invalid: "The {draft}'s subject or body uses merge tags that cannot be filled; change them with PATCH.",
  content_not_composable:
    "No message can be composed from the {draft}'s subject, body and sender; change them with PATCH.",
  time_passed: "The time of the {draft} has passed; set a later one in the app, or none, and make a new send-preview.",
  no_recipients:
    "The {draft} has no eligible recipients: it targets no address, or each one is suppressed or {ineligible}. Attach another {target} in the app, or add people to it.",
  account_gone:
    "A sending account of the send is no longer connected; connect it again or attach another one in the app, and make a new send-preview.",
  account_not_active: "A sending account of the send is not ACTIVE; repair or resume it in the app.",
  no_send_domains: "The key's send_domains are empty, so it cannot send; create a key with the domain in the app.",
  domain_not_allowed:
    "The key's send_domains do not hold the domain of every address in From; use a key that has them all.",
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
  not_draft: "It is no longer a draft, so it cannot be sent; make a new one.",
  drip_sequence:
    "The campaign is a drip sequence, which is run in the app and never sent at once; make another campaign.",
} as const;

export type RefusalReason = keyof typeof REFUSAL_REASONS;

const WORDS: Record<ResourceType, Record<string, string>> = {
  newsletter: { draft: "newsletter", ineligible: "has no CONFIRMED subscription", target: "list" },
  campaign: { draft: "campaign", ineligible: "is INVALID", target: "segment" },
};

/** The sentence for a reason, about a resource of a type. */
export const sentenceOf = (reason: RefusalReason, type: ResourceType): string =>
  REFUSAL_REASONS[reason].replaceAll(/\{(\w+)\}/g, (_, word: string) => WORDS[type][word] ?? word);

/** Another draft is needed. */
const FINAL: ReadonlySet<RefusalReason> = new Set(["not_draft", "drip_sequence"]);

/** The part of a refusal that may stand in a workflow's history: codes and numbers. */
export interface RefusalDetails {
  reason?: string;
  complaints?: ComplaintFigures | undefined;
  param?: string;
  retryAfterSeconds?: number;
}

export class Refusal extends ApiError {
  override name = "Refusal";
  readonly reason: RefusalReason;
  readonly complaints: ComplaintFigures | undefined;
  /** The part of its message that is about this very draft. */
  readonly detail: string | undefined;

  constructor(
    code: ErrorCode,
    reason: RefusalReason,
    { complaints, retryAfterSeconds, type = "campaign", ...options }: RefusalOptions = {},
  ) {
    const detail = complaints ? describeComplaints(complaints) : options.detail;
    const sentence = sentenceOf(reason, type);
    super(code, detail ? `${sentence} ${detail}` : sentence, {
      retryAfterSeconds,
      isFinal: FINAL.has(reason),
    });
    this.reason = reason;
    this.detail = detail;
    this.complaints = complaints;
  }
}

interface RefusalOptions {
  /** Of the draft; needed by the sentences about it alone. */
  type?: ResourceType;
  detail?: string | undefined;
  complaints?: ComplaintFigures | undefined;
  retryAfterSeconds?: number | undefined;
}

const percent = (fraction: number): string => `${(fraction * 100).toFixed(2)} %`;

const describeComplaints = ({ complaints, delivered, rate, belowFrom }: ComplaintFigures): string =>
  `Complaints: ${complaints}; delivered: ${delivered}; rate: ${percent(rate)}; threshold: ${percent(COMPLAINT_THRESHOLD)}. Without further mail and complaints, the rate falls below it on ${belowFrom} (UTC).`;

export const isRefusalReason = (value: unknown): value is RefusalReason =>
  typeof value === "string" && Object.hasOwn(REFUSAL_REASONS, value);

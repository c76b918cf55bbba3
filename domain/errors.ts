/** The families a client may branch on. */
export type ErrorType =
  | "invalid_request_error"
  | "authentication_error"
  | "permission_error"
  | "not_found_error"
  | "conflict_error"
  | "rate_limit_error"
  | "quota_error"
  | "api_error";

/**
 * Whether a client may repeat the request. `as_is`: the same request, after Retry-After or a growing wait, a write under the
 * same Idempotency-Key. `after_remedy`: the same request can succeed once the cause is removed, a write under a new
 * Idempotency-Key, because the refusal may be remembered under the old one. `never`: the request itself must change.
 */
export type Retry = "as_is" | "after_remedy" | "never";

interface ErrorEntry {
  status: number;
  type: ErrorType;
  /** Its cause, for people; the OpenAPI document and the docs read it too. */
  meaning: string;
  retry: Retry;
  /** The next step of the client's developer, for people: Markdown of the docs. */
  remedy: string;
}

const entry = (status: number, type: ErrorType, meaning: string, retry: Retry, remedy: string): ErrorEntry => ({
  status,
  type,
  meaning,
  retry,
  remedy,
});

/**
 * Every error the API can answer: code, status, type, meaning, retry and remedy, in one place. A code is never renamed or
 * reused.
 */
export const ERRORS = {
  validation_failed: entry(
    400,
    "invalid_request_error",
    "A parameter or body field is not valid; `param` names it.",
    "never",
    "Correct the field that `param` names; the message says which values it takes.",
  ),
  unsupported_parameter: entry(
    400,
    "invalid_request_error",
    "The endpoint does not take this parameter; leave it out.",
    "never",
    "Leave the parameter or field out; the reference lists those that the endpoint takes.",
  ),
  idempotency_key_required: entry(
    400,
    "invalid_request_error",
    "Send an Idempotency-Key header with this request.",
    "never",
    "Add an Idempotency-Key header: a new random text, such as a UUID, per intended effect.",
  ),
  invalid_json: entry(
    400,
    "invalid_request_error",
    "The body is not valid JSON.",
    "never",
    "Send one complete JSON value in UTF-8, and a Content-Length and Content-Encoding that fit its bytes.",
  ),
  version_unsupported: entry(
    400,
    "invalid_request_error",
    "The Service-Version header names no existing version.",
    "never",
    "Send a version that the versioning guide lists, or no Service-Version header: the key's own version then applies.",
  ),
  cursor_invalid: entry(
    400,
    "invalid_request_error",
    "The cursor is not one of this list; start again from the first page.",
    "never",
    "Leave the cursor out and read from the first page. Keep filters, sort and order the same while you page.",
  ),
  filter_unsupported: entry(
    400,
    "invalid_request_error",
    "The endpoint does not take this filter; leave it out.",
    "never",
    "Leave the filter out; the reference lists the filters of each list.",
  ),
  sort_unsupported: entry(
    400,
    "invalid_request_error",
    "The endpoint cannot sort by this field.",
    "never",
    "Use a sort that the reference lists for this endpoint, or none.",
  ),
  expand_unsupported: entry(
    400,
    "invalid_request_error",
    "The endpoint cannot expand this field.",
    "never",
    "Leave `expand` out and retrieve the other record by its id.",
  ),
  api_key_missing: entry(
    401,
    "authentication_error",
    "Send an API key in x-api-key or as a bearer token.",
    "never",
    "Add the header `x-api-key: mk_…` or `Authorization: Bearer mk_…`.",
  ),
  api_key_malformed: entry(
    401,
    "authentication_error",
    "The credential is not a well-formed API key.",
    "never",
    "Copy the whole key again, from `mk_live_` or `mk_test_` to its last character.",
  ),
  api_key_invalid: entry(
    401,
    "authentication_error",
    "No API key matches, or the request carries two different credentials.",
    "never",
    "Send one credential only, and check that the key belongs to this service.",
  ),
  api_key_expired: entry(
    401,
    "authentication_error",
    "The API key has expired; create a new one in the app.",
    "never",
    "Ask an administrator of the team for a new key.",
  ),
  api_key_revoked: entry(
    401,
    "authentication_error",
    "The API key was revoked; create a new one in the app.",
    "never",
    "Ask an administrator of the team for a new key; a revoked key never works again.",
  ),
  api_key_environment_mismatch: entry(
    401,
    "authentication_error",
    "A test key was presented for a live record, or the reverse.",
    "never",
    "Use the key of the environment in which the record was made: `mk_live_…` or `mk_test_…`.",
  ),
  invalid_token: entry(
    401,
    "authentication_error",
    "The OAuth token is expired, revoked or not meant for this API.",
    "never",
    "Get a new access token from the authorization server that the WWW-Authenticate header leads to.",
  ),
  plan_upgrade_required: entry(
    402,
    "quota_error",
    "API access needs the Business plan.",
    "after_remedy",
    "Move the team to a plan with API access.",
  ),
  quota_exceeded: entry(
    402,
    "quota_error",
    "The team has used up what its plan allows.",
    "after_remedy",
    "`GET /usage` shows what is left of each limit. Raise the plan's allowance, or free some of it. A send then begins with a new send-preview.",
  ),
  insufficient_scope: entry(
    403,
    "permission_error",
    "The API key or OAuth token lacks a scope; the message names it.",
    "after_remedy",
    "Use a key or an access token that holds the scope.",
  ),
  role_insufficient: entry(
    403,
    "permission_error",
    "The member who created the key, or whom the token acts for, no longer has the role for this, or has left the team.",
    "after_remedy",
    "Have a member whose role allows this create a key, or restore the role of the member who did.",
  ),
  forbidden_scope_pair: entry(
    403,
    "permission_error",
    "The key or token holds two scopes that none may hold together.",
    "never",
    "Use two keys, each with one of the two scopes.",
  ),
  send_not_permitted: entry(
    403,
    "permission_error",
    "The key may not send: it is a test key, or it needs approval for each send.",
    "never",
    "Use a live key that needs no approval for each send.",
  ),
  send_domain_not_allowed: entry(
    403,
    "permission_error",
    "The key's send_domains do not hold the domain of every from-address.",
    "after_remedy",
    "Send from an address of a domain in the key's `send_domains`, or use a key that allows this domain.",
  ),
  complaint_rate_exceeded: entry(
    403,
    "permission_error",
    "Complaints over 30 days reached 0.20 % of delivered mail.",
    "after_remedy",
    "Find out why recipients complain and remove those who did not ask for the mail. Sending works again once the rate of the last 30 days is lower.",
  ),
  not_found: entry(
    404,
    "not_found_error",
    "No record has this id, or no endpoint has this path.",
    "never",
    "Check the path, the id and the environment of the key: another team's records and those of the other environment do not exist for it.",
  ),
  method_not_allowed: entry(
    405,
    "invalid_request_error",
    "The path does not take this method; the Allow header lists those it takes.",
    "never",
    "Use a method that the Allow header lists.",
  ),
  request_timeout: entry(
    408,
    "api_error",
    "The request did not arrive in time, and the connection is closed; send it again.",
    "as_is",
    "Open a new connection and send the whole request without a pause.",
  ),
  idempotency_key_reused: entry(
    409,
    "conflict_error",
    "The Idempotency-Key was used for another request.",
    "never",
    "Use a new Idempotency-Key for every new request, and the old one only to repeat the same request unchanged.",
  ),
  request_in_flight: entry(
    409,
    "conflict_error",
    "A request under this Idempotency-Key is still running.",
    "as_is",
    "Wait for the time in Retry-After and send the same request under the same key: it gets the first one's answer.",
  ),
  confirmation_required: entry(
    409,
    "conflict_error",
    "The request needs a confirmation token; make a send-preview to get one.",
    "never",
    "Make a send-preview, show its numbers to the person who decides, and send its token as `confirmation_token`.",
  ),
  confirmation_stale: entry(
    409,
    "conflict_error",
    "The confirmation token was used, was made void or has expired; make a new send-preview.",
    "never",
    "Make a new send-preview and confirm with its token.",
  ),
  confirmation_invalid: entry(
    409,
    "conflict_error",
    "The confirmation token is not one that a send-preview of this record gave.",
    "never",
    "Send the token of a send-preview of this very record, whole and unchanged.",
  ),
  send_plan_changed: entry(
    409,
    "conflict_error",
    "Something changed since the preview; make a new send-preview.",
    "never",
    "Make a new send-preview, look at its numbers again and confirm with its token.",
  ),
  campaign_not_ready: entry(
    409,
    "conflict_error",
    "The draft cannot be sent as it is; the message says why.",
    "after_remedy",
    "Correct the draft as the message says, then make a new send-preview.",
  ),
  sending_domain_unverified: entry(
    409,
    "conflict_error",
    "The sending account is not ACTIVE, or is no longer connected.",
    "after_remedy",
    "Repair the sending account in the app until it is ACTIVE, then make a new send-preview.",
  ),
  resource_already_exists: entry(
    409,
    "invalid_request_error",
    "A record with this natural key exists; change that one with PATCH.",
    "never",
    "Find the record by its natural key, such as `?email=`, and change it with PATCH.",
  ),
  resource_limit_reached: entry(
    409,
    "conflict_error",
    "The team has as many of these records as it may; delete one first.",
    "after_remedy",
    "Delete a record of this kind. A larger plan does not raise the limit.",
  ),
  resource_state_invalid: entry(
    409,
    "conflict_error",
    "The state of the record does not allow this.",
    "after_remedy",
    "Read the record and its `status`; the message says which state the request needs.",
  ),
  payload_too_large: entry(
    413,
    "invalid_request_error",
    "The body is larger than is accepted.",
    "never",
    "Send less at once: divide a batch into several requests.",
  ),
  unsupported_media_type: entry(
    415,
    "invalid_request_error",
    "Send application/json (to PATCH also application/merge-patch+json), uncompressed, gzip or deflate.",
    "never",
    "Send `Content-Type: application/json` in UTF-8, and no Content-Encoding but gzip or deflate. PATCH also takes `application/merge-patch+json`.",
  ),
  send_cap_exceeded: entry(
    429,
    "rate_limit_error",
    "The send has more recipients than are left of the key's daily send cap.",
    "after_remedy",
    "Wait for the time in Retry-After, the next midnight UTC, or use a key with a higher cap; then make a new send-preview.",
  ),
  rate_limit_exceeded: entry(
    429,
    "rate_limit_error",
    "The client sent too many requests; wait for the time in Retry-After.",
    "as_is",
    "Wait for the time in Retry-After, and slow down before RateLimit-Remaining reaches 0.",
  ),
  internal_error: entry(
    500,
    "api_error",
    "The service failed; quote the request_id to its support.",
    "as_is",
    "Try again with growing waits. If it stays, give the request_id to the operator of the service.",
  ),
  service_unavailable: entry(
    503,
    "api_error",
    "A part of the service is not reachable; retry after the time in Retry-After.",
    "as_is",
    "Wait for the time in Retry-After and try again with growing waits.",
  ),
} as const satisfies Record<string, ErrorEntry>;

export type ErrorCode = keyof typeof ERRORS;

/** Codes that no request gets yet, each with the reason. A test gets every other code from the API. */
export const UNREACHED = {
  version_unsupported: "The Service-Version header is not read yet.",
} as const satisfies Partial<Record<ErrorCode, string>>;

export const isErrorCode = (value: unknown): value is ErrorCode =>
  typeof value === "string" && Object.hasOwn(ERRORS, value);

/** Seconds after which a request is worth another try while a part of the service is away: `Retry-After` of a 503. */
export const UNAVAILABLE_RETRY_SECONDS = 5;

interface ApiErrorOptions {
  /** The field at fault, e.g. `emails[3]`. */
  param?: string | undefined;
  /** Whole seconds until a retry makes sense. */
  retryAfterSeconds?: number | undefined;
  cause?: unknown;
}

/** A refusal the API client sees: one code of the registry and a sentence with the remedy. */
export class ApiError extends Error {
  override name = "ApiError";
  readonly code: ErrorCode;
  readonly param: string | undefined;
  readonly retryAfterSeconds: number | undefined;

  constructor(code: ErrorCode, message?: string, { param, retryAfterSeconds, cause }: ApiErrorOptions = {}) {
    super(message ?? ERRORS[code].meaning, { cause });
    this.code = code;
    this.param = param;
    this.retryAfterSeconds = retryAfterSeconds;
  }

  get status(): number {
    return ERRORS[this.code].status;
  }
}

/**
 * The answer for a record that does not exist and for one of another team: the two are alike to the byte.
 * @param param the field that names the record, where it is not the path
 */
export const notFound = (param?: string): ApiError => new ApiError("not_found", "No record has this id.", { param });

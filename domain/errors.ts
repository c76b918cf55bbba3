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

interface ErrorEntry {
  status: number;
  type: ErrorType;
  /** Its cause and its remedy, for people; the OpenAPI document and the docs read it too. */
  meaning: string;
}

const entry = (status: number, type: ErrorType, meaning: string): ErrorEntry => ({ status, type, meaning });

/** Every error the API can answer: code, status, type and meaning, in one place. A code is never renamed or reused. */
export const ERRORS = {
  validation_failed: entry(400, "invalid_request_error", "A parameter or body field is not valid; `param` names it."),
  unsupported_parameter: entry(
    400,
    "invalid_request_error",
    "The endpoint does not take this parameter; leave it out.",
  ),
  idempotency_key_required: entry(400, "invalid_request_error", "Send an Idempotency-Key header with this request."),
  invalid_json: entry(400, "invalid_request_error", "The body is not valid JSON."),
  version_unsupported: entry(400, "invalid_request_error", "The Service-Version header names no existing version."),
  cursor_invalid: entry(
    400,
    "invalid_request_error",
    "The cursor is not one of this list; start again from the first page.",
  ),
  filter_unsupported: entry(400, "invalid_request_error", "The endpoint does not take this filter; leave it out."),
  sort_unsupported: entry(400, "invalid_request_error", "The endpoint cannot sort by this field."),
  expand_unsupported: entry(400, "invalid_request_error", "The endpoint cannot expand this field."),
  api_key_missing: entry(401, "authentication_error", "Send an API key in x-api-key or as a bearer token."),
  api_key_malformed: entry(401, "authentication_error", "The credential is not a well-formed API key."),
  api_key_invalid: entry(
    401,
    "authentication_error",
    "No API key matches, or the request carries two different credentials.",
  ),
  api_key_expired: entry(401, "authentication_error", "The API key has expired; create a new one in the app."),
  api_key_revoked: entry(401, "authentication_error", "The API key was revoked; create a new one in the app."),
  api_key_environment_mismatch: entry(
    401,
    "authentication_error",
    "A test key was presented for a live record, or the reverse.",
  ),
  invalid_token: entry(401, "authentication_error", "The OAuth token is expired, revoked or not meant for this API."),
  plan_upgrade_required: entry(402, "quota_error", "API access needs the Business plan."),
  quota_exceeded: entry(402, "quota_error", "The team has used up what its plan allows."),
  insufficient_scope: entry(403, "permission_error", "The API key or OAuth token lacks a scope; the message names it."),
  role_insufficient: entry(
    403,
    "permission_error",
    "The member who created the key, or whom the token acts for, no longer has the role for this, or has left the team.",
  ),
  forbidden_scope_pair: entry(
    403,
    "permission_error",
    "The key or token holds two scopes that none may hold together.",
  ),
  send_not_permitted: entry(
    403,
    "permission_error",
    "The key may not send: it is a test key, or it needs approval for each send.",
  ),
  send_domain_not_allowed: entry(
    403,
    "permission_error",
    "The key's send_domains do not hold the domain of every from-address.",
  ),
  complaint_rate_exceeded: entry(403, "permission_error", "Complaints over 30 days reached 0.20 % of delivered mail."),
  not_found: entry(404, "not_found_error", "No record has this id, or no endpoint has this path."),
  method_not_allowed: entry(
    405,
    "invalid_request_error",
    "The path does not take this method; the Allow header lists those it takes.",
  ),
  request_timeout: entry(
    408,
    "api_error",
    "The request did not arrive in time, and the connection is closed; send it again.",
  ),
  idempotency_key_reused: entry(409, "conflict_error", "The Idempotency-Key was used for another request."),
  request_in_flight: entry(409, "conflict_error", "A request under this Idempotency-Key is still running."),
  confirmation_required: entry(
    409,
    "conflict_error",
    "The request needs a confirmation token; make a send-preview to get one.",
  ),
  confirmation_stale: entry(
    409,
    "conflict_error",
    "The confirmation token was used, was made void or has expired; make a new send-preview.",
  ),
  confirmation_invalid: entry(
    409,
    "conflict_error",
    "The confirmation token is not one that a send-preview of this record gave.",
  ),
  send_plan_changed: entry(409, "conflict_error", "Something changed since the preview; make a new send-preview."),
  campaign_not_ready: entry(409, "conflict_error", "The draft cannot be sent as it is; the message says why."),
  sending_domain_unverified: entry(
    409,
    "conflict_error",
    "The sending account is not ACTIVE, or is no longer connected.",
  ),
  resource_already_exists: entry(
    409,
    "invalid_request_error",
    "A record with this natural key exists; change that one with PATCH.",
  ),
  resource_limit_reached: entry(
    409,
    "conflict_error",
    "The team has as many of these records as it may; delete one first.",
  ),
  resource_state_invalid: entry(409, "conflict_error", "The state of the record does not allow this."),
  payload_too_large: entry(413, "invalid_request_error", "The body is larger than is accepted."),
  unsupported_media_type: entry(
    415,
    "invalid_request_error",
    "Send application/json (to PATCH also application/merge-patch+json), uncompressed, gzip or deflate.",
  ),
  send_cap_exceeded: entry(
    429,
    "rate_limit_error",
    "The send has more recipients than are left of the key's daily send cap.",
  ),
  rate_limit_exceeded: entry(
    429,
    "rate_limit_error",
    "The client sent too many requests; wait for the time in Retry-After.",
  ),
  internal_error: entry(500, "api_error", "The service failed; quote the request_id to its support."),
  service_unavailable: entry(
    503,
    "api_error",
    "A part of the service is not reachable; retry after the time in Retry-After.",
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

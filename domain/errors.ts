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

/**
 * Every error the API can answer: code, status, type, meaning, retry and remedy, in one place. A code is never renamed or
 * reused.
 */
export const ERRORS = {
  validation_failed: {
    status: 400,
    type: "invalid_request_error",
    meaning: "A parameter or body field is not valid; `param` names it.",
    retry: "never",
    remedy: "Correct the field that `param` names; the message says which values it takes.",
  },
  unsupported_parameter: {
    status: 400,
    type: "invalid_request_error",
    meaning: "The endpoint does not take this parameter; leave it out.",
    retry: "never",
    remedy: "Leave the parameter or field out; the reference lists those that the endpoint takes.",
  },
  idempotency_key_required: {
    status: 400,
    type: "invalid_request_error",
    meaning: "Send an Idempotency-Key header with this request.",
    retry: "never",
    remedy: "Add an Idempotency-Key header: a new random text, such as a UUID, per intended effect.",
  },
  invalid_json: {
    status: 400,
    type: "invalid_request_error",
    meaning: "The body is not valid JSON.",
    retry: "never",
    remedy: "Send one complete JSON value in UTF-8, and a Content-Length and Content-Encoding that fit its bytes.",
  },
  version_unsupported: {
    status: 400,
    type: "invalid_request_error",
    meaning: "The Service-Version header names no existing version.",
    retry: "never",
    remedy:
      "Send a version that the versioning guide lists, or no Service-Version header: the key's own version then applies.",
  },
  cursor_invalid: {
    status: 400,
    type: "invalid_request_error",
    meaning: "The cursor is not one of this list; start again from the first page.",
    retry: "never",
    remedy: "Leave the cursor out and read from the first page. Keep filters, sort and order the same while you page.",
  },
  filter_unsupported: {
    status: 400,
    type: "invalid_request_error",
    meaning: "The endpoint does not take this filter; leave it out.",
    retry: "never",
    remedy: "Leave the filter out; the reference lists the filters of each list.",
  },
  sort_unsupported: {
    status: 400,
    type: "invalid_request_error",
    meaning: "The endpoint cannot sort by this field.",
    retry: "never",
    remedy: "Use a sort that the reference lists for this endpoint, or none.",
  },
  expand_unsupported: {
    status: 400,
    type: "invalid_request_error",
    meaning: "The endpoint cannot expand this field.",
    retry: "never",
    remedy: "Leave `expand` out and retrieve the other record by its id.",
  },
  api_key_missing: {
    status: 401,
    type: "authentication_error",
    meaning: "Send an API key in x-api-key or as a bearer token.",
    retry: "never",
    remedy: "Add the header `x-api-key: mk_…` or `Authorization: Bearer mk_…`.",
  },
  api_key_malformed: {
    status: 401,
    type: "authentication_error",
    meaning: "The credential is not a well-formed API key.",
    retry: "never",
    remedy: "Copy the whole key again, from `mk_live_` or `mk_test_` to its last character.",
  },
  api_key_invalid: {
    status: 401,
    type: "authentication_error",
    meaning: "No API key matches, or the request carries two different credentials.",
    retry: "never",
    remedy: "Send one credential only, and check that the key belongs to this service.",
  },
  api_key_expired: {
    status: 401,
    type: "authentication_error",
    meaning: "The API key has expired; create a new one in the app.",
    retry: "never",
    remedy: "Ask an administrator of the team for a new key.",
  },
  api_key_revoked: {
    status: 401,
    type: "authentication_error",
    meaning: "The API key was revoked; create a new one in the app.",
    retry: "never",
    remedy: "Ask an administrator of the team for a new key; a revoked key never works again.",
  },
  api_key_environment_mismatch: {
    status: 401,
    type: "authentication_error",
    meaning: "The key has the prefix of the other environment.",
    retry: "never",
    remedy:
      "Copy the key again with its own prefix, `mk_live_` or `mk_test_`: the prefix is a part of the key. A record of the other environment is 404 `not_found`.",
  },
  invalid_token: {
    status: 401,
    type: "authentication_error",
    meaning: "The OAuth token is expired, revoked or not meant for this API.",
    retry: "never",
    remedy: "Get a new access token from the authorization server that the WWW-Authenticate header leads to.",
  },
  plan_upgrade_required: {
    status: 402,
    type: "quota_error",
    meaning: "API access needs the Business plan.",
    retry: "after_remedy",
    remedy: "Move the team to a plan with API access.",
  },
  quota_exceeded: {
    status: 402,
    type: "quota_error",
    meaning: "The team has used up an allowance of its plan.",
    retry: "after_remedy",
    remedy:
      "`GET /usage` shows how much of each limit is left. Raise the plan's allowance, or free some of it. A send then begins with a new send-preview.",
  },
  insufficient_scope: {
    status: 403,
    type: "permission_error",
    meaning: "The API key or OAuth token lacks a scope; the message names it.",
    retry: "after_remedy",
    remedy: "Use a key or an access token that holds the scope.",
  },
  role_insufficient: {
    status: 403,
    type: "permission_error",
    meaning:
      "The member who created the key, or whom the token acts for, no longer has the role for this, or has left the team.",
    retry: "after_remedy",
    remedy: "Have a member whose role allows this create a key, or restore the role of the member who did.",
  },
  forbidden_scope_pair: {
    status: 403,
    type: "permission_error",
    meaning: "The key or token holds two scopes that none may hold together.",
    retry: "never",
    remedy: "Use two keys, each with one of the two scopes.",
  },
  send_not_permitted: {
    status: 403,
    type: "permission_error",
    meaning: "The key may not send: it is a test key, or it needs approval for each send.",
    retry: "never",
    remedy: "Use a live key that needs no approval for each send.",
  },
  send_domain_not_allowed: {
    status: 403,
    type: "permission_error",
    meaning: "The key's send_domains do not hold the domain of every from-address.",
    retry: "after_remedy",
    remedy: "Send from an address of a domain in the key's `send_domains`, or use a key that allows this domain.",
  },
  complaint_rate_exceeded: {
    status: 403,
    type: "permission_error",
    meaning: "The team's rate of complaints reached the limit at which the API stops sending.",
    retry: "after_remedy",
    remedy:
      "Find out why recipients complain and remove those who did not ask for the mail. Sending works again once the rate of the last 30 days is lower.",
  },
  not_found: {
    status: 404,
    type: "not_found_error",
    meaning: "No record has this id, or no endpoint has this path.",
    retry: "never",
    remedy:
      "Check the path, the id and the environment of the key: another team's records and those of the other environment do not exist for it.",
  },
  method_not_allowed: {
    status: 405,
    type: "invalid_request_error",
    meaning: "The path does not take this method; the Allow header lists those it takes.",
    retry: "never",
    remedy: "Use a method that the Allow header lists.",
  },
  request_timeout: {
    status: 408,
    type: "api_error",
    meaning: "The request did not arrive in time, and the connection is closed; send it again.",
    retry: "as_is",
    remedy: "Open a new connection and send the whole request without a pause.",
  },
  idempotency_key_reused: {
    status: 409,
    type: "conflict_error",
    meaning: "The Idempotency-Key was used for another request.",
    retry: "never",
    remedy:
      "Use a new Idempotency-Key for every new request, and the old one only to repeat the same request unchanged.",
  },
  request_in_flight: {
    status: 409,
    type: "conflict_error",
    meaning: "A request under this Idempotency-Key is still running.",
    retry: "as_is",
    remedy:
      "Wait for the time in Retry-After and send the same request under the same key: it gets the first one's answer.",
  },
  confirmation_required: {
    status: 409,
    type: "conflict_error",
    meaning: "The request needs a confirmation token; make a send-preview to get one.",
    retry: "never",
    remedy:
      "Make a send-preview, show its numbers to the person who decides, and send its token as `confirmation_token`.",
  },
  confirmation_stale: {
    status: 409,
    type: "conflict_error",
    meaning: "The confirmation token was used, was made void or has expired; make a new send-preview.",
    retry: "never",
    remedy: "Make a new send-preview and confirm with its token.",
  },
  confirmation_invalid: {
    status: 409,
    type: "conflict_error",
    meaning: "The confirmation token is not one that a send-preview of this record gave.",
    retry: "never",
    remedy: "Send the token of a send-preview of this very record, whole and unchanged.",
  },
  send_plan_changed: {
    status: 409,
    type: "conflict_error",
    meaning: "Something changed since the preview; make a new send-preview.",
    retry: "never",
    remedy: "Make a new send-preview, look at its numbers again and confirm with its token.",
  },
  campaign_not_ready: {
    status: 409,
    type: "conflict_error",
    meaning: "The draft cannot be sent as it is; the message says why.",
    retry: "after_remedy",
    remedy: "Correct the draft as the message says, then make a new send-preview.",
  },
  sending_domain_unverified: {
    status: 409,
    type: "conflict_error",
    meaning: "The sending account is not ACTIVE, or is no longer connected.",
    retry: "after_remedy",
    remedy: "Repair the sending account in the app until it is ACTIVE, then make a new send-preview.",
  },
  resource_already_exists: {
    status: 409,
    type: "invalid_request_error",
    meaning: "A record with this natural key exists; change that one with PATCH.",
    retry: "never",
    remedy: "Find the record by its natural key, such as `?email=`, and change it with PATCH.",
  },
  person_erased: {
    status: 409,
    type: "conflict_error",
    meaning: "The person asked for their data to be erased: the address is not taken again, and no answer shows it.",
    retry: "after_remedy",
    remedy:
      "Leave the address out and delete it where you keep it. When the person comes back of their own will, ask the operator of the service to readmit the address.",
  },
  resource_limit_reached: {
    status: 409,
    type: "conflict_error",
    meaning: "The team has as many of these records as it may; delete one first.",
    retry: "after_remedy",
    remedy: "Delete a record of this kind. No plan lifts the limit that the guide to limits names.",
  },
  resource_state_invalid: {
    status: 409,
    type: "conflict_error",
    meaning: "The state of the record does not allow this.",
    retry: "after_remedy",
    remedy: "Read the record and its `status`; the message says which state the request needs.",
  },
  payload_too_large: {
    status: 413,
    type: "invalid_request_error",
    meaning: "The body is larger than is accepted.",
    retry: "never",
    remedy: "Send less at once: divide a batch into several requests.",
  },
  unsupported_media_type: {
    status: 415,
    type: "invalid_request_error",
    meaning: "Send application/json (to PATCH also application/merge-patch+json), uncompressed, gzip or deflate.",
    retry: "never",
    remedy:
      "Send `Content-Type: application/json` in UTF-8, and no Content-Encoding but gzip or deflate. PATCH also takes `application/merge-patch+json`.",
  },
  send_cap_exceeded: {
    status: 429,
    type: "rate_limit_error",
    meaning: "The send has more recipients than are left of the key's daily send cap.",
    retry: "after_remedy",
    remedy:
      "Wait for the time in Retry-After, the next midnight UTC, or use a key with a higher cap; then make a new send-preview.",
  },
  rate_limit_exceeded: {
    status: 429,
    type: "rate_limit_error",
    meaning: "The client sent too many requests; wait for the time in Retry-After.",
    retry: "as_is",
    remedy: "Wait for the time in Retry-After, and slow down before RateLimit-Remaining reaches 0.",
  },
  internal_error: {
    status: 500,
    type: "api_error",
    meaning: "The service failed; quote the request_id to its support.",
    retry: "as_is",
    remedy: "Try again with growing waits. If it stays, give the request_id to the operator of the service.",
  },
  service_unavailable: {
    status: 503,
    type: "api_error",
    meaning: "A part of the service is not reachable; retry after the time in Retry-After.",
    retry: "as_is",
    remedy: "Wait for the time in Retry-After and try again with growing waits.",
  },
} as const satisfies Record<string, ErrorEntry>;

export type ErrorCode = keyof typeof ERRORS;

export const isErrorCode = (value: unknown): value is ErrorCode =>
  typeof value === "string" && Object.hasOwn(ERRORS, value);

/** Seconds after which a request is worth another try while a part of the service is away: `Retry-After` of a 503. */
export const UNAVAILABLE_RETRY_SECONDS = 5;

interface ApiErrorOptions {
  /** The field at fault, e.g. `emails[3]`. */
  param?: string | undefined;
  /** Whole seconds until a retry makes sense. */
  retryAfterSeconds?: number | undefined;
  /** No later try can succeed either: the record never gets back to the state that the request needs. */
  isFinal?: boolean;
  cause?: unknown;
}

/** A refusal the API client sees: one code of the registry and a sentence with the remedy. */
export class ApiError extends Error {
  override name = "ApiError";
  readonly code: ErrorCode;
  readonly param: string | undefined;
  readonly retryAfterSeconds: number | undefined;
  readonly isFinal: boolean;

  constructor(
    code: ErrorCode,
    message?: string,
    { param, retryAfterSeconds, isFinal = false, cause }: ApiErrorOptions = {},
  ) {
    super(message ?? ERRORS[code].meaning, { cause });
    this.code = code;
    this.param = param;
    this.retryAfterSeconds = retryAfterSeconds;
    this.isFinal = isFinal;
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

/** @throws {ApiError} `not_found` for none */
export function orNotFound<T>(record: T | null | undefined): T {
  if (record === null || record === undefined) throw notFound();
  return record;
}

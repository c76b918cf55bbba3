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
  /** Its cause, for people; the OpenAPI document and the docs read it too. */
  meaning: string;
  /** Never unless given. */
  retry?: Retry;
  /** The next step of the client's developer, for people: Markdown of the docs. */
  remedy: string;
}

const family = <Code extends string>(status: number, type: ErrorType, errors: Record<Code, ErrorEntry>) =>
  Object.fromEntries(
    Object.entries<ErrorEntry>(errors).map(([code, entry]) => [code, { status, type, retry: "never", ...entry }]),
  ) as Record<Code, Required<ErrorEntry> & { status: number; type: ErrorType }>;

/**
 * Every error the API can answer: code, status, type, meaning, retry and remedy, in one place. A code is never renamed or
 * reused.
 */
export const ERRORS = {
  ...family(400, "invalid_request_error", {
    validation_failed: {
      meaning: "A parameter or body field is not valid; `param` names it.",
      remedy: "Correct the field that `param` names; the message says which values it takes.",
    },
    unsupported_parameter: {
      meaning: "The endpoint does not take this parameter; leave it out.",
      remedy: "Leave the parameter or field out; the reference lists those that the endpoint takes.",
    },
    idempotency_key_required: {
      meaning: "Send an Idempotency-Key header with this request.",
      remedy: "Add an Idempotency-Key header: a new random text, such as a UUID, per intended effect.",
    },
    invalid_json: {
      meaning: "The body is not valid JSON.",
      remedy: "Send one complete JSON value in UTF-8, and a Content-Length and Content-Encoding that fit its bytes.",
    },
    version_unsupported: {
      meaning: "The Service-Version header names no existing version.",
      remedy:
        "Send a version that the versioning guide lists, or no Service-Version header: the key's own version then applies.",
    },
    cursor_invalid: {
      meaning: "The cursor is not one of this list; start again from the first page.",
      remedy:
        "Leave the cursor out and read from the first page. Keep filters, sort and order the same while you page.",
    },
    filter_unsupported: {
      meaning: "The endpoint does not take this filter; leave it out.",
      remedy: "Leave the filter out; the reference lists the filters of each list.",
    },
    sort_unsupported: {
      meaning: "The endpoint cannot sort by this field.",
      remedy: "Use a sort that the reference lists for this endpoint, or none.",
    },
    expand_unsupported: {
      meaning: "The endpoint cannot expand this field.",
      remedy: "Leave `expand` out and retrieve the other record by its id.",
    },
  }),
  ...family(401, "authentication_error", {
    api_key_missing: {
      meaning: "Send an API key in x-api-key or as a bearer token.",
      remedy: "Add the header `x-api-key: mk_…` or `Authorization: Bearer mk_…`.",
    },
    api_key_malformed: {
      meaning: "The credential is not a well-formed API key.",
      remedy: "Copy the whole key again, from `mk_live_` or `mk_test_` to its last character.",
    },
    api_key_invalid: {
      meaning: "No API key matches, or the request carries two different credentials.",
      remedy: "Send one credential only, and check that the key belongs to this service.",
    },
    api_key_expired: {
      meaning: "The API key has expired; create a new one in the app.",
      remedy: "Ask an administrator of the team for a new key.",
    },
    api_key_revoked: {
      meaning: "The API key was revoked; create a new one in the app.",
      remedy: "Ask an administrator of the team for a new key; a revoked key never works again.",
    },
    api_key_environment_mismatch: {
      meaning: "The key has the prefix of the other environment.",
      remedy:
        "Copy the key again with its own prefix, `mk_live_` or `mk_test_`: the prefix is a part of the key. A record of the other environment is 404 `not_found`.",
    },
    invalid_token: {
      meaning: "The OAuth token is expired, revoked or not meant for this API.",
      remedy: "Get a new access token from the authorization server that the WWW-Authenticate header leads to.",
    },
  }),
  ...family(402, "quota_error", {
    plan_upgrade_required: {
      meaning: "API access needs the Business plan.",
      retry: "after_remedy",
      remedy: "Move the team to a plan with API access.",
    },
    quota_exceeded: {
      meaning: "The team has used up an allowance of its plan.",
      retry: "after_remedy",
      remedy:
        "The team's usage shows how much of each limit is left. Raise the plan's allowance, or free some of it. A send then begins with a new send-preview.",
    },
  }),
  ...family(403, "permission_error", {
    insufficient_scope: {
      meaning: "The API key or OAuth token lacks a scope; the message names it.",
      retry: "after_remedy",
      remedy: "Use a key or an access token that holds the scope.",
    },
    role_insufficient: {
      meaning:
        "The member who created the key, or whom the token acts for, no longer has the role for this, or has left the team.",
      retry: "after_remedy",
      remedy: "Have a member whose role allows this create a key, or restore the role of the member who did.",
    },
    forbidden_scope_pair: {
      meaning: "The key or token holds two scopes that none may hold together.",
      remedy: "Use two keys, each with one of the two scopes.",
    },
    send_not_permitted: {
      meaning: "The key may not send: it is a test key, or it needs approval for each send.",
      remedy: "Use a live key that needs no approval for each send.",
    },
    send_domain_not_allowed: {
      meaning: "The key's send_domains do not hold the domain of every from-address.",
      retry: "after_remedy",
      remedy: "Send from an address of a domain in the key's `send_domains`, or use a key that allows this domain.",
    },
    complaint_rate_exceeded: {
      meaning: "The team's rate of complaints reached the limit at which the API stops sending.",
      retry: "after_remedy",
      remedy:
        "Find out why recipients complain and remove those who did not ask for the mail. Sending works again once the rate of the last 30 days is lower.",
    },
  }),
  ...family(404, "not_found_error", {
    not_found: {
      meaning: "No record has this id, or no endpoint has this path.",
      remedy:
        "Check the path, the id and the environment of the key: another team's records and those of the other environment do not exist for it.",
    },
  }),
  ...family(405, "invalid_request_error", {
    method_not_allowed: {
      meaning: "The path does not take this method; the Allow header lists those it takes.",
      remedy: "Use a method that the Allow header lists.",
    },
  }),
  ...family(408, "api_error", {
    request_timeout: {
      meaning: "The request did not arrive in time, and the connection is closed; send it again.",
      retry: "as_is",
      remedy: "Open a new connection and send the whole request without a pause.",
    },
  }),
  ...family(409, "conflict_error", {
    idempotency_key_reused: {
      meaning: "The Idempotency-Key was used for another request.",
      remedy:
        "Use a new Idempotency-Key for every new request, and the old one only to repeat the same request unchanged.",
    },
    request_in_flight: {
      meaning: "A request under this Idempotency-Key is still running.",
      retry: "as_is",
      remedy:
        "Wait for the time in Retry-After and send the same request under the same key: it gets the first one's answer.",
    },
    confirmation_required: {
      meaning: "The request needs a confirmation token; make a send-preview to get one.",
      remedy:
        "Make a send-preview, show its numbers to the person who decides, and send its token as `confirmation_token`.",
    },
    confirmation_stale: {
      meaning: "The confirmation token was used, was made void or has expired; make a new send-preview.",
      remedy: "Make a new send-preview and confirm with its token.",
    },
    confirmation_invalid: {
      meaning: "The confirmation token is not one that a send-preview of this record gave.",
      remedy: "Send the token of a send-preview of this very record, whole and unchanged.",
    },
    send_plan_changed: {
      meaning: "Something changed since the preview; make a new send-preview.",
      remedy: "Make a new send-preview, look at its numbers again and confirm with its token.",
    },
    campaign_not_ready: {
      meaning: "The draft cannot be sent as it is; the message says why.",
      retry: "after_remedy",
      remedy: "Correct the draft as the message says, then make a new send-preview.",
    },
    sending_domain_unverified: {
      meaning: "The sending account is not ACTIVE, or is no longer connected.",
      retry: "after_remedy",
      remedy: "Repair the sending account in the app until it is ACTIVE, then make a new send-preview.",
    },
  }),
  ...family(409, "invalid_request_error", {
    resource_already_exists: {
      meaning: "A record with this natural key exists; change that one.",
      remedy:
        "Change the record that `resource_id` names. A key that may not read it gets no `resource_id`: it finds the record by its natural key, such as its `email`.",
    },
  }),
  ...family(409, "conflict_error", {
    person_erased: {
      meaning: "The person asked for their data to be erased: the address is not taken again, and no answer shows it.",
      retry: "after_remedy",
      remedy:
        "Leave the address out and delete it where you keep it. When the person comes back of their own will, ask the operator of the service to readmit the address.",
    },
    resource_limit_reached: {
      meaning: "The team has as many of these records as it may; delete one first.",
      retry: "after_remedy",
      remedy: "Delete a record of this kind. No plan lifts the limit that the guide to limits names.",
    },
    resource_state_invalid: {
      meaning: "The state of the record does not allow this.",
      retry: "after_remedy",
      remedy: "Read the record and its `status`; the message says which state the request needs.",
    },
  }),
  ...family(413, "invalid_request_error", {
    payload_too_large: {
      meaning: "The body is larger than is accepted.",
      remedy: "Send less at once: divide a batch into several requests.",
    },
  }),
  ...family(415, "invalid_request_error", {
    unsupported_media_type: {
      meaning: "Send application/json (to PATCH also application/merge-patch+json), uncompressed, gzip or deflate.",
      remedy:
        "Send `Content-Type: application/json` in UTF-8, and no Content-Encoding but gzip or deflate. PATCH also takes `application/merge-patch+json`.",
    },
  }),
  ...family(429, "rate_limit_error", {
    send_cap_exceeded: {
      meaning: "The send has more recipients than are left of the key's daily send cap.",
      retry: "after_remedy",
      remedy: "Wait until the next midnight UTC, or use a key with a higher cap; then make a new send-preview.",
    },
    rate_limit_exceeded: {
      meaning: "The client sent too many requests; wait for the time in Retry-After.",
      retry: "as_is",
      remedy: "Wait for the time in Retry-After, and slow down before RateLimit-Remaining reaches 0.",
    },
  }),
  ...family(500, "api_error", {
    internal_error: {
      meaning: "The service failed; quote the request_id to its support.",
      retry: "as_is",
      remedy: "Try again with growing waits. If it stays, give the request_id to the operator of the service.",
    },
  }),
  ...family(503, "api_error", {
    service_unavailable: {
      meaning: "A part of the service is not reachable; retry after the time in Retry-After.",
      retry: "as_is",
      remedy: "Wait for the time in Retry-After and try again with growing waits.",
    },
  }),
};

export type ErrorCode = keyof typeof ERRORS;

export const isErrorCode = (value: unknown): value is ErrorCode =>
  typeof value === "string" && Object.hasOwn(ERRORS, value);

/** Seconds after which a request is worth another try while a part of the service is away: `Retry-After` of a 503. */
export const UNAVAILABLE_RETRY_SECONDS = 5;

interface ApiErrorOptions {
  /** The field at fault, e.g. `emails[3]`. */
  param?: string | undefined;
  /** Of each field at fault, a sentence about it. */
  problems?: Readonly<Record<string, string>> | undefined;
  /** The record in the way: its id is shown to a caller that holds the scope. */
  record?: { id: string; scope: `${string}:read` } | undefined;
  /** Whole seconds until a retry makes sense; `UNAVAILABLE_RETRY_SECONDS` for `service_unavailable` unless given. */
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
  readonly problems: ApiErrorOptions["problems"];
  readonly record: ApiErrorOptions["record"];
  readonly retryAfterSeconds: number | undefined;
  readonly isFinal: boolean;

  constructor(
    code: ErrorCode,
    message?: string,
    { param, problems, record, retryAfterSeconds, isFinal = false, cause }: ApiErrorOptions = {},
  ) {
    super(message ?? ERRORS[code].meaning, { cause });
    this.code = code;
    this.param = param;
    this.problems = problems;
    this.record = record;
    this.retryAfterSeconds =
      retryAfterSeconds ?? (code === "service_unavailable" ? UNAVAILABLE_RETRY_SECONDS : undefined);
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
export const notFound = (param?: string, kind = "record"): ApiError =>
  new ApiError("not_found", `No ${kind} has this id.`, { param });

/** @throws {ApiError} `not_found` for none */
export function orNotFound<T>(record: T | null | undefined, kind?: string): T {
  if (record === null || record === undefined) throw notFound(undefined, kind);
  return record;
}

interface ErrorFacts {
  idempotencyKey?: string | undefined;
  cause?: unknown;
}

/** Every error that the client throws itself. */
export class MailkeelError extends Error {
  override name = "MailkeelError";
  /** That of the request: the same write, sent again under it, has one effect. Undefined where the operation takes none. */
  readonly idempotencyKey: string | undefined;

  constructor(message: string, { idempotencyKey, cause }: ErrorFacts = {}) {
    super(message, cause === undefined ? undefined : { cause });
    this.idempotencyKey = idempotencyKey;
  }
}

export type ErrorType =
  | "invalid_request_error"
  | "authentication_error"
  | "permission_error"
  | "not_found_error"
  | "conflict_error"
  | "rate_limit_error"
  | "quota_error"
  | "api_error";

/** A refusal as the service answered it. */
export type Refusal = Partial<Pick<ApiError, "resourceId">> &
  Pick<
    ApiError,
    "status" | "type" | "code" | "message" | "param" | "docUrl" | "requestId" | "retryAfter" | "idempotencyKey"
  >;

/** The service refused the request, or failed. There is a class for each type. */
export class ApiError extends MailkeelError {
  override name = "ApiError";
  /** The status of the HTTP answer. */
  readonly status: number;
  readonly type: ErrorType;
  /** Stable: branch on it. Codes are added, never renamed. */
  readonly code: string;
  /** The field at fault, where it is one: `emails[3]`. */
  readonly param: string | undefined;
  /** Of `resource_already_exists`: the record that exists, where the key may read it. */
  readonly resourceId: string | undefined;
  /** The page with the remedy. */
  readonly docUrl: string | undefined;
  /** Quote it to the support. */
  readonly requestId: string | undefined;
  /** Seconds after which another try makes sense, from Retry-After. */
  readonly retryAfter: number | undefined;

  constructor({ status, type, code, message, requestId, idempotencyKey, ...facts }: Refusal) {
    super(`${code}: ${message}${requestId === undefined ? "" : ` (${requestId})`}`, { idempotencyKey });
    this.status = status;
    this.type = type;
    this.code = code;
    this.param = facts.param;
    this.resourceId = facts.resourceId;
    this.docUrl = facts.docUrl;
    this.requestId = requestId;
    this.retryAfter = facts.retryAfter;
  }
}

/** The request is not valid, whenever it is sent: `param` names the field at fault. */
export class InvalidRequestError extends ApiError {
  override name = "InvalidRequestError";
}
/** The API key or token is missing, wrong, expired or revoked. */
export class AuthenticationError extends ApiError {
  override name = "AuthenticationError";
}
/** The key may not do this. */
export class PermissionError extends ApiError {
  override name = "PermissionError";
}
/** There is no such record, or it belongs to another team. */
export class NotFoundError extends ApiError {
  override name = "NotFoundError";
}
/** The state of the record, or an earlier request under the same Idempotency-Key, is in the way. */
export class ConflictError extends ApiError {
  override name = "ConflictError";
}
/** Too many requests, or the key's daily send cap is used up: `retryAfter` says when to come back. */
export class RateLimitError extends ApiError {
  override name = "RateLimitError";
}
/** The team's plan does not allow this, or is used up. */
export class QuotaError extends ApiError {
  override name = "QuotaError";
}
/** The service failed, or a part of it is away. */
export class ServiceError extends ApiError {
  override name = "ServiceError";
}

const CLASSES: Record<ErrorType, new (refusal: Refusal) => ApiError> = {
  invalid_request_error: InvalidRequestError,
  authentication_error: AuthenticationError,
  permission_error: PermissionError,
  not_found_error: NotFoundError,
  conflict_error: ConflictError,
  rate_limit_error: RateLimitError,
  quota_error: QuotaError,
  api_error: ServiceError,
};

/** The refusal in the class of its type. A type that this client does not know yet is a plain ApiError. */
export const apiErrorOf = (refusal: Refusal): ApiError =>
  new (Object.hasOwn(CLASSES, refusal.type) ? CLASSES[refusal.type] : ApiError)(refusal);

/** No answer came, or none of the service's own. A write may have had its effect: send it again under `idempotencyKey`. */
export class ConnectionError extends MailkeelError {
  override name = "ConnectionError";
  /** Of the answer that a proxy gave in place of the service; undefined where no answer came. */
  readonly status: number | undefined;
  /** Seconds, from the proxy's Retry-After. */
  readonly retryAfter: number | undefined;

  constructor(message: string, facts: ErrorFacts & { status?: number; retryAfter?: number | undefined } = {}) {
    super(message, facts);
    this.status = facts.status;
    this.retryAfter = facts.retryAfter;
  }
}

/** No answer came in time. */
export class TimeoutError extends ConnectionError {
  override name = "TimeoutError";
}

/** A webhook is not signed with the endpoint's secret, or too old: do not act on it. */
export class WebhookSignatureError extends MailkeelError {
  override name = "WebhookSignatureError";
}

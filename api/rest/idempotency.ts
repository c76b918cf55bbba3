import { setTimeout as delay } from "node:timers/promises";
import { jsonTextOf } from "../../db/json.ts";
import { requireScope } from "../../domain/access/access.ts";
import type { HeaderValues } from "../../domain/access/authenticate.ts";
import {
  type IdempotencyHandle,
  inFlight,
  type KeyedRequest,
  type RefusalFacts,
  type RememberedAnswer,
  readAnswer,
  refusalAnswer,
  releaseKey,
  STALLED_SECONDS,
  type WrittenAnswer,
  writeAnswer,
} from "../../domain/access/idempotency.ts";
import { ApiError, ERRORS, type ErrorCode } from "../../domain/errors.ts";
import { sealContext } from "../../domain/secrets/crypto.ts";
import { stableJson } from "../../lib/json-object.ts";
import type { Call, RequestContext } from "../context.ts";
import { type Answer, WRITE_META } from "./answer.ts";
import type { HandlerResult, Ok, RouteDefinition } from "./definition.ts";
import { toApiError } from "./failures.ts";
import type { RawInput } from "./input.ts";

const HEADER = "Idempotency-Key";
export const MAX_IDEMPOTENCY_KEY_LENGTH = 255;
const PRINTABLE = /^[\x20-\x7e]+$/;

/**
 * The Idempotency-Key that acts on a request; null when there is none or the route takes none.
 * @throws {ApiError} `idempotency_key_required`, or `validation_failed` for one that is not 1 to 255 printable characters
 */
export function readIdempotencyKey(headers: HeaderValues, { idempotency: policy }: RouteDefinition): string | null {
  if (policy === "none") return null;
  const [key, ...others] = headers["idempotency-key"] ?? [];
  if (key === undefined) {
    if (policy === "required") throw new ApiError("idempotency_key_required");
    return null;
  }
  if (others.length > 0 || key.length > MAX_IDEMPOTENCY_KEY_LENGTH || !PRINTABLE.test(key)) {
    throw new ApiError(
      "validation_failed",
      `${HEADER} must be given once and hold 1 to ${MAX_IDEMPOTENCY_KEY_LENGTH} printable ASCII characters.`,
      { param: HEADER },
    );
  }
  return key;
}

/**
 * The request as its Idempotency-Key knows it. In another version it is another request, and, on a route with a secret, from
 * a key of another lineage or another OAuth client.
 */
export function keyedRequest(
  { vault, tenant, access, version, requestId }: Omit<RequestContext, "idempotency">,
  idempotencyKey: string,
  { method, path, input, secret = false }: RouteDefinition,
  { params, query, body }: RawInput,
): KeyedRequest {
  const { teamId, environment } = tenant;
  // On a route without a body, none and `{}` are one request.
  const parts = stableJson({ params, query, ...(input.shape.body ? { body } : {}) });
  const owner = secret ? [access.caller.lineageId] : [];
  return {
    teamId,
    environment,
    requestId,
    keyHash: vault.hash("idempotency", "key", teamId, environment, idempotencyKey),
    fingerprint: vault.hash("idempotency", "request", version, method, path, parts, ...owner),
  };
}

/** Refusals for what the caller may not do: the request has not begun, and another caller or plan may change that. */
const NOT_ADMITTED: ReadonlySet<ErrorCode> = new Set([
  "plan_upgrade_required",
  "insufficient_scope",
  "role_insufficient",
  "forbidden_scope_pair",
]);
/** Statuses of a request that has not begun: not valid, not authenticated, too large, not JSON, beyond a rate. */
const STATUSES_OF_UNBEGUN_REQUESTS: ReadonlySet<number> = new Set([400, 401, 405, 408, 413, 415, 429]);
/** Refusals of a request that has begun, which another try of the same request may change. */
const NOT_REMEMBERED_CODES: ReadonlySet<ErrorCode> = new Set(["request_in_flight", "resource_limit_reached"]);

const hasBegun = (code: ErrorCode): boolean =>
  !STATUSES_OF_UNBEGUN_REQUESTS.has(ERRORS[code].status) && !NOT_ADMITTED.has(code);

/** Whether a refusal is the answer to the request from now on. A refusal that another try may change is not remembered. */
export const isRememberedCode = (code: ErrorCode): boolean =>
  hasBegun(code) && ERRORS[code].status < 500 && !NOT_REMEMBERED_CODES.has(code);

/** The remembered refusal of an earlier request, whose id its body shows. */
export class ReplayedRefusal extends ApiError {
  readonly requestId: string;

  constructor({ code, message, ...facts }: RefusalFacts, requestId: string) {
    super(code, message, facts);
    this.requestId = requestId;
  }
}

/** A remembered success that is not made from facts. */
type RememberedPayload = Pick<Answer, "data" | "meta"> & Pick<Ok<unknown>, "neededScopes">;

/** Binds a sealed payload to its record. */
const sealOf = ({ teamId, environment, keyHash }: KeyedRequest) =>
  sealContext("idempotency_records", "payload", teamId, environment, keyHash);

/** Packs a success to be remembered: its payload, encrypted where it holds a secret, or the facts it is made from. */
function packAnswer(
  { vault }: Pick<RequestContext, "vault">,
  { secret = false }: RouteDefinition,
  handle: IdempotencyHandle,
  { status, data, meta }: Answer,
  { facts, neededScopes }: Ok<unknown>,
): WrittenAnswer {
  if (facts !== undefined) return { status, kind: "facts", payload: JSON.stringify(facts) };
  const payload = `{"data":${jsonTextOf(data)},${JSON.stringify({ meta, neededScopes }).slice(1)}`;
  return secret
    ? { status, kind: "sealed", payload: vault.encrypt(payload, sealOf(handle)) }
    : { status, kind: "payload", payload };
}

/**
 * Remembers a success under the claimed key of its request, if it has one and the effect's transaction has not done so; in the
 * transaction of `em`.
 * @throws {ApiError} `request_in_flight` when another attempt has taken the key over: this one must leave no trace
 */
export async function remember(
  ctx: Pick<RequestContext, "em" | "vault" | "idempotency">,
  definition: RouteDefinition,
  answer: Answer,
  result: HandlerResult<unknown>,
): Promise<void> {
  const { em, idempotency } = ctx;
  if (!idempotency || !("data" in result) || result.requestId !== undefined) return;
  const packed = packAnswer(ctx, definition, idempotency, answer, result);
  if (!(await writeAnswer(em, idempotency, packed))) throw inFlight();
}

/**
 * A remembered answer as the first request got it. Nothing but the caller's rights is checked again.
 * @throws {ReplayedRefusal} a remembered refusal
 * @throws {ApiError} `insufficient_scope`, `role_insufficient` when the caller lacks a scope that the first request needed
 */
export async function recallAnswer(
  ctx: RequestContext & Pick<Call, "locals">,
  { recall, output }: RouteDefinition,
  request: KeyedRequest,
  { requestId, status, kind, payload }: RememberedAnswer,
): Promise<Answer> {
  const text = kind === "sealed" ? ctx.vault.decrypt(payload, sealOf(request)) : payload;
  const replayed = () => {
    ctx.locals.headers["Idempotent-Replayed"] = "true";
  };
  if (kind === "refusal") {
    replayed();
    throw new ReplayedRefusal(JSON.parse(text), requestId);
  }
  if (kind !== "facts") {
    const { data, meta, neededScopes }: RememberedPayload = JSON.parse(text);
    if (neededScopes) requireScope(ctx.access, ...neededScopes);
    replayed();
    return { status, requestId, data, meta };
  }
  const facts: unknown = JSON.parse(text);
  const data = output.parse(recall ? await recall(ctx, facts) : facts);
  replayed();
  return { status, requestId, data, meta: WRITE_META };
}

/** A refusal as its caller gets it under a key that is to repeat it: what mends it is not enough for another try. */
const withNewKey = (refusal: ApiError): ApiError =>
  isRememberedCode(refusal.code) && ERRORS[refusal.code].retry === "after_remedy" && !refusal.isFinal
    ? new ApiError(
        refusal.code,
        `${refusal.message} Then use a new Idempotency-Key: this one repeats the refusal.`,
        refusal,
      )
    : refusal;

/**
 * Gives a key back that could not be claimed or settled, once Postgres answers again: the claim may have been committed all the
 * same, and a retry would be refused until its request is presumed dead.
 */
export async function releaseLater(
  { em, log }: Pick<RequestContext, "em" | "log">,
  request: KeyedRequest,
  to: "same" | "any" = "same",
): Promise<void> {
  for (let seconds = 0; seconds < STALLED_SECONDS; seconds++) {
    await delay(1_000, undefined, { ref: false });
    try {
      return void (await releaseKey(em, request, to));
    } catch (err) {
      log.warn({ err }, "key not released yet");
    }
  }
}

/**
 * Ends a request that failed under a claimed key: its refusal is remembered, or the key is given back.
 * @returns the answer that another attempt of it has written meanwhile: a client that asks again would get that one too
 * @throws {ApiError} `request_in_flight` instead of a refusal that could not be remembered; else what was thrown
 */
export async function settleFailure(
  ctx: RequestContext & Pick<Call, "locals">,
  definition: RouteDefinition,
  handle: IdempotencyHandle,
  thrown: unknown,
): Promise<Answer> {
  const refusal = withNewKey(toApiError(thrown));
  const isRemembered = isRememberedCode(refusal.code);
  const to = hasBegun(refusal.code) ? "same" : "any";
  const settled = isRemembered ? writeAnswer(ctx.em, handle, refusalAnswer(refusal)) : releaseKey(ctx.em, handle, to);
  const isSettled = await settled.catch((error) => {
    void releaseLater(ctx, handle, to);
    throw isRemembered ? error : refusal;
  });
  if (isSettled) throw refusal;
  // The key was taken over, or its work is under way still, or has written its answer.
  const answer = await readAnswer(ctx.em, handle);
  if (answer) return recallAnswer(ctx, definition, handle, answer);
  throw isRemembered ? inFlight() : refusal;
}

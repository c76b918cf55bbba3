import type { Request } from "express";
import type { Access } from "../../domain/access/authenticate.ts";
import type { Vault } from "../../domain/crypto.ts";
import { ApiError, type ErrorCode } from "../../domain/errors.ts";
import type { KeyedRequest } from "../../domain/idempotency.ts";
import { canonicalJson } from "./canonical.ts";
import type { RawInput } from "./input.ts";
import type { RouteMeta } from "./route.ts";

const HEADER = "Idempotency-Key";
const MAX_LENGTH = 255;
const PRINTABLE = /^[\x20-\x7e]+$/;

/** Whether an Idempotency-Key acts on a route. */
export const keyPolicy = ({ method, idempotency }: RouteMeta): "none" | "optional" | "required" =>
  idempotency ?? (method === "GET" || method === "DELETE" ? "none" : "optional");

/**
 * The Idempotency-Key that acts on a request; null when there is none or the route takes none.
 * @throws {ApiError} `idempotency_key_required`, or `validation_failed` for one that is not 1 to 255 printable characters
 */
export function readKey(req: Request, route: RouteMeta): string | null {
  const policy = keyPolicy(route);
  if (policy === "none") return null;
  const [key, ...others] = req.headersDistinct["idempotency-key"] ?? [];
  if (key === undefined) {
    if (policy === "required") throw new ApiError("idempotency_key_required");
    return null;
  }
  if (others.length > 0 || key.length > MAX_LENGTH || !PRINTABLE.test(key)) {
    throw new ApiError(
      "validation_failed",
      `${HEADER} must be given once and hold 1 to ${MAX_LENGTH} printable ASCII characters.`,
      { param: HEADER },
    );
  }
  return key;
}

/** The request as its Idempotency-Key knows it. */
export function keyedRequest(
  vault: Vault,
  { tenant }: Access,
  key: string,
  requestId: string,
  { method, path }: RouteMeta,
  raw: RawInput,
): KeyedRequest {
  const { teamId, environment } = tenant;
  return {
    tenant,
    requestId,
    keyHash: vault.sign("idempotency", "key", teamId, environment, key),
    fingerprint: vault.sign("idempotency", "request", method, path, canonicalJson(raw)),
  };
}

/** Refusals that end by themselves, or by a change elsewhere that has nothing to do with the request. */
const PASSING: ReadonlySet<ErrorCode> = new Set([
  "insufficient_scope",
  "role_insufficient",
  "request_in_flight",
  "resource_limit_reached",
]);

/**
 * Whether a refusal is the answer to the request from now on. What another try may well change is not remembered:
 * a request that was not valid or not allowed, a limit, an attempt under way.
 */
export const isRemembered = ({ status, code }: ApiError): boolean =>
  status > 401 && status < 500 && status !== 429 && !PASSING.has(code);

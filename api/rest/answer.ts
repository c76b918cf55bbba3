import type { RequestContext } from "../context.ts";
import type { AnyScope, HandlerResult, RouteDefinition } from "./definition.ts";

/** The result of a procedure; over REST the adapter puts the envelope around it. */
export interface Answer<Data = unknown> {
  status: number;
  /** The request that had the effect: on a replay the first one. */
  requestId: string;
  /** Null on a dry run. */
  data: Data;
  meta: Record<string, unknown>;
}

/** An answer, and how it is remembered under an Idempotency-Key. */
export interface Success extends Answer {
  /** Remembered instead of `data`. */
  facts?: unknown;
  /** The transaction of its effect has remembered it. */
  isRemembered?: true;
  /** Scopes, one of which a caller needs for a replay besides the route's. */
  neededScopes?: AnyScope | undefined;
}

/** The `meta` of the answer to a write, besides what its handler adds. */
export const WRITE_META = { dry_run: false } as const;

/**
 * Makes the answer from a handler's result. A dry run shows its impact alone.
 * @throws {Error} for a dry run without an impact
 */
export function successOf(
  { requestId, dryRun }: Pick<RequestContext, "requestId" | "dryRun">,
  { method, path, kind, status = 200 }: RouteDefinition,
  result: HandlerResult<unknown>,
): Success {
  if (dryRun) {
    if (!result.impact) throw new Error(`${method} ${path} gave no impact on a dry run`);
    return { status: 200, requestId, data: null, meta: { dry_run: true, impact: result.impact } };
  }
  if (!("data" in result)) throw new Error(`${method} ${path} gave no payload`);
  const { data, meta, facts, neededScopes, requestId: ofEffect } = result;
  return {
    status,
    requestId: ofEffect ?? requestId,
    ...(ofEffect !== undefined && { isRemembered: true }),
    data,
    meta: kind === "read" ? { ...meta } : { ...WRITE_META, ...meta },
    facts,
    neededScopes,
  };
}

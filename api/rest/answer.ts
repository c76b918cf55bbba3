import type { RequestContext } from "../context.ts";
import type { HandlerResult, RouteDefinition } from "./definition.ts";

/** The result of a procedure; over REST the adapter puts the envelope around it. */
export interface Answer<Data = unknown> {
  status: number;
  /** The request that had the effect: on a replay the first one. */
  requestId: string;
  /** Null on a dry run. */
  data: Data;
  meta: Record<string, unknown>;
}

/** The `meta` of the answer to a write, besides what its handler adds. */
export const WRITE_META = { dry_run: false } as const;

/**
 * Makes the answer from a handler's result. A dry run shows its impact alone.
 * @throws {Error} for a dry run without an impact
 */
export function answerOf(
  { requestId, dryRun }: Pick<RequestContext, "requestId" | "dryRun">,
  { method, path, kind, status = 200 }: RouteDefinition,
  result: HandlerResult<unknown>,
): Answer {
  if (dryRun) {
    if (!result.impact) throw new Error(`${method} ${path} gave no impact on a dry run`);
    return { status: 200, requestId, data: null, meta: { dry_run: true, impact: result.impact } };
  }
  if (!("data" in result)) throw new Error(`${method} ${path} gave no payload`);
  const { data, meta, requestId: ofEffect = requestId } = result;
  return { status, requestId: ofEffect, data, meta: kind === "read" ? { ...meta } : { ...WRITE_META, ...meta } };
}

import { initTRPC } from "@trpc/server";
import { JsonText } from "../../db/json.ts";
import { transaction } from "../../db/transaction.ts";
import { type Access, requireScope } from "../../domain/access/access.ts";
import { type Admitted, authenticate, type CallerSummary } from "../../domain/access/authenticate.ts";
import { claimKey, inFlight, isNotClaimed, keepClaim, writeAnswer } from "../../domain/access/idempotency.ts";
import type { ApiVersion } from "../../domain/api-version.ts";
import { ApiError } from "../../domain/errors.ts";
import type { Call, RequestContext } from "../context.ts";
import { type Success, successOf } from "./answer.ts";
import type { HandlerResult, RouteDefinition, RouteKind } from "./definition.ts";
import { HandlerContext } from "./handler-context.ts";
import {
  failUnder,
  keyedRequest,
  packAnswer,
  Replayed,
  readIdempotencyKey,
  recallAnswer,
  releaseLostClaim,
} from "./idempotency.ts";
import { completeInput, parserOf, type RawInput } from "./input.ts";
import { Turns } from "./turns.ts";
import { readVersion, VERSION_HEADER } from "./versions.ts";

const t = initTRPC.context<Call>().meta<RouteDefinition>().create();

/** Puts routes, or routers of routes, into one. */
export const router = t.router;

/** The part of a route that is its own; `input` is parsed. */
export type RouteHandler = (call: { ctx: RequestContext; input: unknown }) => Promise<HandlerResult<unknown>>;

interface Route {
  definition: RouteDefinition;
  /** @throws {ApiError} */
  parse: (raw: RawInput) => unknown;
  handler: RouteHandler;
}

/**
 * The procedure of a route. It has no middlewares: tRPC copies the options of a call at each of them, which stands high in
 * a profile of the API.
 */
export function procedureFor(definition: RouteDefinition, handler: RouteHandler) {
  const parse = parserOf(completeInput(definition.input), definition.output, definition.itemsIn);
  const route: Route = { definition, parse, handler };
  const resolve = ({ ctx }: { ctx: Call }) => serve(ctx, route);
  const procedure = t.procedure.meta(definition);
  return { query: () => procedure.query(resolve), mutation: () => procedure.mutation(resolve) };
}

/**
 * Serves a call, from its credentials to its answer. The order of the steps is the order of refusals: credentials, rate
 * limit, rights of the caller, Service-Version, scope, query string and `dry_run`, Idempotency-Key, body, input.
 */
async function serve(call: Call, route: Route): Promise<Success> {
  const { definition, parse } = route;
  const { access, version } = await authenticateCall(call);
  if (definition.scope) requireScope(access, definition.scope);
  if (definition.alsoScope) requireScope(access, definition.alsoScope);
  const { parameters: query, dryRun: dryRunText } = call.readQuery();
  const dryRun = readDryRun(dryRunText, access, definition);
  const idempotencyKey = readIdempotencyKey(call.headers, definition);
  await takeTurn(access, definition, call);
  const raw = { params: call.params, query, body: await call.readBody() };
  const input = parse(raw);

  const ctx = new HandlerContext(call, definition, { access, version, dryRun });
  const run = () => RUN[definition.kind](route, ctx, input);
  if (definition.kind === "read") return call.deps.teamReads.during(access.tenant.teamId, call.answering, run);
  // A dry run has no effect that a second request could repeat.
  if (idempotencyKey === null || dryRun) return run();
  return onceUnder(idempotencyKey, route, ctx, { raw, input });
}

/** The headers on every answer to a caller that is known. The X- spellings serve clients that were made for others. */
function putCallerHeaders(
  headers: Record<string, string>,
  { allowance: { limit, remaining, resetMs }, apiVersion }: CallerSummary,
): void {
  const resetSeconds = Math.ceil(resetMs / 1_000);
  headers["RateLimit-Limit"] = headers["X-RateLimit-Limit"] = `${limit}`;
  headers["RateLimit-Remaining"] = headers["X-RateLimit-Remaining"] = `${remaining}`;
  headers["RateLimit-Reset"] = headers["X-RateLimit-Reset"] = `${resetSeconds}`;
  headers[VERSION_HEADER] = apiVersion;
}

/** The access of a request's caller, and the version that it is served in. */
interface VersionedAccess {
  access: Admitted;
  version: ApiVersion;
}

async function authenticateCall({ deps, headers, clientAddress, locals }: Call): Promise<VersionedAccess> {
  const { orm, vault, limits, verifyToken } = deps;
  const onCallerKnown = (summary: CallerSummary) => putCallerHeaders(locals.headers, summary);
  const access = await authenticate(orm.em, vault, headers, { limits, clientAddress, onCallerKnown }, verifyToken);
  locals.teamId = access.tenant.teamId;
  const version = readVersion(headers, access.caller.apiVersion);
  locals.headers[VERSION_HEADER] = version;
  return { access, version };
}

/** Whether nothing is to be committed. @throws {ApiError} `validation_failed`; as `requireScope` for `dryRunScope` */
function readDryRun(value: string | undefined, access: Access, { dryRunScope }: RouteDefinition): boolean {
  if (value !== undefined && value !== "true" && value !== "false") {
    throw new ApiError("validation_failed", "dry_run must be true or false.", { param: "dry_run" });
  }
  const dryRun = value === "true";
  if (dryRun && dryRunScope) requireScope(access, dryRunScope);
  return dryRun;
}

/** How the requests of a route take turns: a read may have an answer of some MiB, which is kept until the client has it. */
type TurnKind = RouteKind | "large_read";

/**
 * Requests of one caller that are under way at once in this process, from before its body is read until its answer has left.
 * Eight reads or writes keep the process busy. Of answers that may be large, two keep Postgres busy while the process writes
 * one. A route behind a workflow mostly waits.
 */
export const TURNS_OF_A_CALLER = { read: 8, large_read: 2, write: 8, workflow: 16 } as const satisfies Record<
  TurnKind,
  number
>;
/** A team has the turns of so many callers, however many keys it uses. */
export const CALLERS_OF_A_TEAM = 2;

const turnsFor = (callers: number): Record<TurnKind, Turns> => ({
  read: new Turns(callers * TURNS_OF_A_CALLER.read),
  large_read: new Turns(callers * TURNS_OF_A_CALLER.large_read),
  write: new Turns(callers * TURNS_OF_A_CALLER.write),
  workflow: new Turns(callers * TURNS_OF_A_CALLER.workflow),
});
const CALLER_TURNS = turnsFor(1);
const TEAM_TURNS = turnsFor(CALLERS_OF_A_TEAM);

/** Waits until the caller, and then its team, may have one more request of the kind under way. */
async function takeTurn(
  { caller, tenant }: Access,
  { kind, largeAnswer }: RouteDefinition,
  { answering }: Call,
): Promise<void> {
  const turn = largeAnswer ? "large_read" : kind;
  await CALLER_TURNS[turn].take(caller.id, answering);
  await TEAM_TURNS[turn].take(tenant.teamId, answering);
}

/**
 * Runs the handler. A payload made here keeps the fields that the route's schema names, and no others; one that is JSON
 * already was made of named columns.
 */
async function handle({ definition, handler }: Route, ctx: RequestContext, input: unknown): Promise<Success> {
  const result = await handler({ ctx, input });
  if (!("data" in result) || result.data instanceof JsonText) return successOf(ctx, definition, result);
  return successOf(ctx, definition, { ...result, data: definition.output.parse(result.data) });
}

/** Runs a route's handler in the way of its kind, and gives its answer. */
type Run = (route: Route, ctx: HandlerContext, input: unknown) => Promise<Success>;

/** Ends a dry run's transaction. */
class DryRunDone {
  readonly success: Success;

  constructor(success: Success) {
    this.success = success;
  }
}

/**
 * Runs the effect in a transaction that also remembers the answer, and rolls it back after a failure and on a dry run.
 * An effect that is atomic by itself does without: each statement of the transaction costs one more round trip.
 */
const write: Run = async (route, ctx, input) => {
  const { definition } = route;
  await definition.before?.(ctx, input);
  if (!ctx.dryRun && definition.isAtomic?.(input)) return handle(route, ctx, input);
  try {
    return await transaction(ctx.em, async (em) => {
      const success = await handle(route, ctx.inside(em), input);
      // The database may refuse changes that are not flushed yet; on a dry run too.
      await em.flush();
      const { idempotency } = ctx;
      // Another attempt has taken the key over: this one must leave no trace.
      const held =
        !idempotency || (await writeAnswer(em, idempotency, packAnswer(ctx, definition, idempotency, success)));
      if (!held) throw inFlight();
      if (ctx.dryRun) throw new DryRunDone(success);
      return success;
    });
  } catch (thrown) {
    if (thrown instanceof DryRunDone) return thrown.success;
    throw thrown;
  }
};

/** In no transaction: a workflow commits the effect. */
const workflow: Run = async (route, ctx, input) => {
  const { definition } = route;
  await definition.before?.(ctx, input);
  const success = await handle(route, ctx, input);
  const { idempotency, em } = ctx;
  if (!idempotency || success.isRemembered) return success;
  if (await writeAnswer(em, idempotency, packAnswer(ctx, definition, idempotency, success))) return success;
  // Another attempt has taken the key over: its answer is the one to give.
  throw inFlight();
};

const RUN: Record<RouteKind, Run> = { read: handle, write, workflow };

/**
 * Runs a write once under an Idempotency-Key: claims the key, or replays the answer that is remembered under it. An atomic
 * write claims the key with its effect; where it cannot, it follows the steps of all others.
 */
async function onceUnder(
  idempotencyKey: string,
  route: Route,
  ctx: HandlerContext,
  { raw, input }: { raw: RawInput; input: unknown },
): Promise<Success> {
  const { definition } = route;
  const { database } = ctx;
  const request = keyedRequest(ctx, idempotencyKey, definition, raw);
  const run = (claimed: HandlerContext) => RUN[definition.kind](route, claimed, input);
  let failure: { thrown: unknown } | undefined;
  if (definition.isAtomic?.(input)) {
    try {
      return await run(ctx.claiming(request));
    } catch (thrown) {
      // A refusal is remembered under a claim. A failure is not repeated here: the claim finds the answer of a statement that
      // was committed all the same, and else keeps the key for the same request.
      if (!isNotClaimed(thrown) && !(thrown instanceof ApiError)) failure = { thrown };
    }
  }
  const claim = await claimKey(database, request, { durable: definition.kind === "workflow" }).catch((thrown) => {
    releaseLostClaim(ctx, request, thrown);
    throw thrown;
  });
  if (claim.outcome === "replay") throw new Replayed(await recallAnswer(ctx, definition, request, claim.answer));
  const stopRenewing = keepClaim(database, claim.handle, (err) => ctx.log.warn({ err }, "claim not renewed"));
  try {
    if (failure) throw failure.thrown;
    return await run(ctx.claimedBy(claim.handle));
  } catch (thrown) {
    return await failUnder(ctx, definition, request, claim.handle, thrown);
  } finally {
    stopRenewing();
  }
}

import { initTRPC } from "@trpc/server";
import { type EntityManager, forTenant, type Tenant } from "../../db/orm.ts";
import { transaction } from "../../db/transaction.ts";
import { type Access, authenticate, type Identified, requireScope } from "../../domain/access/authenticate.ts";
import { ApiError } from "../../domain/errors.ts";
import { claimKey, type IdempotencyHandle, inFlight, keepClaim, writeAnswer } from "../../domain/idempotency.ts";
import type { CallContext } from "../context.ts";
import { successOf } from "./answer.ts";
import type { HandlerResult, RouteDefinition, RouteKind } from "./definition.ts";
import { thrownBy } from "./failures.ts";
import { keyedRequest, packAnswer, Replayed, readKey, recallAnswer, settleFailure } from "./idempotency.ts";
import { completeInput, parserOf, type RawInput } from "./input.ts";
import { Turns } from "./turns.ts";
import { type ApiVersion, readVersion, VERSION_HEADER } from "./versions.ts";

/** An admitted call: the caller is known and may use the route. */
interface AdmittedCall extends CallContext {
  em: EntityManager;
  tenant: Tenant;
  access: Access;
  version: ApiVersion;
  dryRun: boolean;
  /** The Idempotency-Key that acts on the call, if any. */
  key: string | null;
}

/**
 * The context of tRPC holds the call as one value. tRPC copies the context field by field at every middleware, by a
 * function that is slow enough to be seen in a profile of the API.
 */
interface Context<Call> {
  call: Call;
}

const t = initTRPC.context<Context<CallContext>>().meta<RouteDefinition>().create();
/** For the middlewares behind the input's. */
const inner = initTRPC.context<Context<AdmittedCall>>().meta<RouteDefinition>().create();

/** Puts routes, or routers of routes, into one. */
export const router = t.router;

function declared(meta: RouteDefinition | undefined): RouteDefinition {
  if (!meta) throw new Error("a procedure was made without route()");
  return meta;
}

/** The headers on every answer to a caller that is known. The X- spellings serve clients that were made for others. */
function callerHeaders({ allowance: { limit, remaining, resetMs }, apiVersion }: Identified): Record<string, string> {
  const values = [`${limit}`, `${remaining}`, `${Math.ceil(resetMs / 1_000)}`] as const;
  return {
    "RateLimit-Limit": values[0],
    "RateLimit-Remaining": values[1],
    "RateLimit-Reset": values[2],
    "X-RateLimit-Limit": values[0],
    "X-RateLimit-Remaining": values[1],
    "X-RateLimit-Reset": values[2],
    [VERSION_HEADER]: apiVersion,
  };
}

async function identify(call: CallContext) {
  const { orm, vault, headers, limits, client, verifyToken, setHeaders, locals, log, requestId } = call;
  const onIdentified = (identified: Identified) => setHeaders(callerHeaders(identified));
  const access = await authenticate(orm.em, vault, headers, { limits, client, onIdentified }, verifyToken);
  const { tenant } = access;
  locals.teamId = tenant.teamId;
  const version = readVersion(headers, access.caller.apiVersion);
  setHeaders({ [VERSION_HEADER]: version });
  const known = { access, tenant, version, em: forTenant(orm.em, tenant) };
  return { ...known, log: log.child({ requestId, teamId: tenant.teamId }) };
}

/** Whether nothing is to be committed. @throws {ApiError} `validation_failed`; a missing `readScope` */
function readDryRun(value: string | undefined, access: Access, { readScope }: RouteDefinition): boolean {
  if (value !== undefined && value !== "true" && value !== "false") {
    throw new ApiError("validation_failed", "dry_run must be true or false.", { param: "dry_run" });
  }
  const dryRun = value === "true";
  if (dryRun && readScope) requireScope(access, readScope);
  return dryRun;
}

/**
 * Requests of one key that are under way at once in this process, from before its body is read until its answer has left.
 * Two reads keep Postgres busy while the process writes an answer; eight writes keep the process busy; a send mostly waits.
 */
export const TURNS_OF_A_KEY = { read: 2, write: 8, send: 16 } as const satisfies Record<RouteKind, number>;
const TURNS: Record<RouteKind, Turns> = {
  read: new Turns(TURNS_OF_A_KEY.read),
  write: new Turns(TURNS_OF_A_KEY.write),
  send: new Turns(TURNS_OF_A_KEY.send),
};

/**
 * The middlewares of every call in front of its input. Their order is the order of refusals: credentials, rate limit,
 * rights of the caller, Service-Version, scope, query string and `dry_run`, Idempotency-Key.
 */
const admitted = t.procedure
  .use(async ({ ctx: { call }, next }) => next({ ctx: { call: { ...call, ...(await identify(call)) } } }))
  .use(async ({ ctx: { call }, meta, next }) => {
    const definition = declared(meta);
    const { scope, alsoScope } = definition;
    if (scope) requireScope(call.access, scope);
    if (alsoScope) requireScope(call.access, alsoScope);
    const dryRun = readDryRun(call.query().dryRun, call.access, definition);
    const key = readKey(call.headers, definition);
    await TURNS[definition.kind].take(call.access.caller.id, call.ended);
    return next({ ctx: { call: { ...call, dryRun, key } } });
  });

/** Turns the result of a read's handler into the answer. */
const reading = inner.procedure.use(async ({ ctx: { call }, meta, next }) => {
  const result = await next({ ctx: { call: { ...call, idempotency: null } } });
  if (!result.ok) return result;
  return { ...result, data: successOf(call, declared(meta), result.data as HandlerResult<unknown>) };
});

/**
 * Runs a write once per Idempotency-Key: claims the key, or replays the answer that is remembered under it. Then runs
 * the route's `before`.
 */
const claiming = inner.procedure
  .use(async ({ ctx: { call }, meta, getRawInput, next }) => {
    const definition = declared(meta);
    const hold = (idempotency: IdempotencyHandle | null) => next({ ctx: { call: { ...call, idempotency } } });
    // A dry run has no effect that a second request could repeat.
    if (call.key === null || call.dryRun) return hold(null);
    const request = keyedRequest(call, call.key, definition, (await getRawInput()) as RawInput);
    const claim = await claimKey(call.orm.em, request);
    if (claim.outcome === "replay") {
      throw new Replayed(await recallAnswer({ ...call, idempotency: null }, definition, request, claim.answer));
    }
    const stopRenewing = keepClaim(call.orm.em.fork(), claim.handle, (err) =>
      call.log.warn({ err }, "claim not renewed"),
    );
    try {
      const result = await hold(claim.handle);
      if (!result.ok) await settleFailure(call, definition, claim.handle, thrownBy(result.error));
      return result;
    } finally {
      stopRenewing();
    }
  })
  .use(async ({ ctx: { call }, meta, input, next }) => {
    await declared(meta).before?.(call, input);
    return next();
  });

/** The result of tRPC's `next()`, which returns failures instead of throwing them. */
type Outcome = { ok: true; data: unknown } | { ok: false; error: Error };

/** Ends a dry run's transaction. */
class DryRunDone<R> {
  readonly outcome: R;

  constructor(outcome: R) {
    this.outcome = outcome;
  }
}

/** Runs the rest of a call in a transaction, and rolls back when that fails, and on a dry run. */
async function inTransaction<R extends Outcome>(
  { em, dryRun }: AdmittedCall,
  rest: (em: EntityManager) => Promise<R>,
): Promise<R> {
  try {
    return await transaction(em, async (tx) => {
      const outcome = await rest(tx);
      if (!outcome.ok) throw thrownBy(outcome.error);
      if (dryRun) throw new DryRunDone(outcome);
      return outcome;
    });
  } catch (thrown) {
    if (thrown instanceof DryRunDone) return thrown.outcome;
    throw thrown;
  }
}

/** Runs the handler in a transaction, in which its answer is remembered too. */
const writing = claiming
  .use(({ ctx: { call }, next }) => inTransaction(call, (em) => next({ ctx: { call: { ...call, em } } })))
  .use(async ({ ctx: { call }, meta, next }) => {
    const result = await next();
    if (!result.ok) return result;
    // The database may refuse changes that are not flushed yet; on a dry run too.
    await call.em.flush();
    const success = successOf(call, declared(meta), result.data as HandlerResult<unknown>);
    const { idempotency: handle } = call;
    // Another attempt has taken the key over: this one must leave no trace.
    const held = !handle || (await writeAnswer(call.em, handle, packAnswer(call, declared(meta), handle, success)));
    if (!held) throw inFlight();
    return { ...result, data: success };
  });

/** Runs the handler in no transaction: a workflow commits the effect. */
const sending = claiming.use(async ({ ctx: { call }, meta, next }) => {
  const result = await next();
  if (!result.ok) return result;
  const success = successOf(call, declared(meta), result.data as HandlerResult<unknown>);
  const { idempotency: handle } = call;
  // Changes nothing where the activity has written the answer with the effect.
  if (handle) await writeAnswer(call.em, handle, packAnswer(call, declared(meta), handle, success));
  return { ...result, data: success };
});

const BEHIND_INPUT = { read: reading, write: writing, send: sending } as const;

/** The base procedure of a route: admission, input, and the middlewares of its kind. */
export function procedureFor(definition: RouteDefinition) {
  const parsed = admitted
    .meta(definition)
    .input(parserOf(completeInput(definition.input), definition.output, definition.itemsIn));
  return parsed.concat(BEHIND_INPUT[definition.kind]);
}

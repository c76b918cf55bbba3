import { initTRPC } from "@trpc/server";
import { z } from "zod";
import { JsonText } from "../../db/json.ts";
import { type EntityManager, forTenant } from "../../db/orm.ts";
import { claimFor } from "../../db/pool.ts";
import { limitStatements, PATIENT_MS } from "../../db/statements.ts";
import { transaction } from "../../db/transaction.ts";
import { isUnreachable } from "../../db/unreachable.ts";
import { requireRole, requireScope } from "../../domain/access/access.ts";
import type { Admitted, CallerSummary, HeaderValues } from "../../domain/access/authenticate.ts";
import { claimKey } from "../../domain/access/idempotency.ts";
import { type Edit, EditedMeanwhile, noteEdit } from "../../domain/edits.ts";
import { ApiError } from "../../domain/errors.ts";
import { stableJson } from "../../lib/json-object.ts";
import type { Call, Locals, RequestContext } from "../context.ts";
import { type Answer, answerOf } from "./answer.ts";
import { recordWrite } from "./audit.ts";
import { beforeDeadline } from "./deadline.ts";
import type { HandlerResult, RouteDefinition, RouteKind } from "./definition.ts";
import { refusalFacts, thrownBy, toApiError } from "./failures.ts";
import {
  keyedRequest,
  readIdempotencyKey,
  recallAnswer,
  releaseLater,
  remember,
  settleFailure,
} from "./idempotency.ts";
import { parserOf, partsOf, type RawInput } from "./input.ts";
import { type Answering, Turns } from "./turns.ts";
import { readVersion, VERSION_HEADER } from "./versions.ts";

const t = initTRPC
  .context<Call>()
  .meta<RouteDefinition>()
  .create({
    // For callers by tRPC: REST has an envelope of its own.
    errorFormatter: ({ shape, error, ctx }) => {
      const refusal = toApiError(thrownBy(error));
      const { message, ...facts } = refusalFacts(refusal);
      const { problems } = refusal;
      const { edited } = error.cause instanceof EditedMeanwhile ? error.cause : {};
      return { ...shape, message, data: { ...facts, problems, edited, requestId: ctx?.locals.requestId } };
    },
  });

/** Puts routes, or routers of routes, into one. */
export const router = t.router;

/** The part of a route that is its own; `input` is parsed. */
export type RouteHandler = (call: { ctx: RequestContext; input: unknown }) => Promise<HandlerResult<unknown>>;

/** The headers on every answer to a caller that is known. The X- spellings serve clients that were made for others. */
export function putCallerHeaders(
  headers: Record<string, string>,
  { allowance: { limit, remaining, resetMs }, apiVersion }: CallerSummary,
): void {
  const resetSeconds = Math.ceil(resetMs / 1_000);
  headers["RateLimit-Limit"] = headers["X-RateLimit-Limit"] = `${limit}`;
  headers["RateLimit-Remaining"] = headers["X-RateLimit-Remaining"] = `${remaining}`;
  headers["RateLimit-Reset"] = headers["X-RateLimit-Reset"] = `${resetSeconds}`;
  headers[VERSION_HEADER] = apiVersion;
}

/**
 * Requests of one caller that are under way at once in this process, from before its body is read until its answer has left;
 * those that `isHeavy` have a line of their own.
 */
export const TURNS_OF_A_CALLER = { read: 8, heavy: 1, write: 8, workflow: 16 } as const satisfies Record<
  RouteKind | "heavy",
  number
>;
/** A team has the turns of so many callers, however many keys it uses. */
export const CALLERS_OF_A_TEAM = 2;

const turnsFor = (callers: number) => ({
  read: new Turns(callers * TURNS_OF_A_CALLER.read),
  heavy: new Turns(callers * TURNS_OF_A_CALLER.heavy),
  write: new Turns(callers * TURNS_OF_A_CALLER.write),
  workflow: new Turns(callers * TURNS_OF_A_CALLER.workflow),
});
const CALLER_TURNS = turnsFor(1);
const TEAM_TURNS = turnsFor(CALLERS_OF_A_TEAM);

/** Waits until the caller, and then its team, may have one more request of the kind under way. */
export async function takeTurn(
  kind: keyof typeof TURNS_OF_A_CALLER,
  { caller, tenant }: Pick<Admitted, "caller" | "tenant">,
  answering: Answering,
): Promise<void> {
  await CALLER_TURNS[kind].take(caller.id, answering);
  await TEAM_TURNS[kind].take(tenant.teamId, answering);
}

/** Shows the caller in the request's line of the log. The statements that follow are the team's. */
export function noteCaller(locals: Locals, { tenant, caller, scopes }: Admitted): void {
  claimFor(tenant.teamId);
  locals.scopes = scopes;
  locals.teamId = tenant.teamId;
  if (caller.kind === "api_key") locals.keyId = caller.id;
}

/**
 * Identifies the caller, checks its rights and the headers, and waits until the caller, and then its team, may have one more
 * request of the kind under way: the order is that of refusals.
 */
async function admit(definition: RouteDefinition, ctx: Call) {
  const { headers, locals, answering } = ctx;
  const access = await ctx.authenticate(definition.scope, (summary) => putCallerHeaders(locals.headers, summary));
  noteCaller(locals, access);
  const { caller } = access;
  const version = readVersion(headers, caller.apiVersion);
  locals.headers[VERSION_HEADER] = version;
  const { scope, alsoScope, dryRunScope } = definition;
  if (scope) requireScope(access, scope);
  if (alsoScope) requireScope(access, alsoScope);
  if (definition.role) requireRole(access, definition.role);
  const text = ctx.readDryRun();
  if (text !== undefined && text !== "true" && text !== "false") {
    throw new ApiError("validation_failed", "dry_run must be true or false.", { param: "dry_run" });
  }
  const dryRun = text === "true";
  if (dryRun && !definition.dryRun) {
    throw new ApiError("unsupported_parameter", "There is no dry run of this call.", { param: "dry_run" });
  }
  if (dryRun && dryRunScope) requireScope(access, dryRunScope);
  const idempotencyKey = readIdempotencyKey(headers, definition);
  await takeTurn(definition.isHeavy ? "heavy" : definition.kind, access, answering);
  return { access, version, dryRun, idempotencyKey };
}

/** One step, because tRPC copies the context for each. */
const admitted = (definition: RouteDefinition) =>
  t.procedure.meta(definition).use(({ ctx, next }) => {
    const call = async () => next({ ctx: await admit(definition, ctx) });
    return ctx.deadlineMs === undefined ? call() : beforeDeadline(ctx.deadlineMs, call);
  });

/** Postgres knows no year 0. */
const BEGAN = z.tuple([z.string(), z.iso.datetime().regex(/^(?!0000)/)]);

/** @throws {ApiError} `validation_failed` for a version that cannot be read */
function editOf({ caller }: Admitted, headers: HeaderValues): Edit | null {
  if (caller.kind !== "session") return null;
  const [header] = headers["mailkeel-began"] ?? [];
  if (header === undefined) return { memberId: caller.memberId };
  const { success, data: [id, updatedAt] = ["", ""] } = BEGAN.safeParse(header.split(" "));
  if (!success) throw new ApiError("validation_failed", "Mailkeel-Began is the id of a record and its updated_at.");
  return { memberId: caller.memberId, began: { id, updatedAt } };
}

/** Reads and checks the input, and gives the handler its context. */
const parsed = (definition: RouteDefinition) =>
  admitted(definition)
    .input(parserOf(definition))
    .use(({ ctx, input, next }) => {
      const { deps, locals, access } = ctx;
      const { tenant } = access;
      const { requestId } = locals;
      const { vault, env, temporal, checkWebhookUrl, probeUrl } = deps;
      const { params } = input as Pick<RawInput, "params">;
      const context = {
        ...{ tenant, requestId, vault, env, temporal, checkWebhookUrl, probeUrl },
        em: forTenant(deps.orm.em, tenant),
        edit: editOf(access, ctx.headers),
        log: deps.log.child({ requestId, teamId: tenant.teamId }),
        target: `${definition.method} ${definition.path} ${stableJson(params)}`,
        idempotency: null,
      } satisfies Partial<RequestContext>;
      return next({ ctx: context as typeof context & Pick<RequestContext, "idempotency"> });
    });

/** The result of a step that calls none behind it, as tRPC takes it. */
const resultOf = <Result>(_next: (...args: never[]) => Promise<Result>, data: Answer): Result =>
  ({ ok: true, data, marker: "middlewareMarker" }) as Result;

/** Runs a write once under an Idempotency-Key: claims the key, or replays the answer that is remembered under it. */
const once = (definition: RouteDefinition) =>
  parsed(definition).use(async ({ ctx, next, getRawInput }) => {
    const { idempotencyKey } = ctx;
    // A dry run has no effect that a second request could repeat.
    if (idempotencyKey === null || ctx.dryRun) return next();
    const request = keyedRequest(ctx, idempotencyKey, definition, partsOf(await getRawInput()));
    const claim = await claimKey(ctx.em, request).catch((thrown) => {
      if (isUnreachable(thrown)) void releaseLater(ctx, request);
      throw thrown;
    });
    if (claim.answer) return resultOf(next, await recallAnswer(ctx, definition, request, claim.answer));
    const { handle } = claim;
    const result = await next({ ctx: { idempotency: handle } });
    if (result.ok) return result;
    return resultOf(next, await settleFailure(ctx, definition, handle, thrownBy(result.error)));
  });

/**
 * Makes the checks that must not run in a transaction, then runs the effect in one that also remembers the answer. It is rolled
 * back after a failure and on a dry run.
 */
const writing = (definition: RouteDefinition) =>
  once(definition).use(async ({ ctx, input, next }) => {
    await definition.before?.(ctx, input);
    if (definition.ownCommit && !ctx.dryRun) return next();
    const act = async (em: EntityManager) => {
      if (definition.isPatient) await limitStatements(em, PATIENT_MS);
      await noteEdit(em, ctx.edit);
      const result = await next({ ctx: { em } });
      if (!result.ok) throw thrownBy(result.error);
      return result;
    };
    return transaction(ctx.em, act, { isRolledBack: ctx.dryRun });
  });

/** The procedure of a route. Its result is an `Answer`. */
export function procedureFor(definition: RouteDefinition, handler: RouteHandler) {
  const resolve = async ({ ctx, input }: { ctx: RequestContext; input: unknown }): Promise<Answer> => {
    const result = await handler({ ctx, input });
    // The database may refuse changes that are not flushed yet; on a dry run too.
    if (ctx.em.isInTransaction()) await ctx.em.flush();
    // A payload that is JSON was made of named columns; any other keeps the fields that the schema names, and no others.
    const isMade = "data" in result && !(result.data instanceof JsonText);
    const shown = isMade ? { ...result, data: definition.output.parse(result.data) } : result;
    const answer = answerOf(ctx, definition, shown);
    await recordWrite(ctx, definition, input as RawInput, result);
    await remember(ctx, definition, answer, shown);
    return answer;
  };
  const procedures = {
    read: () => parsed(definition).query(resolve),
    write: () => writing(definition).mutation(resolve),
    // In no transaction: a workflow commits the effect.
    workflow: () => once(definition).mutation(resolve),
  };
  return procedures[definition.kind]();
}

import { type AnyTRPCRouter, callTRPCProcedure } from "@trpc/server";
import { type EntityManager, forTenant, type Tenant } from "../../db/orm.ts";
import { transaction } from "../../db/transaction.ts";
import {
  claimKey,
  type IdempotencyHandle,
  inFlight,
  type KeyedRequest,
  openBody,
  releaseKey,
  type StoredAnswer,
  sealBody,
  writeAnswer,
} from "../../domain/idempotency.ts";
import type { RequestContext } from "../context.ts";
import type { Deps } from "../deps.ts";
import type { Endpoint } from "./adapter.ts";
import { type Answer, type Links, renderError, renderSuccess } from "./envelope.ts";
import { thrownBy, toApiError } from "./failures.ts";
import { isRemembered } from "./idempotency.ts";
import { FinishedAnswer, type HandlerResult, ParsedInput } from "./route.ts";

/** A request that was let in and understood. */
export interface Call {
  endpoint: Endpoint;
  /** Parsed by the endpoint's schema. */
  input: unknown;
  context: Pick<RequestContext, "tenant" | "access" | "requestId" | "target" | "dryRun" | "log">;
  /** The Idempotency-Key it is to be done under, if any. */
  keyed: KeyedRequest | null;
}

/** Ends a dry run's transaction without keeping anything. */
class DryRunDone {
  readonly result: HandlerResult<unknown>;

  constructor(result: HandlerResult<unknown>) {
    this.result = result;
  }
}

/** Runs handlers: in a transaction or none, dry or for good, once per Idempotency-Key. */
export function executor(routes: AnyTRPCRouter, { env, orm, vault, temporal, checkWebhookUrl }: Deps, links: Links) {
  const services = { env, vault, temporal, checkWebhookUrl };
  const transact = <T>(tenant: Tenant, work: (em: EntityManager) => Promise<T>): Promise<T> =>
    transaction(forTenant(orm.em, tenant), work);

  async function invoke(call: Call, em: EntityManager, idempotency: IdempotencyHandle | null) {
    const { endpoint, context, input } = call;
    const ctx: RequestContext = { ...context, ...services, em, idempotency };
    const result: HandlerResult<unknown> = await callTRPCProcedure({
      router: routes,
      path: endpoint.name,
      type: endpoint.type,
      getRawInput: async () => new ParsedInput(input),
      ctx,
      signal: undefined,
      batchIndex: 0,
    }).catch((error) => {
      throw thrownBy(error);
    });
    // What waits in the unit of work may still be refused by the database.
    if (em.isInTransaction()) await em.flush();
    return result;
  }

  /** What the route does before its transaction. */
  async function prepare({ endpoint, context, input }: Call): Promise<void> {
    const em = forTenant(orm.em, context.tenant);
    await endpoint.meta.before?.({ ...context, ...services, em, idempotency: null }, input);
  }

  function render({ endpoint: { meta, type }, context }: Call, result: HandlerResult<unknown>): Answer {
    if (result instanceof FinishedAnswer) return { status: result.status, headers: {}, body: result.body };
    const around = { ...(type === "mutation" ? { dry_run: false } : {}), ...result.meta };
    const body = renderSuccess(context.requestId, result.data, around);
    return { status: result.status ?? meta.status ?? 200, headers: {}, body };
  }

  async function runDry(call: Call): Promise<Answer> {
    const { context, endpoint } = call;
    const { meta } = endpoint;
    await prepare(call);
    const result = await transact(context.tenant, async (em): Promise<HandlerResult<unknown>> => {
      throw new DryRunDone(await invoke(call, em, null));
    }).catch((thrown: unknown) => {
      if (thrown instanceof DryRunDone) return thrown.result;
      throw thrown;
    });
    if (result instanceof FinishedAnswer || !result.impact) {
      throw new Error(`${meta.method} ${meta.path} gave no impact on a dry run`);
    }
    const body = renderSuccess(context.requestId, null, { dry_run: true, impact: result.impact });
    return { status: 200, headers: {}, body };
  }

  function toStore(
    call: Call,
    handle: IdempotencyHandle,
    result: HandlerResult<unknown>,
    answer: Answer,
  ): StoredAnswer {
    if (result instanceof FinishedAnswer && result.stored) return result.stored;
    const { bodyKind = "plain" } = call.endpoint.meta;
    const body = bodyKind === "encrypted" ? sealBody(vault, handle, answer.body) : answer.body;
    return { status: answer.status, body, bodyKind };
  }

  async function replay(call: Call, keyed: KeyedRequest, stored: StoredAnswer): Promise<Answer> {
    const headers = { "Idempotent-Replayed": "true" };
    const { status, body, bodyKind } = stored;
    if (bodyKind === "plain") return { status, headers, body };
    if (bodyKind === "encrypted") {
      return { status, headers, body: openBody(vault, { ...keyed.tenant, keyHash: keyed.keyHash }, body) };
    }
    const { renderStored, method, path } = call.endpoint.meta;
    if (!renderStored) throw new Error(`${method} ${path} cannot render what it stored`);
    const em = forTenant(orm.em, keyed.tenant);
    const ctx: RequestContext = { ...call.context, ...services, em, idempotency: null };
    return { status, headers, body: await renderStored(ctx, stored) };
  }

  /** Runs a handler that holds the key, and remembers its success. */
  async function runHolding(call: Call, handle: IdempotencyHandle): Promise<Answer> {
    const { tenant } = call.context;
    await prepare(call);
    if (call.endpoint.meta.answer === "handler") {
      const em = forTenant(orm.em, tenant);
      const result = await invoke(call, em, handle);
      const answer = render(call, result);
      // Most often it is written already, in the transaction of the effect; then this changes nothing.
      await writeAnswer(em, handle, toStore(call, handle, result, answer));
      return answer;
    }
    return transact(tenant, async (em) => {
      const result = await invoke(call, em, handle);
      const answer = render(call, result);
      // Another attempt took the key over: this one must leave no trace.
      if (!(await writeAnswer(em, handle, toStore(call, handle, result, answer)))) throw inFlight();
      return answer;
    });
  }

  /** What becomes of the key when the handler refused or failed; the transaction is rolled back by now. */
  async function settleFailure(call: Call, handle: IdempotencyHandle, error: unknown): Promise<Answer> {
    const refusal = toApiError(error);
    const { context, endpoint } = call;
    const byHandler = endpoint.meta.answer === "handler";
    const em = forTenant(orm.em, context.tenant);
    if (isRemembered(refusal)) {
      const answer = renderError(context.requestId, refusal, links);
      const stored = { status: answer.status, body: answer.body, bodyKind: "plain" as const };
      if (!(await writeAnswer(em, handle, stored)) && !byHandler) throw inFlight();
      return answer;
    }
    // After a failure a retry must find the workflow and the update that are perhaps under way: the same attempt.
    const next = byHandler && refusal.status >= 500 ? "same" : "new";
    await releaseKey(em, handle, next).catch((cause) => context.log.warn({ err: cause }, "key not released"));
    throw error;
  }

  /** Does what the request asks, or replays what it came to. */
  return async function execute(call: Call): Promise<Answer> {
    const { endpoint, context, keyed } = call;
    const { tenant, dryRun } = context;
    if (dryRun) return runDry(call);
    if (keyed) {
      const claim = await claimKey(orm.em, keyed);
      if (claim.outcome === "replay") return replay(call, keyed, claim.answer);
      return runHolding(call, claim.handle).catch((error) => settleFailure(call, claim.handle, error));
    }
    await prepare(call);
    const alone = endpoint.type === "query" || endpoint.meta.answer === "handler";
    const result = alone
      ? await invoke(call, forTenant(orm.em, tenant), null)
      : await transact(tenant, (em) => invoke(call, em, null));
    return render(call, result);
  };
}

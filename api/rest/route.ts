import { initTRPC } from "@trpc/server";
import { z } from "zod";
import type { Scope } from "../../domain/access/scopes.ts";
import type { ErrorCode } from "../../domain/errors.ts";
import type { BodyKind, StoredAnswer } from "../../domain/idempotency.ts";
import { MAX_ID_LENGTH } from "../../domain/ids.ts";
import type { RequestContext } from "../context.ts";

/** What a write would do or did, as `meta.impact` shows it on a dry run. */
export interface Impact {
  object: "impact";
  would_create: number;
  would_update: number;
  would_delete: number;
  affected_count: number;
  affected_ids: string[];
  quota: QuotaImpact | null;
}

/** Where a write leaves the team against a limit. */
export interface QuotaImpact {
  kind: "contact_slots" | "email_credits";
  amount: number;
  used: number;
  limit: number;
  remaining: number;
}

/** An impact with everything not named at nothing; `affected_count` is the sum of the three unless given. */
export function impact(effect: Partial<Omit<Impact, "object">>): Impact {
  const { would_create = 0, would_update = 0, would_delete = 0 } = effect;
  return {
    object: "impact",
    would_create,
    would_update,
    would_delete,
    affected_count: effect.affected_count ?? would_create + would_update + would_delete,
    affected_ids: effect.affected_ids ?? [],
    quota: effect.quota ?? null,
  };
}

/** A handler's success: the payload and what goes around it. */
export interface Ok<T> {
  data: T;
  impact?: Impact;
  /** Overrides the route's status. */
  status?: number;
  /** Joins `meta`. */
  meta?: Record<string, unknown>;
}

/** A success with this payload. */
export const ok = <T>(data: T, around: Omit<Ok<T>, "data"> = {}): Ok<T> => ({ data, ...around });

/** A whole answer, sent as it is: for a route whose answer is written elsewhere, in the transaction of its effect. */
export class FinishedAnswer {
  readonly status: number;
  /** JSON text. */
  readonly body: string;
  /** How it is to be remembered, where that differs from what is sent. */
  readonly stored: StoredAnswer | undefined;

  constructor(status: number, body: string, stored?: StoredAnswer) {
    this.status = status;
    this.body = body;
    this.stored = stored;
  }
}

export type Method = "GET" | "POST" | "PATCH" | "PUT" | "DELETE";

/** What a route declares; the adapter and the OpenAPI document read it. */
export interface RouteMeta {
  method: Method;
  /** Below the base path, parameters in braces: `/lists/{listId}`. */
  path: `/${string}`;
  /** Of a success; 200 unless given. */
  status?: number;
  /** What the key must hold; null for none. */
  scope: Scope | null;
  /** Whether an Idempotency-Key acts here: `optional` on writes, `none` on GET and DELETE unless given. */
  idempotency?: "none" | "optional" | "required";
  /** Takes `?dry_run=true`; the handler must then give an impact. */
  dryRun?: boolean;
  /** What a dry run needs besides `scope`. */
  readScope?: Scope;
  /**
   * `adapter`: the handler runs in the adapter's transaction, in which its answer is remembered too.
   * `handler`: it runs in none; it, or whoever it hands `ctx.idempotency` to, writes the answer with `writeAnswer`.
   */
  answer?: "adapter" | "handler";
  /** How an answer is remembered: `encrypted` when it holds a secret. `plain` unless given. */
  bodyKind?: BodyKind;
  /** Recomputes the body of a remembered answer of kind `preview`. */
  renderStored?: (ctx: RequestContext, answer: StoredAnswer) => string | Promise<string>;
  summary: string;
  /** The codes it can answer beyond those any route can. */
  errors?: readonly ErrorCode[];
}

/** `z.strictObject({ params, query, body })`, each of them a strict object itself. */
export type InputSchema = z.ZodObject<{ params?: z.ZodType; query?: z.ZodType; body?: z.ZodType }>;

/** What a built procedure carries: the declaration and its schemas. */
export interface RouteDefinition extends RouteMeta {
  input: InputSchema;
  /** Of `data`. */
  output: z.ZodType;
  /** Runs before the handler's transaction is opened; `input` is what the route's schema made of it. */
  before?: (ctx: RequestContext, input: unknown) => Promise<void>;
}

/** Input the adapter has parsed already: a schema with transforms cannot be run twice. */
export class ParsedInput {
  readonly value: unknown;

  constructor(value: unknown) {
    this.value = value;
  }
}

const t = initTRPC.context<RequestContext>().meta<RouteDefinition>().create();

/** Puts routes, or routers of routes, under one roof. */
export const router = t.router;

/** What a handler answers. */
export type HandlerResult<T> = Ok<T> | FinishedAnswer;

type Handler<Input, Data> = (call: { ctx: RequestContext; input: Input }) => Promise<HandlerResult<Data>>;
type Check<Input> = (call: { ctx: RequestContext; input: Input }) => Promise<void>;

/**
 * Declares a route: its contract, then its schemas, then its handler.
 *
 *     route({ method: "GET", path: "/lists/{listId}", scope: "lists:read", summary: "Retrieve a list" })
 *       .input(z.strictObject({ params: z.strictObject({ listId: idParam }) }))
 *       .output(list)
 *       .query(async ({ ctx, input }) => ok(presentList(await findList(ctx.em, input.params.listId))));
 */
export function route(meta: RouteMeta) {
  return {
    input: <I extends InputSchema>(input: I) => ({
      output: <O extends z.ZodType>(output: O) => {
        const parse = (raw: unknown): unknown => (raw instanceof ParsedInput ? raw.value : input.parse(raw));
        const run = async (handler: Handler<z.output<I>, z.input<O>>, ctx: RequestContext, parsed: unknown) => {
          const result = await handler({ ctx, input: parsed as z.output<I> });
          // What the schema does not name does not go out; a dry run shows no data at all.
          return result instanceof FinishedAnswer || ctx.dryRun
            ? result
            : { ...result, data: output.parse(result.data) };
        };
        const handledBy = (definition: RouteDefinition) => {
          const procedure = t.procedure.meta(definition).input(parse);
          return {
            /** A read: no transaction, nothing remembered. */
            query: (handler: Handler<z.output<I>, z.input<O>>) =>
              procedure.query(({ ctx, input }) => run(handler, ctx, input)),
            /** A write. */
            mutation: (handler: Handler<z.output<I>, z.input<O>>) =>
              procedure.mutation(({ ctx, input }) => run(handler, ctx, input)),
          };
        };
        return {
          ...handledBy({ ...meta, input, output }),
          /**
           * What must not be waited for in a transaction, such as a look-up in the DNS. Runs on a dry run too, never when
           * an answer is replayed; what it throws is answered like a refusal of the handler. It may have to be decided
           * anew in the transaction.
           */
          before: (check: Check<z.output<I>>) =>
            handledBy({
              ...meta,
              input,
              output,
              before: (ctx, parsed) => check({ ctx, input: parsed as z.output<I> }),
            }),
        };
      },
    }),
  };
}

/** An id in a path. What no id can look like is still only not found. */
export const idParam = z.string().min(1).max(MAX_ID_LENGTH);

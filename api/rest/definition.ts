import { z } from "zod";
import type { Role } from "../../db/entities/team.ts";
import type { JsonText } from "../../db/json.ts";
import type { Scope } from "../../domain/access/scopes.ts";
import type { ErrorCode } from "../../domain/errors.ts";
import type { RequestContext } from "../context.ts";
import type { Impact } from "./impact.ts";

/** A list of scopes, any one of which is enough. */
export type AnyScope = readonly [Scope, ...Scope[]];

/** The success of a handler: the payload, and fields for the envelope around it. */
export interface Ok<T> {
  data: T | JsonText<T>;
  impact?: Impact;
  /** Joins `meta`. */
  meta?: Record<string, unknown>;
  /** Remembered under the Idempotency-Key instead of the payload, which the route's `recall` makes from it. */
  facts?: unknown;
  /** Scopes, one of which the request needed besides the route's: a replay needs one of them too. Not beside `facts`. */
  neededScopes?: AnyScope | undefined;
  /** Where the transaction of the effect has remembered the answer: the id of its request, which may be an earlier one. */
  requestId?: string;
}

/** The result of a dry run that has no payload to show. */
export interface ImpactOnly {
  impact: Impact;
}

export type HandlerResult<T> = Ok<T> | ImpactOnly;

export const ok = <T>(data: T | JsonText<T>, around: Omit<Ok<T>, "data"> = {}): Ok<T> => ({ data, ...around });

export type Method = "GET" | "POST" | "PATCH" | "PUT" | "DELETE";

/** How an operation that follows gets its parameters from this one, in runtime expressions of OpenAPI. */
export interface RouteLink {
  description: string;
  parameters: Readonly<Record<string, string>>;
}

/** The method and the path of a route: `GET /lists/{listId}`. */
export type RouteTarget = `${Method} /${string}`;

/** The declaration of a route, as it is written. */
export interface RouteMeta {
  /** The status of a success; 200 unless given. */
  status?: number;
  scope: Scope | null;
  /** A second scope that the key must hold. */
  alsoScope?: Scope;
  /** The least role of the member, on a procedure that the console alone has. */
  role?: Role;
  /** Whether an Idempotency-Key acts here: `optional` on writes, `none` on GET and DELETE unless given. */
  idempotency?: "none" | "optional" | "required";
  /** Takes `?dry_run=true`, as every write with a scope unless given; the handler must then give an impact. */
  dryRun?: boolean;
  /**
   * An array of the body whose items the handler parses one by one, by `parseItem`: a bad one does not refuse the others.
   */
  itemsIn?: string;
  /** Of a write: its handler commits the effect, with the answer to remember, unless it is a dry run. */
  ownCommit?: boolean;
  /** Of a write: its statements may take as long as its answer, be it for the locks of others or for many rows. */
  isPatient?: boolean;
  /** It may take seconds of Postgres, or an answer as long as 2 MiB, so that fewer of them are under way at once. */
  isHeavy?: boolean;
  /** Entries of the audit log, one for each success unless given: the first of a day for an actor and a record, or none. A read has none unless `daily`. */
  audit?: "daily" | "none";
  /** The answer holds a secret: it is remembered encrypted. */
  secret?: boolean;
  /** Makes the payload of a remembered answer from the facts that were remembered in its place; they are the payload unless given. */
  recall?: (ctx: RequestContext, facts: unknown) => unknown;
  /** The name of the operation in the OpenAPI document and in clients: a verb and its object. It is never changed. */
  operationId: string;
  /** A few words, without a full stop. */
  summary: string;
  /** The operation and its rules, in Markdown. What every operation does alike is added by the document. */
  description: string;
  /** Operations that follow from a success, by operationId, besides those on a record that it created. */
  links?: Readonly<Record<string, RouteLink>>;
  /** Of fields that clients send although the body has none: how else their purpose is reached. */
  elsewhere?: Readonly<Record<string, string>>;
  /** The body that the document asks for, where the route takes others to refuse them with a code of their own. */
  documentedBody?: z.ZodType;
  /** The codes it can answer beyond those any route can. */
  errors?: readonly ErrorCode[];
}

export const paragraphs = (...texts: readonly string[]): string => texts.join("\n\n");

/** `z.strictObject({ params, query, body })`, each of them a strict object itself. */
export type InputSchema = z.ZodObject<{ params?: z.ZodType; query?: z.ZodType; body?: z.ZodType }>;

/**
 * Which base procedure serves a route: `read` opens no transaction, `write` runs the handler in one, and for `workflow` a
 * workflow commits the effect.
 */
export type RouteKind = "read" | "write" | "workflow";

/** The meta of a built procedure: the declaration with its defaults, and its schemas. */
export interface RouteDefinition extends RouteMeta {
  method: Method;
  /** Below the base path, parameters in braces: `/lists/{listId}`. */
  path: `/${string}`;
  kind: RouteKind;
  input: InputSchema;
  /** The schema of `data`. */
  output: z.ZodType;
  /** Of a write: runs before the handler's transaction is opened; `input` is parsed. */
  before: ((ctx: RequestContext, input: unknown) => Promise<void>) | undefined;
  idempotency: "none" | "optional" | "required";
  dryRun: boolean;
  /** The scope that only a dry run needs, besides `scope`: the resource's `:read`. */
  dryRunScope: Scope | null;
}

export function defineRoute(
  target: RouteTarget,
  meta: RouteMeta,
  built: Pick<RouteDefinition, "kind" | "input" | "output" | "before">,
): RouteDefinition {
  const [method, path] = target.split(" ") as [Method, RouteDefinition["path"]];
  const { scope } = meta;
  const dryRun = meta.dryRun ?? (method !== "GET" && scope !== null);
  return {
    idempotency: method === "GET" || method === "DELETE" ? "none" : "optional",
    ...meta,
    ...built,
    method,
    path,
    dryRun,
    dryRunScope: dryRun && scope !== null ? (scope.replace(/:\w+$/, ":read") as Scope) : null,
  };
}

export const answersList = ({ output }: Pick<RouteDefinition, "output">): boolean => output instanceof z.ZodArray;

export function queryNames({ input }: Pick<RouteDefinition, "input">): string[] {
  const { query } = input.shape;
  return query && "shape" in query ? Object.keys(query.shape as object) : [];
}

/** Whether the payload of a route is an array, and it is read in pages, by `cursor`. */
export const isPaged = (definition: Pick<RouteDefinition, "input">): boolean =>
  queryNames(definition).includes("cursor");

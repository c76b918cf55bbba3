import type { TRPCMutationProcedure, TRPCQueryProcedure } from "@trpc/server";
import { z } from "zod";
import type { Role } from "../../db/entities/team.ts";
import type { RequestContext } from "../context.ts";
import type { Answer } from "../rest/answer.ts";
import { defineRoute, type InputSchema, type RouteDefinition, type RouteMeta } from "../rest/definition.ts";
import { procedureFor, type RouteHandler } from "../rest/procedures.ts";

/** The schema of an input without any part. */
export const noInput = z.strictObject({});
/** The schema of an input that is one object. */
export const bodyOf = <S extends z.ZodType>(body: S) => z.strictObject({ body });

interface Declaration<I extends InputSchema> {
  /** The least role that may call it. */
  role: Role;
  input: I;
  /** Its own transactions, or none at all: it waits for other servers, or for many rows. */
  ownCommit?: boolean;
  /** As `RouteMeta.isPatient`. */
  isPatient?: boolean;
  /** As `RouteMeta.isHeavy`. */
  isHeavy?: boolean;
  /** As `RouteMeta.audit`. */
  audit?: NonNullable<RouteMeta["audit"]>;
  /** The answer holds a secret. */
  secret?: boolean;
}

type Handler<I extends InputSchema, Data> = (call: { ctx: RequestContext; input: z.output<I> }) => Promise<Data>;
interface Types<I extends InputSchema, Data> {
  meta: RouteDefinition;
  input: z.input<I>;
  output: Answer<Data>;
}

function build<I extends InputSchema, Data>(
  kind: "read" | "write",
  { input, ...rest }: Declaration<I>,
  handler: Handler<I, Data>,
): unknown {
  // No document shows these.
  const texts = { operationId: "", summary: "", description: "" };
  const meta: RouteMeta = { scope: null, dryRun: false, ...rest, ...texts };
  const target = kind === "read" ? "GET /" : "POST /";
  // The client gets the type of the handler's result.
  const definition = defineRoute(target, meta, { kind, input, output: z.unknown(), before: undefined });
  const answer = async (call: { ctx: RequestContext; input: z.output<I> }) => ({ data: await handler(call) });
  return procedureFor(definition, answer as RouteHandler);
}

/** Declares a read that the console alone has. Every step before its handler is that of a REST route. */
export const consoleQuery = <I extends InputSchema, Data>(declaration: Declaration<I>, handler: Handler<I, Data>) =>
  build("read", declaration, handler) as TRPCQueryProcedure<Types<I, Data>>;

/** The same of a write. Its handler runs in a transaction, unless `ownCommit`. */
export const consoleMutation = <I extends InputSchema, Data>(declaration: Declaration<I>, handler: Handler<I, Data>) =>
  build("write", declaration, handler) as TRPCMutationProcedure<Types<I, Data>>;

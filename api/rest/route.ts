import type { TRPCMutationProcedure, TRPCQueryProcedure } from "@trpc/server";
import { z } from "zod";
import { exampleId, type IdKind, MAX_ID_LENGTH } from "../../domain/ids.ts";
import type { RequestContext } from "../context.ts";
import type { Answer } from "./answer.ts";
import {
  defineRoute,
  type HandlerResult,
  type InputSchema,
  type RouteDefinition,
  type RouteKind,
  type RouteMeta,
  type RouteTarget,
} from "./definition.ts";
import { procedureFor, type RouteHandler } from "./procedures.ts";

export { ok, paragraphs } from "./definition.ts";
export { deleteImpact, impact, updateImpact } from "./impact.ts";
export { router } from "./procedures.ts";

type Handler<Input, Data> = (call: { ctx: RequestContext; input: Input }) => Promise<HandlerResult<Data>>;
type Check<Input> = (call: { ctx: RequestContext; input: Input }) => Promise<void>;

/** The types of a procedure, as a tRPC client sees them. */
interface ProcedureTypes<I extends InputSchema, O extends z.ZodType> {
  meta: RouteDefinition;
  input: z.input<I>;
  output: Answer<z.output<O>>;
}

/** Declares a route: its method and path, its meta, then its schemas, then its handler. Example: `retrieve` in api/lists/routes.ts. */
export function route(target: RouteTarget, meta: RouteMeta) {
  return {
    input: <I extends InputSchema>(input: I) => ({
      output: <O extends z.ZodType>(output: O) => {
        type OwnHandler = Handler<z.output<I>, z.input<O>>;
        type Types = ProcedureTypes<I, O>;
        // The types are lost between the generics; the procedure parses its input with this very schema.
        const procedure = (kind: RouteKind, handler: OwnHandler, before?: RouteDefinition["before"]): unknown =>
          procedureFor(defineRoute(target, meta, { kind, input, output, before }), handler as RouteHandler);
        return {
          /** A read: no transaction, nothing is remembered. */
          query: (handler: OwnHandler) => procedure("read", handler) as TRPCQueryProcedure<Types>,
          /** A write: one transaction holds the effect and the remembered answer. */
          mutation: (handler: OwnHandler) => procedure("write", handler) as TRPCMutationProcedure<Types>,
          /** A write whose effect a workflow commits; the activity that does so may write the answer. */
          workflow: (handler: OwnHandler) => procedure("workflow", handler) as TRPCMutationProcedure<Types>,
          /**
           * Checks that must not run in a transaction, such as a DNS look-up. They run on a dry run too, never when an
           * answer is replayed. What they throw is answered like a refusal of the handler.
           */
          before: (check: Check<z.output<I>>) => ({
            mutation: (handler: OwnHandler) =>
              procedure("write", handler, (ctx, parsed) =>
                check({ ctx, input: parsed as z.output<I> }),
              ) as TRPCMutationProcedure<Types>,
          }),
        };
      },
    }),
  };
}

/** An id in a path, 1 to 64 characters: a longer one is `validation_failed`, any other that names no record `not_found`. */
export const idParam = z.string().min(1).max(MAX_ID_LENGTH);

/** The same of a known kind, as the document shows it. */
export const idParamOf = (kind: IdKind, description: string) =>
  idParam.meta({ description, examples: [exampleId(kind)] });

import { z } from "zod";
import { exampleId, type IdKind, MAX_ID_LENGTH } from "../../domain/ids.ts";
import type { RequestContext } from "../context.ts";
import type { HandlerResult, InputSchema, RouteDefinition, RouteKind, RouteMeta } from "./definition.ts";
import { procedureFor } from "./procedures.ts";

export { deleteImpact, impact, ok, paragraphs, updateImpact } from "./definition.ts";
export { router } from "./procedures.ts";

type Handler<Input, Data> = (call: { ctx: RequestContext; input: Input }) => Promise<HandlerResult<Data>>;
type Check<Input> = (call: { ctx: RequestContext; input: Input }) => Promise<void>;

/** Keeps the fields of a handler's payload that the route's schema names, and no others. */
function outputOf(schema: z.ZodType) {
  return (result: unknown): unknown => {
    const given = result as HandlerResult<unknown>;
    return "data" in given ? { ...given, data: schema.parse(given.data) } : given;
  };
}

/**
 * Declares a route: its meta, then its schemas, then its handler.
 * Example: `retrieve` in api/lists/routes.ts.
 */
export function route(meta: RouteMeta) {
  return {
    input: <I extends InputSchema>(input: I) => ({
      output: <O extends z.ZodType>(output: O) => {
        type RouteHandler = Handler<z.output<I>, z.input<O>>;
        const handledBy = (before?: RouteDefinition["before"]) => {
          const procedure = (kind: RouteKind) =>
            procedureFor({ ...meta, kind, input, output, ...(before && { before }) }).output(outputOf(output));
          // The input's type is lost between the two generics; the procedure has parsed it with this very schema.
          const call = (handler: RouteHandler, ctx: RequestContext, parsed: unknown) =>
            handler({ ctx, input: parsed as z.output<I> });
          return {
            /** A read: no transaction, nothing is remembered. */
            query: (handler: RouteHandler) =>
              procedure("read").query(({ ctx, input }) => call(handler, ctx.call, input)),
            /** A write: one transaction holds the effect and the remembered answer. */
            mutation: (handler: RouteHandler) =>
              procedure("write").mutation(({ ctx, input }) => call(handler, ctx.call, input)),
            /** A write whose effect a workflow commits; the activity that does so may write the answer. */
            workflow: (handler: RouteHandler) =>
              procedure("workflow").mutation(({ ctx, input }) => call(handler, ctx.call, input)),
          };
        };
        return {
          ...handledBy(),
          /**
           * Checks that must not run in a transaction, such as a DNS look-up. They run on a dry run too, never when an
           * answer is replayed. What they throw is answered like a refusal of the handler. The handler may have to
           * check again inside the transaction.
           */
          before: (check: Check<z.output<I>>) =>
            handledBy((ctx, parsed) => check({ ctx, input: parsed as z.output<I> })),
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

import { z } from "zod";
import { exampleId, type IdKind, MAX_ID_LENGTH } from "../../domain/ids.ts";
import type { RequestContext } from "../context.ts";
import type { HandlerResult, InputSchema, RouteDefinition, RouteKind, RouteMeta } from "./definition.ts";
import { procedureFor, type RouteHandler } from "./procedures.ts";

export { deleteImpact, impact, ok, paragraphs, updateImpact } from "./definition.ts";
export { router } from "./procedures.ts";

type Handler<Input, Data> = (call: { ctx: RequestContext; input: Input }) => Promise<HandlerResult<Data>>;
type Check<Input> = (call: { ctx: RequestContext; input: Input }) => Promise<void>;

/**
 * Declares a route: its meta, then its schemas, then its handler.
 * Example: `retrieve` in api/lists/routes.ts.
 */
export function route(meta: RouteMeta) {
  return {
    input: <I extends InputSchema>(input: I) => ({
      output: <O extends z.ZodType>(output: O) => {
        type OwnHandler = Handler<z.output<I>, z.input<O>>;
        const handledBy = (before?: RouteDefinition["before"]) => {
          // The input's type is lost between the two generics; the procedure has parsed it with this very schema.
          const procedure = (kind: RouteKind, handler: OwnHandler, own: Pick<RouteDefinition, "isAtomic"> = {}) =>
            procedureFor({ ...meta, kind, input, output, ...(before && { before }), ...own }, handler as RouteHandler);
          return {
            /** A read: no transaction, nothing is remembered. */
            query: (handler: OwnHandler) => procedure("read", handler).query(),
            /**
             * A write: one transaction holds the effect and the remembered answer.
             * @param isAtomic see `RouteDefinition`
             */
            mutation: (handler: OwnHandler, isAtomic?: (parsed: z.output<I>) => boolean) =>
              procedure(
                "write",
                handler,
                isAtomic && { isAtomic: (parsed) => isAtomic(parsed as z.output<I>) },
              ).mutation(),
            /** A write whose effect a workflow commits; the activity that does so may write the answer. */
            workflow: (handler: OwnHandler) => procedure("workflow", handler).mutation(),
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

import type { ErrorRequestHandler } from "express";
import type { Logger } from "pino";
import { isUnawaited } from "../../db/unreachable.ts";
import type { Locals } from "../context.ts";
import { type HttpAnswer, type Links, renderError } from "./envelope.ts";
import { toApiError } from "./failures.ts";
import { localsOf, respond } from "./http.ts";
import { ReplayedRefusal } from "./idempotency.ts";

interface Facilities {
  log: Logger;
  links: Links;
}

/** The answer to a request that threw. Its code goes into the request's line of the log, and a failure into a line of its own. */
export function refusalOf(thrown: unknown, locals: Locals, { log, links }: Facilities): HttpAnswer {
  const error = toApiError(thrown);
  locals.code = error.code;
  const { requestId, route, teamId } = locals;
  // Clients that leave must not fill the log.
  if (error.status >= 500 && !isUnawaited(error)) log.error({ requestId, route, teamId, err: thrown }, error.code);
  const resourceId = locals.scopes?.some((held) => held === error.record?.scope) ? error.record?.id : undefined;
  return renderError(error instanceof ReplayedRefusal ? error.requestId : requestId, error, links, resourceId);
}

export const refusalHandler =
  (facilities: Facilities): ErrorRequestHandler =>
  (thrown, _req, res, _next) =>
    respond(res, refusalOf(thrown, localsOf(res), facilities));

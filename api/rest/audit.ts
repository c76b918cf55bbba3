import { JsonText } from "../../db/json.ts";
import { actorOf, recordAct } from "../../domain/audit/record.ts";
import { idsIn } from "../../domain/ids.ts";
import type { RequestContext } from "../context.ts";
import type { HandlerResult, RouteDefinition } from "./definition.ts";
import type { RawInput } from "./input.ts";

/** Of the records of people, of which a program writes any number: the first such act of a key in a day stands for all. */
const OF_PEOPLE = /\/(?:subscribers|contacts|suppressions)\b/;

/** The word of the audit log: the operation's id, or the place of a procedure of the console. */
export const actOf = ({ operationId, path }: Pick<RouteDefinition, "operationId" | "path">): string =>
  operationId || path.slice("/console/".length);

/** The record that an act was about: the last of its path, the one that it made, or the first that its body or query names. */
function objectOf({ params, query, body }: RawInput, result: HandlerResult<unknown>): string | undefined {
  const made = Object("data" in result && result.data instanceof JsonText ? result.data.toJSON() : Object(result).data);
  return idsIn(params).at(-1) ?? idsIn({ id: made.id })[0] ?? idsIn(body)[0] ?? idsIn(query)[0];
}

/**
 * Writes the entry of a write that has changed something: in its transaction, or, where its handler has committed, before its
 * answer. The effect of a workflow has an entry by its activity; a write that a VIEWER may call changes nothing. A read that takes
 * people out has one a day.
 */
export async function recordWrite(
  { em, tenant, access, requestId, dryRun }: RequestContext,
  definition: RouteDefinition,
  input: RawInput,
  result: HandlerResult<unknown>,
): Promise<void> {
  const { kind, role, audit, path } = definition;
  const count = result.impact?.affected_count ?? null;
  const isRecorded = kind === "write" ? role !== "VIEWER" && audit !== "none" : audit === "daily";
  if (!isRecorded || dryRun || count === 0) return;
  // An export names the kind of record that it takes out.
  const of = kind === "read" && input.query["of"] ? `.${input.query["of"]}` : "";
  const act = { ...actorOf(access.caller), act: actOf(definition) + of, requestId };
  if (act.way === "API_KEY" && OF_PEOPLE.test(path))
    return recordAct(em, tenant, { ...act, objectId: null, count: null }, true);
  const team = path.startsWith("/console/team.") ? tenant.teamId : null;
  await recordAct(em, tenant, { ...act, objectId: objectOf(input, result) ?? team, count }, audit === "daily");
}

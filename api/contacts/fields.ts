import { lockFieldTypes } from "../../domain/audience/contact-fields.ts";
import { type FieldChanges, type FieldTypes, fieldProblem } from "../../domain/audience/field-values.ts";
import { ApiError } from "../../domain/errors.ts";
import type { RequestContext } from "../context.ts";
import { MAX_PROBLEMS } from "../rest/input.ts";
import { paramName } from "../rest/messages.ts";

/**
 * Checks the custom fields of a body against those that are declared.
 * @param path of the fields in the body
 * @throws {ApiError} `validation_failed`, naming the first one at fault
 */
export function checkFields(types: FieldTypes, given: FieldChanges, path: readonly PropertyKey[]): void {
  const problems = Object.entries(given).flatMap(([name, value]) => {
    const problem = fieldProblem(types, name, value);
    return problem === undefined ? [] : [{ param: paramName([...path, name]), problem }];
  });
  const [first] = problems;
  if (!first) return;
  const named = problems.slice(0, MAX_PROBLEMS).map(({ param, problem }) => `${param} ${problem}.`);
  const others = problems.length - named.length;
  const rest = others > 0 ? [`${others} more are not named.`] : [];
  if (!Object.keys(given).every((name) => types.has(name))) {
    rest.push(`The team's custom fields: ${[...types.keys()].sort().join(", ") || "none"}.`);
  }
  throw new ApiError("validation_failed", [...named, ...rest].join(" "), { param: first.param });
}

/** The same for the body of one contact; without custom fields it asks nothing of the database. */
export async function checkContactFields(
  { em, tenant }: Pick<RequestContext, "em" | "tenant">,
  given: FieldChanges = {},
): Promise<void> {
  if (Object.keys(given).length > 0) checkFields(await lockFieldTypes(em, tenant), given, ["fields"]);
}

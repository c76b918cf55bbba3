import { STATUS_CODES } from "node:http";
import { ERRORS, type ErrorCode } from "../../domain/errors.ts";
import { answersList, isPaged, queryNames, type RouteDefinition } from "../rest/definition.ts";
import { isRememberedCode } from "../rest/idempotency.ts";
import { errorAnswer } from "./components.ts";
import { COMMON_HEADERS, type HeaderName, headersOf } from "./headers.ts";
import type { JsonSchema, Schemas } from "./schemas.ts";

/** Refusals of the caller, of the message and of the service, which every operation may answer. */
export const OF_EVERY_OPERATION: readonly ErrorCode[] = [
  "validation_failed",
  "unsupported_parameter",
  "invalid_json",
  "version_unsupported",
  "api_key_missing",
  "api_key_malformed",
  "api_key_invalid",
  "api_key_expired",
  "api_key_revoked",
  "api_key_environment_mismatch",
  "invalid_token",
  "plan_upgrade_required",
  "role_insufficient",
  "forbidden_scope_pair",
  "request_timeout",
  "payload_too_large",
  "unsupported_media_type",
  "rate_limit_exceeded",
  "internal_error",
  "service_unavailable",
];

/** The extension that names codes: of every operation at the root of the document, the others at each operation. */
export const ERROR_CODES = "x-error-codes";

/** Those of every list, which has codes of its own for `expand` and for a filter of another list. */
const OF_LISTS: readonly ErrorCode[] = ["filter_unsupported", "expand_unsupported"];

const RETRY_STATUSES: ReadonlySet<number> = new Set([409, 429, 503]);

const inOrder = (codes: ReadonlySet<ErrorCode>): ErrorCode[] =>
  (Object.keys(ERRORS) as ErrorCode[]).filter((code) => codes.has(code));

/** The codes that an operation may answer, those of every operation too, in the order of the registry. */
export function errorsOf(definition: RouteDefinition): ErrorCode[] {
  const { scope, errors = [], input } = definition;
  const policy = definition.idempotency;
  const codes = new Set<ErrorCode>([...OF_EVERY_OPERATION, ...errors]);
  if (scope !== null) codes.add("insufficient_scope");
  if (input.shape.params) codes.add("not_found");
  if (answersList(definition)) for (const code of OF_LISTS) codes.add(code);
  if (isPaged(definition)) codes.add("cursor_invalid");
  if (queryNames(definition).includes("sort")) codes.add("sort_unsupported");
  if (policy === "required") codes.add("idempotency_key_required");
  if (policy !== "none") codes.add("idempotency_key_reused").add("request_in_flight").add("person_erased");
  return inOrder(codes);
}

/** The name of the answer with a status among the components, such as `NotFound`. */
export const answerName = (code: ErrorCode): string =>
  (STATUS_CODES[ERRORS[code].status] ?? String(ERRORS[code].status)).replaceAll(/[^A-Za-z]/g, "");

/** The answers that are no success, by name: one for each status. An operation says itself which of the codes it has. */
export function errorAnswers(schemas: Schemas, definitions: readonly RouteDefinition[]): Record<string, JsonSchema> {
  const used = new Set(definitions.flatMap(errorsOf));
  const answerOf = (codes: readonly ErrorCode[]): JsonSchema => {
    const headers: HeaderName[] = [...COMMON_HEADERS];
    // A token that lacks a scope is challenged too (RFC 6750, 3.1).
    if (codes.includes("invalid_token") || codes.includes("insufficient_scope")) headers.push("WWW-Authenticate");
    if (codes.some((code) => RETRY_STATUSES.has(ERRORS[code].status))) headers.push("Retry-After");
    if (codes.some(isRememberedCode)) headers.push("Idempotent-Replayed");
    return {
      description: codes.map((code) => `- \`${code}\`: ${ERRORS[code].meaning}`).join("\n"),
      headers: headersOf(headers),
      content: { "application/json": { schema: schemas.convert(errorAnswer, "output") } },
    };
  };
  const byName = Map.groupBy(inOrder(used), answerName);
  return Object.fromEntries([...byName].map(([name, codes]) => [name, answerOf(codes)]));
}

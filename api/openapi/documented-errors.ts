import { ERRORS, type ErrorCode } from "../../domain/errors.ts";
import { answersList, isPaged, queryNames, type RouteDefinition } from "../rest/definition.ts";

/** Refusals of the caller, of the message and of the service, which every operation may answer. */
const OF_EVERY_OPERATION: readonly ErrorCode[] = [
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

/** Those of every list, which has codes of its own for `expand` and for a filter of another list. */
const OF_LISTS: readonly ErrorCode[] = ["filter_unsupported", "expand_unsupported"];

/** Every code that an operation may answer, by status, both in the order of the registry. */
export function errorsOf(definition: RouteDefinition): Map<number, ErrorCode[]> {
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

  const byStatus = new Map<number, ErrorCode[]>();
  for (const code of Object.keys(ERRORS) as ErrorCode[]) {
    if (!codes.has(code)) continue;
    const { status } = ERRORS[code];
    byStatus.set(status, [...(byStatus.get(status) ?? []), code]);
  }
  return byStatus;
}

import { WINDOW_SECONDS } from "../../domain/access/request-limit.ts";
import { CURRENT_API_VERSION } from "../../domain/api-version.ts";
import { exampleId } from "../../domain/ids.ts";
import { BASE_PATH } from "../base-path.ts";
import { ANSWER_HEADERS, linksOf } from "../rest/envelope.ts";
import { type JsonSchema, refTo } from "./schemas.ts";

interface HeaderEntry {
  description: string;
  schema: JsonSchema;
  required?: boolean;
}

const text = (description: string, example: string): HeaderEntry => ({
  description,
  schema: { type: "string", examples: [example] },
});
const count = (description: string, example: number): HeaderEntry => ({
  description,
  schema: { type: "integer", minimum: 0, examples: [example] },
});

/** Every header of an answer that the document names, by its name. */
export const HEADERS = {
  "X-Request-Id": {
    ...text("The id of the request, also in `meta.request_id`. Quote it to the support.", exampleId("request")),
    required: true,
  },
  "Service-Version": text("The dated version that the request was served by.", CURRENT_API_VERSION),
  "RateLimit-Limit": count(`Requests that the caller may make in a window of ${WINDOW_SECONDS} seconds.`, 600),
  "RateLimit-Remaining": count("Requests that are left in this window.", 599),
  "RateLimit-Reset": count("Seconds until the window ends.", 42),
  "X-RateLimit-Limit": count("The same as `RateLimit-Limit`, in an older spelling.", 600),
  "X-RateLimit-Remaining": count("The same as `RateLimit-Remaining`, in an older spelling.", 599),
  "X-RateLimit-Reset": count("The same as `RateLimit-Reset`, in an older spelling.", 42),
  "Cache-Control": {
    ...text("Answers belong to one caller: no cache may store them.", ANSWER_HEADERS["Cache-Control"]),
    required: true,
  },
  Vary: { ...text("The request headers that an answer depends on.", ANSWER_HEADERS.Vary), required: true },
  Location: {
    ...text("The path of the new record.", `${BASE_PATH}/lists/${exampleId("list")}`),
    required: true,
  },
  "Idempotent-Replayed": {
    description: "`true` on an answer that is repeated under an Idempotency-Key: nothing was done.",
    schema: { type: "string", const: "true" },
  },
  "Retry-After": count("Whole seconds after which another try makes sense.", 5),
  "WWW-Authenticate": text(
    "The challenge of RFC 6750, with the address of the metadata of RFC 9728.",
    `Bearer realm="mailkeel", resource_metadata="${linksOf("https://mail.example.com").resourceMetadata}"`,
  ),
} as const satisfies Record<string, HeaderEntry>;

export type HeaderName = keyof typeof HEADERS;

/** Headers of every answer. */
export const COMMON_HEADERS: readonly HeaderName[] = [
  "X-Request-Id",
  "Service-Version",
  "RateLimit-Limit",
  "RateLimit-Remaining",
  "RateLimit-Reset",
  "X-RateLimit-Limit",
  "X-RateLimit-Remaining",
  "X-RateLimit-Reset",
  "Cache-Control",
  "Vary",
];

export const headersOf = (names: readonly HeaderName[]): JsonSchema =>
  Object.fromEntries(names.map((name) => [name, refTo("headers", name)]));

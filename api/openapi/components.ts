import { z } from "zod";
import { REMEMBERED_HOURS } from "../../domain/access/idempotency.ts";
import { SCOPES, type Scope, TOKEN_SCOPES } from "../../domain/access/scopes.ts";
import { CURRENT_API_VERSION, VERSIONS } from "../../domain/api-version.ts";
import { ERRORS, type ErrorCode } from "../../domain/errors.ts";
import { exampleId } from "../../domain/ids.ts";
import { idOf, text, textOrNull, timestamp } from "../fields.ts";
import { docUrl, linksOf } from "../rest/envelope.ts";
import { MAX_IDEMPOTENCY_KEY_LENGTH } from "../rest/idempotency.ts";
import { impactSchema } from "../rest/impact.ts";
import { VERSION_HEADER } from "../rest/versions.ts";
import { type JsonSchema, openSet } from "./schemas.ts";

const requestId = idOf("request", "The id of the request. On a replayed answer it is that of the first request.");
/** @param next the example of `next_cursor` */
const pageOf = (next: string | null) =>
  z.object({
    request_id: requestId,
    has_more: z
      .boolean()
      .meta({ description: "Whether there are records after this page.", examples: [next !== null] }),
    next_cursor: textOrNull("The `cursor` of the next page; null on the last one.", next),
  });

export const METAS = {
  read: z.object({ request_id: requestId }).meta({ id: "ReadMeta", description: "The `meta` of a single record." }),
  page: pageOf(null).meta({ id: "PageMeta", description: "The `meta` of a page." }),
  syncedPage: pageOf("MTc4Njc5NjAwMDAwMC4uc3ViXzAxbTd6aDM0bjhlNDl2bmJ0N2U2NHJ2cDBj.Zm9yLWV4YW1wbGU")
    .extend({
      synced_through: timestamp.describe("The `updated_since` of the next incremental run, once all pages are read."),
    })
    .meta({ id: "SyncedPageMeta", description: "The `meta` of a page of records that can be synchronised." }),
  write: z
    .object({
      request_id: requestId,
      dry_run: z.boolean().describe("Whether nothing was done: `data` is then null, and `impact` is the effect."),
      impact: impactSchema.optional(),
    })
    .meta({
      id: "WriteMeta",
      description: "The `meta` of a write, or of its dry run, which alone has an `impact`.",
      examples: [{ request_id: exampleId("request"), dry_run: false }],
    }),
} as const;

const codes = Object.keys(ERRORS) as ErrorCode[];
const types = [...new Set(Object.values(ERRORS).map(({ type }) => type))];

const error = z
  .object({
    type: z.enum(types).describe("The family of the error."),
    code: z.string().meta({
      ...openSet(codes),
      description: "The error. Branch on it: a code is never renamed or reused, and codes are added.",
      examples: ["validation_failed"],
    }),
    message: text("The cause and the remedy, for people. Its wording may change.", ERRORS.validation_failed.meaning),
    param: text("The one field or parameter at fault.", "emails[3]").optional(),
    resource_id: text(
      "Of `resource_already_exists`: the record that exists, where the caller may read it.",
      exampleId("subscriber"),
    ).optional(),
    doc_url: text("The page about the code.", docUrl(linksOf("https://mail.example.com"), "validation_failed")),
    request_id: requestId,
  })
  .meta({ id: "Error", description: "A refusal or a failure." });

export const errorAnswer = z
  .object({ error, meta: METAS.read })
  .meta({ id: "ErrorAnswer", description: "The body of every answer that is no success." });

const idempotencyKey = (required: boolean, description: string): JsonSchema => ({
  name: "Idempotency-Key",
  in: "header",
  required,
  description,
  schema: { type: "string", minLength: 1, maxLength: MAX_IDEMPOTENCY_KEY_LENGTH, pattern: "^[\\x20-\\x7e]+$" },
  example: "7f3c2f0e-5b1d-4c57-9d3c-2f6f9a4d8e11",
});

const REPEATS = `For ${REMEMBERED_HOURS} hours the same key with the same request repeats the first answer, with \`Idempotent-Replayed: true\`, and does nothing; with another request it is 409 \`idempotency_key_reused\`.`;

export const PARAMETERS = {
  IdempotencyKey: idempotencyKey(false, `Makes a repeated request safe; strongly recommended. ${REPEATS}`),
  RequiredIdempotencyKey: idempotencyKey(true, `Makes a repeated request safe; required here. ${REPEATS}`),
  DryRun: {
    name: "dry_run",
    in: "query",
    required: false,
    description:
      "With `true` the request is checked and resolved like a real one, and nothing is done: the answer has `data: null` and the effect in `meta.impact`.",
    schema: { type: "boolean", default: false },
    example: true,
  },
  ServiceVersion: {
    name: VERSION_HEADER,
    in: "header",
    required: false,
    description: "The dated version to serve the request by; that of the API key unless given.",
    // No enumeration, which each generated client would hold once for every operation.
    schema: { type: "string", pattern: `^(?:${VERSIONS.join("|")})$` },
    example: CURRENT_API_VERSION,
  },
} as const satisfies Record<string, JsonSchema>;

const inWords = (scopes: readonly Scope[]): string => scopes.map((scope) => `\`${scope}\``).join(", ");

/**
 * The ways to authenticate.
 * @param issuer of OAuth tokens; without one every token is refused, and the document names none
 */
export const securitySchemes = (issuer: string | undefined) => ({
  ApiKey: {
    type: "apiKey",
    in: "header",
    name: "x-api-key",
    description: `An API key, \`mk_live_…\` or \`mk_test_…\`. It holds scopes out of: ${inWords(SCOPES)}. Test keys have records of their own and never send.`,
  },
  Bearer: { type: "http", scheme: "bearer", description: "The same API key." },
  ...(issuer !== undefined && {
    // Not `oauth2`: that type asks for the URLs of the issuer's flows, which only the issuer's own metadata tells.
    OAuth: {
      type: "http",
      scheme: "bearer",
      bearerFormat: "JWT",
      description: `An OAuth access token of the issuer \`${issuer}\`, whose metadata says how to get one. It holds scopes out of: ${inWords(TOKEN_SCOPES)}.`,
    },
  }),
});

/** The ways to authenticate for an operation with these scopes. @param issuer as of `securitySchemes` */
export const securityOf = (scopes: readonly Scope[], issuer: string | undefined): JsonSchema[] => [
  { ApiKey: scopes },
  { Bearer: scopes },
  ...(issuer !== undefined && scopes.every((scope) => TOKEN_SCOPES.includes(scope)) ? [{ OAuth: scopes }] : []),
];

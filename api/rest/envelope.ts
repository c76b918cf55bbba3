import { jsonTextOf } from "../../db/json.ts";
import type { ApiError, ErrorCode } from "../../domain/errors.ts";
import { BASE_PATH } from "../base-path.ts";
import { refusalFacts } from "./failures.ts";

export interface HttpAnswer {
  status: number;
  headers: Record<string, string>;
  /** JSON text; in bytes where it is compressed. */
  body: string | Buffer;
  /** A secret stands in the body beside texts of others: it is not compressed, because the length would tell of it (BREACH). */
  holdsSecret?: boolean;
}

/**
 * Headers of every JSON answer, besides those of its own. Answers hold personal data and secrets, so no cache may store
 * them. `Vary` says to a cache that does so all the same what an answer belongs to.
 */
export const ANSWER_HEADERS = {
  "Content-Type": "application/json; charset=utf-8",
  "Cache-Control": "no-store",
  Vary: "Authorization, X-API-Key, Service-Version, Accept-Encoding",
} as const;

/** RFC 9728 puts the path of the resource behind it. */
export const METADATA_ROOT = "/.well-known/oauth-protected-resource";

/** URLs of the pages behind `doc_url`, and of the OAuth metadata. */
export interface Links {
  docs: string;
  resourceMetadata: string;
}

/** @param path of the resource that the OAuth metadata is of */
export const linksOf = (publicUrl: string, path = BASE_PATH): Links => ({
  docs: new URL("/docs", publicUrl).href,
  resourceMetadata: new URL(`${METADATA_ROOT}${path}`, publicUrl).href,
});

export const docUrl = ({ docs }: Links, code: ErrorCode): string => `${docs}/errors#${code}`;

/** The body of a success: the payload, and the `meta` of every success. */
export function renderSuccess(requestId: string, data: unknown, meta: Record<string, unknown>): string {
  return `{"data":${jsonTextOf(data)},"meta":${JSON.stringify({ request_id: requestId, ...meta })}}`;
}

/** Errors of RFC 6750, 3.1. A request without a good API key gets a challenge without an error. */
const CHALLENGED: ReadonlySet<ErrorCode> = new Set(["invalid_token", "insufficient_scope"]);

function challenge({ code, message }: ApiError, { resourceMetadata }: Links): string {
  const parts = ['realm="mailkeel"'];
  if (CHALLENGED.has(code)) {
    // All that RFC 6750, 3 allows in a description.
    const description = message.replaceAll(/[^\x20\x21\x23-\x5b\x5d-\x7e]/g, "'");
    parts.push(`error="${code}"`, `error_description="${description}"`);
  }
  parts.push(`resource_metadata="${resourceMetadata}"`);
  return `Bearer ${parts.join(", ")}`;
}

/** The header that says when to try again, where an error does. */
export const retryAfter = ({ retryAfterSeconds }: ApiError): Record<string, string> =>
  retryAfterSeconds === undefined ? {} : { "Retry-After": String(Math.ceil(retryAfterSeconds)) };

/** The answer to a request that was refused or failed. The cause of a failure is in the log, under the request id. */
export function renderError(requestId: string, error: ApiError, links: Links, resourceId?: string): HttpAnswer {
  const { status, type, code, message, param } = refusalFacts(error);
  const headers = retryAfter(error);
  if (status === 401 || CHALLENGED.has(error.code)) headers["WWW-Authenticate"] = challenge(error, links);
  const body = {
    error: {
      type,
      code,
      message,
      ...(param === undefined ? {} : { param }),
      ...(resourceId === undefined ? {} : { resource_id: resourceId }),
      doc_url: docUrl(links, error.code),
      request_id: requestId,
    },
    meta: { request_id: requestId },
  };
  return { status, headers, body: JSON.stringify(body) };
}

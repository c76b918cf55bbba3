import { type ApiError, ERRORS } from "../../domain/errors.ts";

/** An answer before it is sent. */
export interface HttpAnswer {
  status: number;
  headers: Record<string, string>;
  /** JSON text. */
  body: string;
}

/** Where the pages behind `doc_url` and the OAuth metadata are. */
export interface Links {
  docs: string;
  resourceMetadata: string;
}

export const linksOf = (publicUrl: string): Links => ({
  docs: new URL("/docs", publicUrl).href,
  resourceMetadata: new URL("/.well-known/oauth-protected-resource", publicUrl).href,
});

/** A success: the payload, and around it what every success carries. */
export function renderSuccess(requestId: string, data: unknown, meta: Record<string, unknown>): string {
  return JSON.stringify({ data, meta: { request_id: requestId, ...meta } });
}

function challenge(error: ApiError, { resourceMetadata }: Links): string {
  const parts = ['realm="mailkeel"'];
  if (error.code === "invalid_token") parts.push('error="invalid_token"');
  parts.push(`resource_metadata="${resourceMetadata}"`);
  return `Bearer ${parts.join(", ")}`;
}

/** A refusal or failure as the client sees it. What went wrong inside is in the log, under the request id. */
export function renderError(requestId: string, error: ApiError, links: Links): HttpAnswer {
  const { status, type, meaning } = ERRORS[error.code];
  const headers: Record<string, string> = {};
  if (error.retryAfterSeconds !== undefined) headers["Retry-After"] = String(Math.ceil(error.retryAfterSeconds));
  if (status === 401) headers["WWW-Authenticate"] = challenge(error, links);
  const body = {
    error: {
      type,
      code: error.code,
      message: status === 500 ? meaning : error.message,
      ...(error.param === undefined ? {} : { param: error.param }),
      doc_url: `${links.docs}/errors#${error.code}`,
      request_id: requestId,
    },
    meta: { request_id: requestId },
  };
  return { status, headers, body: JSON.stringify(body) };
}

import type { ApiVersion } from "../api-version.ts";

/** The facts in the body of a delivery. */
export interface EventFacts {
  eventId: string;
  type: string;
  /** ISO 8601. */
  eventCreatedAt: string;
  /** JSON of the record the event is about. */
  object: string;
}

type Renderer = (facts: EventFacts) => string;

/** The renderers of the dated versions that an endpoint can be pinned to. */
const OF_VERSIONS: Record<ApiVersion, Renderer> = {
  "2026-08-15": ({ eventId, type, eventCreatedAt, object }) =>
    `{"id":"${eventId}","object":"event","type":"${type}","api_version":"2026-08-15","created_at":"${eventCreatedAt}","data":{"object":${object}}}`,
};
const RENDERERS: Readonly<Record<string, Renderer>> = OF_VERSIONS;

/**
 * The body of a delivery, JSON, shaped by the endpoint's version. The same event always gives the same bytes.
 * @throws {Error} for a version there never was
 */
export function renderEvent(apiVersion: string, facts: EventFacts): string {
  const render = RENDERERS[apiVersion];
  if (!render) throw new Error(`no payload of version ${apiVersion}`);
  return render(facts);
}

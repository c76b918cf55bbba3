import type { ApiVersion } from "../api-version.ts";

export interface EventFacts {
  eventId: string;
  type: string;
  /** ISO 8601. */
  eventCreatedAt: string;
  /** JSON of the record the event is about. */
  object: string;
}

type Renderer = (facts: EventFacts) => string;

/** By the dated version that an endpoint is pinned to. */
const OF_VERSIONS: Record<ApiVersion, Renderer> = {
  "2026-08-15": ({ eventId, type, eventCreatedAt, object }) =>
    `{"id":"${eventId}","object":"event","type":"${type}","api_version":"2026-08-15","created_at":"${eventCreatedAt}","data":{"object":${object}}}`,
};
const RENDERERS: Readonly<Record<string, Renderer>> = OF_VERSIONS;

/** The body of a delivery, JSON, always the same bytes for the same event. @throws {Error} for a version there never was */
export function renderEvent(apiVersion: string, facts: EventFacts): string {
  const render = RENDERERS[apiVersion];
  if (!render) throw new Error(`no payload of version ${apiVersion}`);
  return render(facts);
}

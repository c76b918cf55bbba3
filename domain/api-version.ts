/** The newest dated version of the API: handlers and schemas speak it, and new keys are pinned to it. */
export const CURRENT_API_VERSION = "2026-08-15";

/** Every version that a request may name, the oldest first. */
export const VERSIONS = [CURRENT_API_VERSION] as const;
export type ApiVersion = (typeof VERSIONS)[number];

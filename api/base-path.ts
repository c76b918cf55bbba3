/** Path of the REST API. */
export const BASE_PATH = "/api/v2";

/** URL of the REST API: what an OAuth token for it names as its audience, and clients as their resource. */
export const resourceUrl = (publicUrl: string): string => new URL(BASE_PATH, publicUrl).href;

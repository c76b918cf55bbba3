export const BASE_PATH = "/api/v2";

/** URL of the REST API: the audience of an OAuth token for it, and the resource that clients ask for. */
export const resourceUrl = (publicUrl: string): string => new URL(BASE_PATH, publicUrl).href;

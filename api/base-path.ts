export const BASE_PATH = "/api/v2";

/** URL of the REST API, which is also the audience of an OAuth token for it. */
export const resourceUrl = (publicUrl: string): string => new URL(BASE_PATH, publicUrl).href;

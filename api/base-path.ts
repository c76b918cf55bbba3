export const BASE_PATH = "/api/v2";

export const MCP_PATH = `${BASE_PATH}/mcp`;

/** URL of the REST API or of MCP, which is also the audience of an OAuth token for it. */
export const resourceUrl = (publicUrl: string, path = BASE_PATH): string => new URL(path, publicUrl).href;

#!/usr/bin/env node

import http from "node:http";
import { parsed, problemOfAddress, reasonOf, TIMEOUT_MS } from "./transport.ts";

/*
 * `mailkeel mcp`: an MCP server on stdin and stdout for assistants on a desktop. It forwards each message to the
 * service, with the key of the environment, and knows nothing of tools.
 */

/** Codes of JSON-RPC. */
const PARSE_ERROR = -32_700;
const INVALID_REQUEST = -32_600;
const SERVER_ERROR = -32_000;

interface Message {
  id?: unknown;
  method?: unknown;
  params?: { name?: unknown; uri?: unknown; _meta?: Record<string, unknown> } | null;
}

/** Of the API, for a message that is refused as a whole. */
interface Refusal {
  code?: string;
  message?: string;
  request_id?: string;
}

interface Answer {
  jsonrpc?: unknown;
  error?: unknown;
  result?: { protocolVersion?: unknown };
}

const isObject = (value: unknown): value is object =>
  typeof value === "object" && value !== null && !Array.isArray(value);

const failure = (id: unknown, code: number, message: string, data?: object): string =>
  JSON.stringify({ jsonrpc: "2.0", id, error: { code, message, data } });

/** The header of the version that `initialize` agreed on, in all messages that follow. */
let agreed: Record<string, string> = {};

/** The headers in which newer versions of MCP repeat a message's facts; older versions have that of the version alone. */
function factsOf({ method, params }: Message): Record<string, string> {
  const version = params?._meta?.["io.modelcontextprotocol/protocolVersion"];
  if (typeof version !== "string" || typeof method !== "string") return agreed;
  const name = params?.name ?? params?.uri;
  const named: Record<string, string> = typeof name === "string" ? { "mcp-name": name } : {};
  return { "mcp-protocol-version": version, "mcp-method": method, ...named };
}

/** An answer that is no message of MCP, in words: a refusal of the API, or the page of a proxy or of another site. */
function describe({ status, headers }: Response, answer: Answer, address: string) {
  const error: Refusal = isObject(answer.error) ? answer.error : {};
  const retryAfter = headers.get("retry-after");
  const facts = [`HTTP ${status}`, error.code, error.request_id, retryAfter && `Retry-After: ${retryAfter}`];
  const isElsewhere = status < 400 || status === 404 || status === 405;
  const advice = isElsewhere ? " Check MAILKEEL_URL: it is the address of the API, and ends in /api/v2." : "";
  return {
    message: `${error.message ?? "The answer is no message of MCP."}${advice} (${address}: ${facts.filter(Boolean).join(", ")})`,
    data: { status, ...(retryAfter !== null && { retry_after: retryAfter }), ...error },
  };
}

/** Node's fetch takes the proxy of the environment only when it is asked to; before 24.14 a setting alone asks it. */
const takesProxy = "setGlobalProxyFromEnv" in http || process.env["NODE_USE_ENV_PROXY"] === "1";

const proxyAdvice = (): string =>
  !takesProxy && Object.entries(process.env).some(([name, value]) => value && /^https?_proxy$/i.test(name))
    ? ' A proxy is set: add "NODE_USE_ENV_PROXY": "1" to env, for Node 22.21 or newer, or take Node 24.14.'
    : "";

/** @returns the answer as one line; nothing to a notification */
async function answerTo(line: string, address: string, key: string): Promise<string> {
  const message = parsed(line);
  if (message === undefined) return failure(null, PARSE_ERROR, "The line is not JSON.");
  if (!isObject(message)) return failure(null, INVALID_REQUEST, "The line is not one JSON-RPC message.");
  const { id } = message as Message;
  const refusal = ({ message, data }: { message: string; data?: object }) =>
    id === undefined ? "" : failure(id, SERVER_ERROR, message, data);
  try {
    const response = await fetch(address, {
      method: "POST",
      headers: {
        authorization: `Bearer ${key}`,
        "content-type": "application/json",
        accept: "application/json, text/event-stream",
        ...factsOf(message),
      },
      body: line,
      // A redirected POST would become a GET.
      redirect: "manual",
      signal: AbortSignal.timeout(TIMEOUT_MS),
    });
    const text = await response.text();
    const given = parsed(text);
    const answer: Answer = isObject(given) ? given : {};
    const version = answer.result?.protocolVersion;
    if (typeof version === "string") agreed = { "mcp-protocol-version": version };
    if (answer.jsonrpc !== undefined) return text;
    return refusal(describe(response, answer, address));
  } catch (error) {
    return refusal({ message: `No answer from ${address}: ${reasonOf(error)}.${proxyAdvice()}` });
  }
}

function forwardLines(address: string, key: string): void {
  const forward = async (line: string) => {
    const answer = line.trim() === "" ? "" : await answerTo(line, address, key);
    if (answer !== "") process.stdout.write(`${answer}\n`);
  };
  let rest = "";
  // Not by readline, for which U+2028 ends a line too: a text in JSON may hold it.
  process.stdin.setEncoding("utf8").on("data", (chunk: string) => {
    const lines = (rest + chunk).split("\n");
    rest = lines.pop() ?? "";
    for (const line of lines) void forward(line);
  });
  process.stdin.once("end", () => void forward(rest));
}

/** Names the mistake in the command or its settings, and never shows the key; undefined when there is none. */
function problemOf(command: string | undefined, url: string, key: string): string | undefined {
  if (command !== "mcp" || url === "" || key === "")
    return "Usage: MAILKEEL_URL=https://mail.example.com/api/v2 MAILKEEL_API_KEY=mk_… mailkeel mcp";
  const problem = problemOfAddress(url);
  if (problem !== undefined) return `MAILKEEL_URL ${problem}`;
  if (!/^mk_(live|test)_\w+$/.test(key))
    return "MAILKEEL_API_KEY must be an API key: put the whole key there, from mk_live_ or mk_test_ to its last character";
  return undefined;
}

/** Has `fetch` go through the proxy of the environment. @returns the mistake in its address; undefined when there is none */
function takeProxy(): string | undefined {
  try {
    if ("setGlobalProxyFromEnv" in http) http.setGlobalProxyFromEnv();
    return undefined;
  } catch {
    // Not with the error, which may show a password.
    return "HTTPS_PROXY and HTTP_PROXY must be addresses such as http://proxy.example.com:8080";
  }
}

const { MAILKEEL_URL: url = "", MAILKEEL_API_KEY: key = "" } = process.env;
const problem = problemOf(process.argv[2], url, key) ?? takeProxy();
if (problem === undefined) {
  forwardLines(`${url.replace(/\/+$/, "")}/mcp`, key);
} else {
  console.error(problem);
  process.exitCode = 2;
}

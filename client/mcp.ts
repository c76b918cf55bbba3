#!/usr/bin/env node
import { createInterface } from "node:readline";

/*
 * `npx @mailkeel/client mcp`: an MCP server on stdin and stdout for assistants on a desktop. It forwards each message to the
 * service, with the key of the environment, and knows nothing of tools.
 */

/** Longer than the service's own deadline for an answer. */
const TIMEOUT_MS = 80_000;
/** JSON-RPC's code for an error of the server. */
const FAILED = -32_000;

interface Message {
  id?: string | number;
  method?: string;
  params?: { name?: unknown; _meta?: Record<string, unknown> };
}

/** The headers in which newer versions of MCP repeat a message's facts; older versions send none of them. */
function factsOf({ method, params }: Message): Record<string, string> {
  const version = params?._meta?.["io.modelcontextprotocol/protocolVersion"];
  if (typeof version !== "string" || method === undefined) return {};
  const name: Record<string, string> = typeof params?.name === "string" ? { "mcp-name": params.name } : {};
  return { "mcp-protocol-version": version, "mcp-method": method, ...name };
}

/** @returns the service's answer as one line; nothing for a notification */
async function forward(line: string, message: Message, url: string, key: string): Promise<string> {
  const response = await fetch(`${url.replace(/\/+$/, "")}/mcp`, {
    method: "POST",
    headers: {
      authorization: `Bearer ${key}`,
      "content-type": "application/json",
      accept: "application/json, text/event-stream",
      ...factsOf(message),
    },
    body: line,
    signal: AbortSignal.timeout(TIMEOUT_MS),
  });
  const text = await response.text();
  if (text === "") return "";
  const answer = JSON.parse(text);
  if (answer.jsonrpc !== undefined) return text;
  // A refusal of the whole request, such as one for its key.
  throw new Error(answer.error?.message ?? `The service answered ${response.status}.`);
}

async function answerLine(line: string, url: string, key: string): Promise<void> {
  let message: Message = {};
  let answer: string;
  try {
    message = JSON.parse(line);
    answer = await forward(line, message, url, key);
  } catch (error) {
    const isNotification = message.method !== undefined && message.id === undefined;
    const refusal = { code: FAILED, message: error instanceof Error ? error.message : String(error) };
    answer = isNotification ? "" : JSON.stringify({ jsonrpc: "2.0", id: message.id ?? null, error: refusal });
  }
  if (answer !== "") process.stdout.write(`${answer}\n`);
}

const { MAILKEEL_URL: url, MAILKEEL_API_KEY: key } = process.env;
if (process.argv[2] !== "mcp" || !url || !key) {
  console.error("Usage: MAILKEEL_URL=https://mail.example.com/api/v2 MAILKEEL_API_KEY=mk_… npx @mailkeel/client mcp");
  process.exitCode = 2;
} else {
  createInterface({ input: process.stdin }).on("line", (line) => void answerLine(line, url, key));
}

import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { promisify } from "node:util";
import type { Json } from "../support/api.ts";
import { bringNewsletter } from "../support/newsletter-by-tools.ts";
import { needs } from "../support/programs.ts";
import { makeSender } from "../support/sending.ts";
import { stack } from "../support/stack.ts";

const run = promisify(execFile);
const NEWEST_VERSION = "2026-07-28";
const CALL_TOOLS = join(import.meta.dirname, "call-tools.py");
const CLIENT_FILE = join(import.meta.dirname, "../../client/mcp.ts");

/** A list without subscribers, and the service's address with a key that is made for the list, and one for all lists. */
async function makeReaders() {
  const { listId, fromEmail, mint, keys } = await makeSender({ recipients: 0 });
  const { key } = await mint({ forListId: listId });
  return { listId, fromEmail, url: (await stack()).api, key, keyOfAll: keys.live };
}

/** @returns the API's body in the result of a tool, as text and as structure */
function bodyOf({ isError = false, content, structuredContent }: Json): Json {
  const [{ text }] = content;
  assert.equal(isError, false, text);
  assert.deepEqual(JSON.parse(text), structuredContent);
  return structuredContent;
}

describe("A newsletter to five people, brought by tools alone", function () {
  this.timeout(120_000);
  const { PATH } = process.env;

  describe("by MCP's client for Python", () => {
    const python = needs("mcp");
    const WAYS = { "over HTTP": [], "through the client's program": [process.execPath, CLIENT_FILE, "mcp"] };

    for (const [way, args] of Object.entries(WAYS))
      it(`is sent ${way}, in the newest version of MCP`, async () => {
        const { listId, fromEmail, url, key } = await makeReaders();
        const env = { PATH, MAILKEEL_URL: url, MAILKEEL_API_KEY: key };
        const child = spawn(python(), [CALL_TOOLS, ...args], { env, stdio: ["pipe", "pipe", "inherit"] });
        const lines = createInterface(child.stdout)[Symbol.asyncIterator]();
        const next = async () => {
          const { done, value } = await lines.next();
          assert.ok(!done, "the program has ended");
          return JSON.parse(value);
        };
        try {
          const { version, tools } = await next();
          assert.equal(version, NEWEST_VERSION);
          assert.ok(tools.includes("sendNewsletter"));
          const call = async (...tool: unknown[]) => {
            child.stdin.write(`${JSON.stringify(tool)}\n`);
            return bodyOf(await next());
          };
          await bringNewsletter(call, listId, fromEmail);
        } finally {
          child.stdin.end();
        }
        assert.ok((await lines.next()).done);
      });
  });

  describe("by MCP's inspector", () => {
    /** The inspector makes a folder of its own there. */
    let HOME: string;
    before(async () => {
      HOME = await mkdtemp(join(tmpdir(), "mailkeel-inspector-"));
    });
    after(() => rm(HOME, { recursive: true }));
    const inspector = needs("inspector");

    it("is sent over HTTP, and the schemas of all tools are portable", async () => {
      const { listId, fromEmail, url, key, keyOfAll } = await makeReaders();
      const server = [`${url}/mcp`, "--protocol-era", "modern", "--format", "json"];
      const ask = async (by: string, ...args: string[]) => {
        const all = [inspector(), "--cli", ...server, "--header", `Authorization: Bearer ${by}`, ...args];
        return JSON.parse((await run(process.execPath, all, { env: { PATH, HOME } })).stdout);
      };
      // With --strict the findings name each schema that some clients or models cannot read.
      const { result, schemaFindings } = await ask(keyOfAll, "--method", "tools/list", "--strict");
      const findings: Json[] = schemaFindings.flatMap((tool: Json) => tool.findings);
      // `data` of an answer may be anything, on purpose: its schemas would make the list long.
      const isData = ({ schema, path }: Json) => schema === "outputSchema" && path === "properties.data";
      assert.deepEqual(
        findings.filter((finding) => !isData(finding)),
        [],
      );
      assert.ok(result.tools.some(({ name }: Json) => name === "sendNewsletter"));
      const call = async (name: string, args: object) => {
        const tool = ["--tool-name", name, "--tool-args-json", JSON.stringify(args)];
        return bodyOf((await ask(key, "--method", "tools/call", ...tool)).result);
      };
      await bringNewsletter(call, listId, fromEmail);
    });
  });
});

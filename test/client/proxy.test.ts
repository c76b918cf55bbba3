import assert from "node:assert/strict";
import { type ExecFileException, execFile } from "node:child_process";
import { createServer } from "node:http";
import type { Duplex } from "node:stream";
import { listenLocally } from "../support/listen-locally.ts";

const PROGRAM = `${import.meta.dirname}/../../client/mcp.ts`;
/** Has Node be one from before 24.14. */
const OLDER = "data:text/javascript,import http from 'node:http'; delete http.setGlobalProxyFromEnv;";

describe("The program for assistants, where HTTPS_PROXY is set", () => {
  const asked: (string | undefined)[] = [];
  const server = createServer().on("connect", ({ url }, socket: Duplex) => {
    asked.push(url);
    socket.end("HTTP/1.1 502 Bad Gateway\r\n\r\n");
  });
  let proxy: string;
  before(async () => {
    proxy = `http://127.0.0.1:${await listenLocally(server)}`;
  });
  after((done) => void server.close(done));
  beforeEach(() => asked.splice(0));

  /** @returns the message of the error that answers a request */
  function answered(settings: Record<string, string>, ...flags: string[]): Promise<string> {
    const env = { MAILKEEL_URL: "https://mail.invalid/api/v2", MAILKEEL_API_KEY: "mk_test_x", ...settings };
    return new Promise((resolve, reject) => {
      const child = execFile(process.execPath, [...flags, PROGRAM, "mcp"], { env }, (error, stdout) =>
        error ? reject(error) : resolve(JSON.parse(stdout).error.message),
      );
      child.stdin?.end('{"jsonrpc":"2.0","id":1,"method":"ping"}\n');
    });
  }

  it("goes through the proxy", async () => {
    assert.match(
      await answered({ HTTPS_PROXY: proxy }),
      /^No answer from https:\/\/mail\.invalid\/api\/v2\/mcp: fetch failed\.$/,
    );
    assert.deepEqual(asked, ["mail.invalid:443"]);
  });

  it("ends with a sentence where its address is none, and does not show it", async () => {
    await assert.rejects(answered({ HTTPS_PROXY: "me:secret@proxy:8080" }), ({ code, message }: ExecFileException) => {
      assert.equal(code, 2);
      assert.match(message, /\nHTTPS_PROXY and HTTP_PROXY must be addresses such as http:\S+\n$/);
      return !message.includes("secret");
    });
  });

  it("says in an older Node which setting it needs, and goes through the proxy with it", async () => {
    assert.match(await answered({ https_proxy: proxy }, "--import", OLDER), /add "NODE_USE_ENV_PROXY": "1" to env/);
    assert.deepEqual(asked, []);
    const NODE_USE_ENV_PROXY = "1";
    const message = await answered({ https_proxy: proxy, NODE_USE_ENV_PROXY }, "--import", OLDER);
    assert.doesNotMatch(message, /NODE_USE_ENV_PROXY/);
    assert.deepEqual(asked, ["mail.invalid:443"]);
    assert.doesNotMatch(await answered({ HTTPS_PROXY: "" }, "--import", OLDER), /proxy/i);
  });
});

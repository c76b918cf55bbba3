import assert from "node:assert/strict";
import { connect } from "node:net";
import { text } from "node:stream/consumers";
import { api, documentedFetch } from "../support/api.ts";
import { makeTeam } from "../support/factories.ts";
import { stack } from "../support/stack.ts";

/** Sends bytes as they are and reads the answer as it comes. */
async function raw(request: string): Promise<{ status: number; head: string; body: string }> {
  const { hostname, port } = new URL((await stack()).origin);
  const socket = connect(Number(port), hostname);
  socket.write(request);
  const [head = "", body = ""] = (await text(socket)).split("\r\n\r\n");
  return { status: Number(head.split(" ")[1]), head, body };
}

describe("A malformed request", () => {
  const requests: Record<string, [request: string, status: number, code: string]> = {
    "not HTTP": ["nonsense\r\n\r\n", 400, "validation_failed"],
    "headers over 64 KiB": [
      `GET /healthz HTTP/1.1\r\nHost: x\r\nX: ${"x".repeat(70_000)}\r\n\r\n`,
      413,
      "payload_too_large",
    ],
    "a malformed chunk": [
      "POST /api/v2/lists HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
      400,
      "validation_failed",
    ],
  };
  for (const [what, [request, status, code]] of Object.entries(requests)) {
    it(`is answered with the envelope and a request id: ${what}`, async () => {
      const answer = await raw(request);
      assert.equal(answer.status, status, answer.head);
      const { error, meta } = JSON.parse(answer.body);
      assert.equal(error.code, code);
      assert.match(answer.head, new RegExp(`^x-request-id: ${meta.request_id}$`, "im"));
      assert.equal(error.request_id, meta.request_id);
    });
  }

  it("is refused, naming its cursor, when that is far too long", async () => {
    const { keys } = await makeTeam();
    const answer = await api(keys.live).get("/lists", { query: { cursor: "x".repeat(20_000) } });
    assert.equal(answer.status, 400, answer.text);
    assert.equal(answer.body.error.param, "cursor");
  });

  it("is invalid JSON when its body is no UTF-8, so that two such bodies are never the same", async () => {
    const { keys } = await makeTeam();
    const answer = await documentedFetch(`${(await stack()).api}/lists`, {
      method: "POST",
      headers: { "x-api-key": keys.live, "content-type": "application/json" },
      body: Buffer.from([...Buffer.from('{"name":"x'), 0xff, ...Buffer.from('"}')]),
    });
    assert.equal(answer.status, 400);
    assert.equal(((await answer.json()) as { error: { code: string } }).error.code, "invalid_json");
  });
});

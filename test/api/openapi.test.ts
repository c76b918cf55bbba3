import assert from "node:assert/strict";
import { endpointsOf } from "../../api/rest/endpoints.ts";
import { appRouter } from "../../api/router.ts";
import type { Json } from "../support/api.ts";
import { stack } from "../support/stack.ts";

describe("the OpenAPI document", () => {
  let url: string;

  before(async () => {
    url = new URL("/openapi.json", (await stack()).api).href;
  });

  it("is served at /openapi.json, names every route and is not sent again while it is the same", async () => {
    const answer = await fetch(url);
    assert.equal(answer.status, 200);
    assert.equal(answer.headers.get("content-type"), "application/json; charset=utf-8");
    assert.equal(answer.headers.get("cache-control"), "no-cache");
    const document: Json = await answer.json();
    assert.equal(document.openapi, "3.1.0");
    const operations = Object.values<Record<string, { operationId: string }>>(document.paths).flatMap((item) =>
      Object.values(item).map(({ operationId }) => operationId),
    );
    const declared = endpointsOf(appRouter).map(({ meta }) => meta.operationId);
    assert.deepEqual(operations.sort(), declared.sort());
    assert.equal(new Set(operations).size, operations.length);

    const etag = answer.headers.get("etag");
    assert.ok(etag);
    // Without a Cache-Control of its own, fetch asks for a fresh answer.
    const again = await fetch(url, { headers: { "if-none-match": etag, "cache-control": "max-age=0" } });
    assert.equal(again.status, 304);
    assert.equal(await again.text(), "");
  });
});

import assert from "node:assert/strict";
import { StackError } from "../../stack/processes.ts";
import { prepareNamespace } from "../../stack/temporal.ts";
import { eventually } from "../support/eventually.ts";
import { unique } from "../support/factories.ts";
import { startWorker } from "../support/processes.ts";
import { stack } from "../support/stack.ts";
import { openTemporalProxy, type TemporalProxy } from "./temporal-proxy.ts";

describe("A Temporal cluster of the operator's own", () => {
  let proxy: TemporalProxy;

  beforeEach(async () => {
    proxy = await openTemporalProxy();
  });
  afterEach(() => proxy.close());

  it("gets the API key and the metadata of the settings with each call of a worker", async () => {
    const worker = await startWorker("maintenance", {
      TEMPORAL_ADDRESS: proxy.address,
      TEMPORAL_API_KEY: "the-key",
      TEMPORAL_TLS: "false",
      TEMPORAL_GRPC_META_X_REGION: "eu-central",
    });
    try {
      const polls = () => proxy.calls.filter(({ method }) => method === "PollActivityTaskQueue");
      await eventually(() => polls().length > 0, { what: "a poll" });
      for (const { method, headers } of proxy.calls) {
        assert.equal(headers["x-region"], "eu-central", method);
        assert.equal(headers["authorization"], "Bearer the-key", method);
      }
    } finally {
      await worker.stop();
    }
  });

  it("may refuse to make namespaces: one that is there is prepared, and a missing one is asked for", async () => {
    const { temporal } = await stack();
    const prepare = (namespace: string) =>
      prepareNamespace({ env: { TEMPORAL_ADDRESS: proxy.address }, namespace, embedded: false, create: true });
    for (const code of ["PERMISSION_DENIED", "UNIMPLEMENTED"] as const) {
      proxy.refuse("RegisterNamespace", code);
      await prepare(temporal.namespace);
      const missing = unique("missing");
      await assert.rejects(prepare(missing), (error: Error) => {
        assert.ok(error instanceof StackError);
        assert.match(error.message, new RegExp(`make the namespace ${missing} \\(${code}\\).*tcld namespace create`));
        return true;
      });
    }
  });
});

import assert from "node:assert/strict";
import { eventually } from "../support/eventually.ts";
import { startWorker, threadsOf } from "../support/processes.ts";

describe("A worker that is asked to stop", () => {
  it("ends with exit code 0 when its work ends in time, with the thread that reads contents", async () => {
    const worker = await startWorker("dispatch");
    await eventually(() => threadsOf(worker.pid).includes("examination"), { what: "the thread" });
    assert.equal(await worker.stop(), 0);
  });
});

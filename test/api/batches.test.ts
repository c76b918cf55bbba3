import assert from "node:assert/strict";
import { Batches } from "../../domain/access/batches.ts";

describe("Calls of one name", () => {
  it("share a run that begins when the process has handled all that it has received", async () => {
    const batches = new Batches<number>();
    const sizes: number[] = [];
    const run = async (size: number) => sizes.push(size);
    const calls = [];
    for (let n = 0; n < 8; n++) {
      calls.push(batches.join("a", run));
      await new Promise<void>((resolve) => process.nextTick(resolve));
    }
    const shares = await Promise.all(calls);
    assert.deepEqual(sizes, [8]);
    assert.deepEqual(
      shares.map(({ place }) => place),
      [0, 1, 2, 3, 4, 5, 6, 7],
    );
  });

  it("share a run that waits for calls that are expected", async () => {
    const { promise: expected, resolve } = Promise.withResolvers<void>();
    const batches = new Batches<number>((name) => (name === "a" ? expected : undefined));
    const sizes: number[] = [];
    const run = async (size: number) => sizes.push(size);
    const first = batches.join("a", run);
    await batches.join("b", run);
    const second = batches.join("a", run);
    assert.deepEqual(sizes, [1], "b's run has begun");
    resolve();
    await Promise.all([first, second]);
    assert.deepEqual(sizes, [1, 2]);
  });
});

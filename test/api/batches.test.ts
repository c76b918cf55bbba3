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
});

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { promisify } from "node:util";

const run = promisify(execFile);

/** A program that keeps 32 MiB in use, and replaces 800 MiB of it. @returns its full collections */
async function fullCollections(setting: string): Promise<number> {
  const program = `
    import { constants, PerformanceObserver } from "node:perf_hooks";
    import { setHeapGrowth } from ${JSON.stringify(new URL("../../config/heap-growth.ts", import.meta.url).href)};
    const MIB = 1024 * 1024;
    ${setting}
    let full = 0;
    const observer = new PerformanceObserver((list) => {
      full += list.getEntries().filter(({ detail }) => detail.kind === constants.NODE_PERFORMANCE_GC_MAJOR).length;
    });
    observer.observe({ entryTypes: ["gc"] });
    const kept = [];
    for (let i = 0; i < 3_328; i++) {
      // A quarter of a MiB of numbers in the heap itself.
      kept[i % 128] = Array.from({ length: 32 * 1024 }, (_, k) => k + i);
      if (i % 4 === 0) await new Promise((resolve) => setImmediate(resolve));
    }
    await new Promise((resolve) => setTimeout(resolve, 0));
    console.log(full);`;
  const { stdout } = await run(process.execPath, ["--input-type=module", "--eval", program]);
  return Number(stdout);
}

describe("The growth of a process's heap", () => {
  it("is as large as its setting, so that full collections are as rare", async () => {
    const [rare, frequent] = await Promise.all([
      fullCollections("setHeapGrowth({ leastPercent: 50, leastBytes: () => 256 * MIB });"),
      fullCollections("setHeapGrowth({ leastPercent: 25, leastBytes: () => 0 });"),
    ]);
    assert.ok(rare >= 1 && rare <= 800 / 256 + 4, `${rare} full collections`);
    assert.ok(frequent > 2 * rare, `${frequent} full collections with a growth of a quarter, ${rare} with 256 MiB`);
  });
});

import assert from "node:assert/strict";
import { Lines } from "../../db/lines.ts";

describe("Lines", () => {
  const open = () =>
    new Lines(
      () => ({ inUse: 0 }),
      ({ inUse }) => inUse === 0,
    );

  it("keep no more than a bounded number that are idle, however many names there were", () => {
    const lines = open();
    for (let n = 0; n < 10_000; n++) lines.of(`idle ${n}`);
    assert.ok(lines.size <= 256, `${lines.size}`);
  });

  it("are never dropped while they are in use", () => {
    const lines = open();
    const inUse = Array.from({ length: 1_000 }, (_, n) => {
      const line = lines.of(`in use ${n}`);
      line.inUse++;
      return line;
    });
    for (let n = 0; n < 10_000; n++) lines.of(`idle ${n}`);
    for (const [n, line] of inUse.entries()) assert.equal(lines.of(`in use ${n}`), line);
    // At most as many idle ones beside them.
    assert.ok(lines.size <= 2_000, `${lines.size}`);
  });
});

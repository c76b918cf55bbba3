import assert from "node:assert/strict";
import { inSharedMemory } from "../../domain/mail/shared-memory.ts";

describe("Memory that messages share", () => {
  it("holds each text as `Buffer.from` does, beside those before and after it", () => {
    const texts = Array.from({ length: 500 }, (_, i) => `${i} `.repeat(i * 7));
    const buffers = texts.map((text) => inSharedMemory(text, "latin1"));
    for (const [i, text] of texts.entries()) assert.ok(buffers[i]?.equals(Buffer.from(text, "latin1")), `text ${i}`);
  });

  it("holds texts of characters of any length", () => {
    for (const text of ["", "a", "é", "€".repeat(10_000), "🚀".repeat(5_000), "\ud800"]) {
      const long = text.repeat(3);
      assert.ok(inSharedMemory(long, "utf8").equals(Buffer.from(long)), text.slice(0, 2));
    }
  });

  it("is shared by short texts, and not by long ones", () => {
    const [a, b] = [inSharedMemory("a".repeat(6_000), "latin1"), inSharedMemory("b".repeat(6_000), "latin1")];
    const c = inSharedMemory("c".repeat(100_000), "latin1");
    assert.ok(a.buffer === b.buffer || inSharedMemory("d", "latin1").buffer === b.buffer);
    assert.equal(c.buffer.byteLength, 100_000);
  });
});

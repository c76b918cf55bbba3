import assert from "node:assert/strict";
import { originalText, withoutFormula } from "../../lib/csv.ts";

describe("A text in an exported CSV", () => {
  const guarded: [text: string, exported: string][] = [
    ["=1+1", "'=1+1"],
    ["'=1+1", "''=1+1"],
    ["Ada;=1+1", "Ada;'=1+1"],
    ['Ada;"=1+1";@x;b', `Ada;'"=1+1";'@x;b`],
    ["=1;;-2", "'=1;;'-2"],
    ["Ada;'+1", "Ada;''+1"],
    ["Ada; Bea-Lou;O'Neil, a=b", "Ada; Bea-Lou;O'Neil, a=b"],
  ];
  for (const [text, exported] of guarded) {
    it(`begins no formula in a cell that a comma or a semicolon ends, and is read back: ${text}`, () => {
      assert.equal(withoutFormula(text), exported);
      assert.equal(originalText(exported), text);
    });
  }
});

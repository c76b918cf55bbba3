import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { claimPort } from "../../config/ports.ts";

const PORTS = `${import.meta.dirname}/../../config/ports.ts`;

/** Claims the first of these ports that can be had, in a process that then ends. @returns what it claimed */
function claimElsewhere(ports: readonly number[]): number {
  const script = `const { claimPort } = await import(${JSON.stringify(PORTS)});
    const ports = ${JSON.stringify(ports)};
    console.log(await claimPort(() => ports.shift()));`;
  return Number(execFileSync(process.execPath, ["--input-type=module", "--eval", script], { encoding: "utf8" }));
}

describe("A port that a process claims before something listens on it", () => {
  it("is given to no other process, nor to the same one again, until that has ended", async () => {
    const claimed = await claimPort();
    const next = claimElsewhere([claimed, claimed + 1, claimed + 2, claimed + 3]);
    assert.ok(next > claimed, `${next} beside ${claimed}`);
    const ports = [claimed, claimed, next];
    assert.equal(await claimPort(() => ports.shift() ?? 0), next);
  });
});

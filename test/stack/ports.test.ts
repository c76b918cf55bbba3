import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { claimPort } from "../../config/ports.ts";

const run = promisify(execFile);
const PORTS = `${import.meta.dirname}/../../config/ports.ts`;

/** Claims the first of these ports that can be had, in a process that then ends. @returns what it claimed */
async function claimElsewhere(ports: readonly number[]): Promise<number> {
  const script = `const { claimPort } = await import(${JSON.stringify(PORTS)});
    const ports = ${JSON.stringify(ports)};
    console.log(await claimPort(() => ports.shift()));`;
  const { stdout } = await run(process.execPath, ["--input-type=module", "--eval", script]);
  return Number(stdout);
}

describe("A port that a process claims before something listens on it", () => {
  it("is given to no other process, nor to the same one again", async () => {
    const claimed = await claimPort();
    const next = await claimElsewhere([claimed, claimed + 1, claimed + 2, claimed + 3]);
    assert.ok(next > claimed, `${next} beside ${claimed}`);
    const ports = [claimed, claimed, next];
    assert.equal(await claimPort(() => ports.shift() ?? 0), next);
  });

  it("is free again when that process has ended", async () => {
    const port = await claimElsewhere([await claimPort()]);
    assert.equal(await claimPort(() => port), port);
  });

  it("is reported in use after 50 ports that are", async () => {
    const claimed = await claimPort();
    let picks = 0;
    const pick = () => {
      picks++;
      return claimed;
    };
    await assert.rejects(claimPort(pick), { code: "EADDRINUSE" });
    assert.equal(picks, 50);
  });
});

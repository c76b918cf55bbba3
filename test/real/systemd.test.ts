import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { globSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename } from "node:path";
import { promisify } from "node:util";
import { needs } from "../support/programs.ts";

const UNITS = `${import.meta.dirname}/../../deploy/systemd/*.service`;
/** Of ten; systemd calls below 4 "OK". */
const MOST_EXPOSED = 3;

describe("The units of deploy/systemd", () => {
  const analyze = needs("systemd-analyze");

  it("expose little by systemd's own judgement", async () => {
    const folder = mkdtempSync(`${tmpdir()}/mailkeel-systemd-`);
    try {
      const units = globSync(UNITS);
      assert.equal(units.length, 2);
      for (const unit of units) {
        const file = `${folder}/${basename(unit).replace("@.", "@sends.")}`;
        writeFileSync(file, readFileSync(unit));
        const { stdout } = await promisify(execFile)(analyze(), ["security", "--offline=true", "--no-pager", file]);
        const level = /Overall exposure level for \S+: ([\d.]+)/.exec(stdout)?.[1];
        assert.ok(Number(level) < MOST_EXPOSED, `${unit}: ${level}`);
      }
    } finally {
      rmSync(folder, { recursive: true });
    }
  });
});

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { changedFiles, currentDigests, releasedDigests } from "../support/kept.ts";
import { testsOf } from "../support/long.ts";
import { licences, releaseChanges, sameSbom } from "./release.ts";

const { it, longIt } = testsOf();
const run = promisify(execFile);
const ROOT = join(import.meta.dirname, "../..");

const read = (name: string) => readFileSync(new URL(`../../${name}`, import.meta.url), "utf8");

describe("A release", () => {
  it("gives the changes that wait their version, and refuses to have none", () => {
    const changelog = "# Changelog\n\n## Unreleased\n\n- New.\n\n## 1.0.0 – 2026-01-01\n\n- Old.\n";
    const released =
      "# Changelog\n\n## Unreleased\n\n## 1.1.0 – 2026-02-02\n\n- New.\n\n## 1.0.0 – 2026-01-01\n\n- Old.\n";
    assert.equal(releaseChanges(changelog, "1.1.0", "2026-02-02"), released);
    assert.throws(() => releaseChanges(released, "1.2.0", "2026-03-03"), /nothing under `## Unreleased`/);
    assert.match(read("CHANGELOG.md"), /^## /m);
  });

  it("lists the licence of each package that runs, and of no other", () => {
    const lines = licences(read("package-lock.json")).split("\n");
    assert.ok(lines.includes("express 5.3.0: MIT"));
    assert.ok(!lines.some((line) => line.startsWith("mocha ")));
    assert.deepEqual(
      lines.filter((line) => /: (UN|GPL|AGPL)/.test(line)),
      [],
    );
  });

  it("keeps the migrations and the histories of those before it", () => {
    assert.deepEqual(changedFiles({ same: "1", changed: "2", gone: "3" }, { same: "1", changed: "9", new: "4" }), [
      "changed",
      "gone",
    ]);
    const changed = changedFiles(releasedDigests(), currentDigests());
    assert.deepEqual(changed, [], "databases and running workflows remember these files: add others beside them");
    assert.ok(Object.keys(currentDigests()).some((path) => path.startsWith("db/migrations/")));
  });

  it("has an SBOM without a time and a random number", () => {
    const sbom = sameSbom(
      '{"bomFormat":"CycloneDX","serialNumber":"urn:uuid:1","metadata":{"timestamp":"now","component":{}}}',
    );
    assert.deepEqual(JSON.parse(sbom), { bomFormat: "CycloneDX", metadata: { component: {} } });
  });

  longIt("has the same bytes from any clone of its commit, at any time and in any zone", async () => {
    const above = mkdtempSync(join(tmpdir(), "mailkeel-clones-"));
    const digestsFrom = async (TZ: string) => {
      const clone = join(above, TZ);
      await run("git", ["clone", "--quiet", "--shared", ROOT, clone]);
      symlinkSync(join(ROOT, "node_modules"), join(clone, "node_modules"));
      const make = `import { makeFiles } from "./test/release/release.ts"; makeFiles("1.0.0", "${clone}/release")`;
      await run(process.execPath, ["--input-type=module", "--eval", make], { cwd: clone, env: { ...process.env, TZ } });
      return readFileSync(join(clone, "release/SHA256SUMS"), "utf8");
    };
    try {
      const [digests = "", others] = await Promise.all(["UTC", "Japan"].map(digestsFrom));
      assert.equal(digests.trim().split("\n").length, 6);
      assert.equal(digests, others);
    } finally {
      rmSync(above, { recursive: true });
    }
  });
});

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { promisify } from "node:util";
import { temporaryFolder } from "./support.ts";

const ROOT = `${import.meta.dirname}/../..`;
const readJson = (path: string) => JSON.parse(readFileSync(`${ROOT}/${path}`, "utf8"));
const sha256 = (bytes: Buffer | string) => createHash("sha256").update(bytes).digest("hex");

describe("The dependencies", () => {
  it("are pinned exactly", () => {
    const { dependencies, optionalDependencies, devDependencies } = readJson("package.json");
    const all = { ...dependencies, ...optionalDependencies, ...devDependencies };
    for (const [name, version] of Object.entries<string>(all)) {
      assert.match(version, /^\d+\.\d+\.\d+(-[\w.]+)?$/, name);
    }
  });

  it("have a digest in package-lock.json, except tools of developers on other systems", () => {
    const { "": _ours, ...packages } = readJson("package-lock.json").packages as Record<string, { integrity?: string }>;
    const otherSystems = /^node_modules\/(@biomejs\/cli|@swc\/core)-(?!linux-(arm64|x64)(-gnu)?$)/;
    for (const [path, { integrity = "" }] of Object.entries(packages)) {
      if (!otherSystems.test(path)) assert.match(integrity, /^sha512-/, path);
    }
  });

  describe("and Node, which is fetched past package-lock.json,", () => {
    const digests: { version: string; sha256: Record<string, string> } = readJson("stack/node-digests.json");
    let folder: string;
    beforeEach(() => {
      folder = temporaryFolder();
    });
    afterEach(() => rmSync(folder, { recursive: true }));

    const check = (file: string, expected: string) => {
      const script = `import(process.argv[1]).then(({ checkNode }) => checkNode(...process.argv.slice(2)))`;
      return promisify(execFile)(process.execPath, ["-e", script, `${ROOT}/stack/launch.mjs`, file, expected]);
    };

    it("has a digest of its version for this system", () => {
      assert.equal(digests.version, readJson("package.json").optionalDependencies.node);
      const known = digests.sha256[`${process.platform}-${process.arch}`];
      if (process.platform === "linux") assert.equal(sha256(readFileSync(`${ROOT}/node_modules/.bin/node`)), known);
    });

    it("is kept with the expected digest, and deleted with another", async () => {
      const file = `${folder}/node`;
      writeFileSync(file, "a binary");
      await check(file, sha256("a binary"));
      assert.ok(existsSync(file));
      await assert.rejects(check(file, sha256("another binary")), /not run/);
      assert.ok(!existsSync(file));
    });
  });
});

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import {
  cpSync,
  existsSync,
  globSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname } from "node:path";
import { LAYERS } from "../../.dependency-cruiser.ts";

const ROOT = `${import.meta.dirname}/../..`;
const read = (path: string): string => readFileSync(`${ROOT}/${path}`, "utf8");
const layers = new Map(Object.entries(LAYERS));

/** The part of `npm run check` that looks at imports, run in a folder with these files. */
function checkImports(files: Record<string, string>): { ok: boolean; output: string } {
  const folder = mkdtempSync(`${tmpdir()}/mailkeel-layers-`);
  for (const name of ["package.json", ".dependency-cruiser.ts"]) cpSync(`${ROOT}/${name}`, `${folder}/${name}`);
  symlinkSync(`${ROOT}/node_modules`, `${folder}/node_modules`);
  for (const [name, text] of Object.entries(files)) {
    mkdirSync(dirname(`${folder}/${name}`), { recursive: true });
    writeFileSync(`${folder}/${name}`, text);
  }
  const { scripts } = JSON.parse(read("package.json")) as { scripts: { check: string } };
  const [command] = scripts.check.split("&&").filter((part) => part.includes("depcruise"));
  assert.ok(command, "npm run check looks at imports");
  const { status, stdout, stderr } = spawnSync("sh", ["-c", command], {
    cwd: folder,
    encoding: "utf8",
    env: { ...process.env, PATH: `${ROOT}/node_modules/.bin:${process.env["PATH"]}`, NO_COLOR: "1" },
  });
  rmSync(folder, { recursive: true });
  return { ok: status === 0, output: stdout + stderr };
}

/** An import as it is written, of a value or of a type. */
const IMPORTS = {
  value: (to: string) => `import { thing } from "../${to}";\nexport const own = thing;\n`,
  type: (to: string) => `import type { Thing } from "../${to}";\nexport type Own = Thing;\n`,
};

/** A file of the layer that nothing else imports. */
const fileOf = (layer: string): string => `${layer}/thing.ts`;
const THING = "export const thing = 1;\nexport type Thing = number;\n";

describe("The layers", () => {
  it("stand in docs/architecture.md as they are enforced", () => {
    const section = read("docs/architecture.md").split("\n## Layers\n")[1]?.split("\n## ")[0] ?? "";
    const rows = [...section.matchAll(/^\| `(\w+)\/`\s*\|[^|]*\|([^|]*)\|$/gm)];
    const told = rows.map(([, layer = "", may = ""]) => [layer, may.trim()]);
    const enforced = [...layers].map(([layer, names]) => {
      const allowed = names.map((name) => name.replace(/^(\S+)/, "`$1`"));
      return [layer, allowed.join(", ") || "nothing of ours"];
    });
    assert.deepEqual(Object.fromEntries(told), Object.fromEntries(enforced));
  });

  it("are described by files that exist, as in CONTRIBUTING.md and docs/decisions.md", () => {
    const text = ["docs/architecture.md", "CONTRIBUTING.md", "docs/decisions.md"].map(read).join("\n");
    const names = [...text.matchAll(/`((\w+)\/[\w./-]*)`/g)].filter(([, , folder = ""]) => layers.has(folder));
    assert.ok(names.length > 60, `${names.length} names`);
    const missing = names.map(([, name = ""]) => name).filter((name) => !existsSync(`${ROOT}/${name}`));
    assert.deepEqual(missing, []);
  });

  it("have a rule for every folder with code", () => {
    const files = globSync("*/**/*.{ts,mts,cts,js,mjs,cjs}", { cwd: ROOT, exclude: ["node_modules/**"] });
    const folders = new Set(files.map((file) => file.split("/")[0] ?? ""));
    assert.deepEqual([...folders].sort(), [...layers.keys()].sort());
  });

  it("let the check fail on each import that they do not allow, of values and of types, and on no other", () => {
    const files: Record<string, string> = {};
    const forbidden = new Set<string>();
    for (const to of layers.keys()) files[fileOf(to)] = THING;
    for (const [from, allowed] of layers) {
      for (const to of layers.keys()) {
        if (from === to) continue;
        for (const [kind, write] of Object.entries(IMPORTS)) {
          const name = `${from}/${kind}-of-${to}.ts`;
          files[name] = write(fileOf(to));
          const isAllowed = allowed.includes(to) || (kind === "type" && allowed.includes(`${to} (types)`));
          if (!isAllowed) forbidden.add(`${name} → ${fileOf(to)}`);
        }
      }
    }
    const { ok, output } = checkImports(files);
    assert.equal(ok, false, output);
    const found = [...output.matchAll(/error \S+: (\S+ → \S+)/g)].map(([, edge]) => edge);
    assert.deepEqual([...new Set(found)].sort(), [...forbidden].sort());
  });

  it("let the check fail on each of the other rules", () => {
    const { ok, output } = checkImports({
      "domain/thing.ts": THING,
      "helpers/a.ts": IMPORTS.value("domain/thing.ts"),
      "domain/a.ts": 'import { b } from "./b.ts";\nexport const a = () => b;\n',
      "domain/b.ts": 'import { a } from "./a.ts";\nexport const b = () => a;\n',
      "domain/c.ts": 'import type { D } from "./d.ts";\nexport type C = D | 1;\n',
      "domain/d.ts": 'import type { C } from "./c.ts";\nexport type D = C | 2;\n',
      "workflows/a.ts": 'import { readFileSync } from "node:fs";\nexport const a = readFileSync;\n',
      "workflows/b.ts": 'import { z } from "zod";\nexport const a = z;\n',
      "test/api/a.ts": THING,
      "test/support/b.ts": IMPORTS.value("api/a.ts"),
      "bench/b.ts": IMPORTS.value("test/api/a.ts"),
      "api/a.ts": 'import { parse } from "yaml";\nexport const a = parse;\n',
      "api/b.ts": 'import { a } from "./nowhere.ts";\nexport const b = a;\n',
    });
    assert.equal(ok, false, output);
    const found = [...output.matchAll(/error (\S+): (\S+)/g)].map(([, rule, file]) => `${file}: ${rule}`);
    for (const expected of [
      /^helpers\/a.ts: every-file-has-a-layer$/,
      /^domain\/[ab].ts: no-cycles$/,
      /^domain\/[cd].ts: no-cycles$/,
      /^workflows\/a.ts: workflows-do-no-io$/,
      /^workflows\/b.ts: workflows-do-no-io$/,
      /^test\/support\/b.ts: test-support-is-shared$/,
      /^bench\/b.ts: bench-imports$/,
      /^api\/a.ts: product-without-development-packages$/,
      /^api\/b.ts: imports-resolve$/,
    ]) {
      assert.ok(
        found.some((error) => expected.test(error)),
        `${expected}\n${output}`,
      );
    }
  });

  it("see every import: no type is named by import(…), which the check does not read", () => {
    const files = globSync(`{${[...layers.keys()].join(",")}}/**/*.ts`, { cwd: ROOT });
    const hidden = files.filter((file) => /\bimport\("[^"]*"\)\.(?!then\b)/.test(read(file)));
    assert.deepEqual(hidden, []);
  });
});

import assert from "node:assert/strict";
import { existsSync, globSync, readFileSync } from "node:fs";
import { LAYERS } from "../../.dependency-cruiser.ts";

const ROOT = `${import.meta.dirname}/../..`;
const read = (path: string): string => readFileSync(`${ROOT}/${path}`, "utf8");
const layers = new Map(Object.entries(LAYERS));

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

  it("are described by files that exist, as in the other documents for developers", () => {
    const text = ["docs/architecture.md", "docs/concepts.md", "CONTRIBUTING.md", "docs/decisions.md"]
      .map(read)
      .join("\n");
    const names = [...text.matchAll(/`((\w+)\/[\w./-]*)`/g)].filter(([, , folder = ""]) => layers.has(folder));
    assert.ok(names.length > 60, `${names.length} names`);
    const missing = names.map(([, name = ""]) => name).filter((name) => !existsSync(`${ROOT}/${name}`));
    assert.deepEqual(missing, []);
  });

  it("have a rule for every folder with code", () => {
    const files = globSync("*/**/*.{ts,mts,cts,js,mjs,cjs}", { cwd: ROOT, exclude: ["node_modules/**", "built/**"] });
    const folders = new Set(files.map((file) => file.split("/")[0] ?? ""));
    assert.deepEqual([...folders].sort(), [...layers.keys()].sort());
  });

  it("see every import: no type is named by import(…), which the check does not read", () => {
    const files = globSync(`{${[...layers.keys()].join(",")}}/**/*.ts`, { cwd: ROOT });
    const hidden = files.filter((file) => /\bimport\("[^"]*"\)\.(?!then\b)/.test(read(file)));
    assert.deepEqual(hidden, []);
  });
});

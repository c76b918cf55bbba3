import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { gzipSync } from "node:zlib";
import { CONSOLE_FOLDER } from "../../api/console/folder.ts";
import { buildConsole } from "../../console/build.ts";
import { stack } from "../support/stack.ts";

/** Of any page, compressed. */
const FIRST_LOAD_BYTES = 250_000;
/** Of both editors of a draft together, beside its page. */
const EDITORS_BYTES = 350_000;

describe("The console's build", function () {
  this.timeout(60_000);
  before(() => buildConsole());

  it("is small at the first load", () => {
    const page = readFileSync(`${CONSOLE_FOLDER}/index.html`, "utf8");
    const files = [...page.matchAll(/(?:src|href)="\/console\/([^"]+)"/g)].map(([, file]) => file);
    assert.ok(files.length >= 2, page);
    const bytes = files.map((file) => gzipSync(readFileSync(`${CONSOLE_FOLDER}/${file}`)).length);
    const sum = bytes.reduce((all, one) => all + one, gzipSync(page).length);
    assert.ok(sum < FIRST_LOAD_BYTES, `${sum} bytes`);
  });

  it("is small at each page, and loads an editor with a draft alone", () => {
    type Chunk = { file: string; imports?: string[]; css?: string[] };
    const manifest: Record<string, Chunk> = JSON.parse(readFileSync(`${CONSOLE_FOLDER}/.vite/manifest.json`, "utf8"));
    const filesOf = (names: readonly string[], files = new Set<string>()): Set<string> => {
      for (const { file, css = [], imports = [] } of names.map((name) => manifest[name] ?? assert.fail(name))) {
        if (files.has(file)) continue;
        for (const one of [file, ...css]) files.add(one);
        filesOf(imports, files);
      }
      return files;
    };
    const bytesOf = (files: Iterable<string>) =>
      [...files].reduce((sum, file) => sum + readFileSync(`${CONSOLE_FOLDER}/${file}.gz`).length, 0);
    const pages = Object.keys(manifest).filter((name) => name.startsWith("pages/"));
    assert.ok(pages.length > 15, pages.join());
    for (const page of pages) {
      const bytes = bytesOf(filesOf(["index.html", page]));
      assert.ok(bytes < FIRST_LOAD_BYTES, `${page}: ${bytes} bytes`);
    }
    const ofPage = filesOf(["index.html", "pages/draft.tsx"]);
    const ofEditors = filesOf(["parts/draft/blocks/editor.tsx", "parts/draft/html.tsx"]);
    const editors = [...ofEditors].filter((file) => !ofPage.has(file));
    const bytes = bytesOf(editors);
    assert.ok(editors.length >= 2 && bytes < EDITORS_BYTES, `${editors.join()}: ${bytes} bytes`);
  });

  it("is served with a strict policy, its files for good, and every other path below it as the page", async () => {
    const { origin } = await stack();
    const page = await fetch(`${origin}/console/team_x/live/lists`);
    const text = await page.text();
    assert.equal(page.status, 200);
    assert.match(page.headers.get("content-security-policy") ?? "", /default-src 'none';script-src 'self';/);
    assert.equal(page.headers.get("cache-control"), "no-cache");
    const [, script = ""] = /src="([^"]+)"/.exec(text) ?? [];
    const file = await fetch(`${origin}${script}`, { headers: { "accept-encoding": "gzip" } });
    assert.equal(file.status, 200);
    assert.match(file.headers.get("cache-control") ?? "", /immutable/);
    assert.match(file.headers.get("content-type") ?? "", /javascript/);
    assert.equal(file.headers.get("content-encoding"), "gzip");
    assert.equal((await fetch(`${origin}/console/assets/none.js`)).status, 404);
  });
});

import assert from "node:assert/strict";
import { readdir, readFile } from "node:fs/promises";
import { writeJson } from "../../stack/state.ts";
import { temporaryFolder } from "./support.ts";

describe("A file of the stack", () => {
  it("is whole when several writes are made at once, as after the death of several children", async () => {
    const folder = temporaryFolder();
    const file = `${folder}/stack.json`;
    const contents = Array.from({ length: 20 }, (_, i) => ({ pids: { api: i }, text: "x".repeat(10_000) }));
    await Promise.all(contents.map((content) => writeJson(file, content)));
    const { pids } = JSON.parse(await readFile(file, "utf8"));
    assert.ok(contents.some((content) => content.pids.api === pids.api));
    assert.deepEqual(await readdir(folder), ["stack.json"]);
  });
});

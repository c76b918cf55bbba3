import assert from "node:assert/strict";
import { mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { api, type Json } from "../support/api.ts";
import { app } from "../support/command.ts";
import { makeTeam } from "../support/factories.ts";

describe("npm run app -- import", () => {
  it("imports 100,000 lines, and changes nothing on the second run", async () => {
    const { team, keys } = await makeTeam();
    const file = `${mkdtempSync(`${tmpdir()}/mailkeel-app-`)}/many.csv`;
    const lines = Array.from({ length: 100_000 }, (_, i) => `person${i}@many.example,Änne${i},"O'Brien, ${i}"`);
    writeFileSync(file, `\uFEFFemail,first_name,last_name\r\n${lines.join("\r\n")}\r\n`);
    const list = (await api(keys.live).post("/lists", { name: "x" })).body.data.id;
    const run = async (): Promise<Json> =>
      (await app("import", file, "--team", team.id, "--list", list, "--json")).json;
    const first = await run();
    assert.deepEqual([first.created, first.list.added], [100_000, 100_000]);
    const { created, updated, unchanged } = await run();
    assert.deepEqual([created, updated, unchanged], [0, 0, 100_000]);
  });
});

import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { Processes } from "../../stack/processes.ts";

const LOOK_MS = 500;

describe("A child that starts", () => {
  let folder = "";
  const started: string[] = [];
  const processes = new Processes({ starting: (name) => started.push(name) }, { lookMs: LOOK_MS });
  before(async () => {
    folder = await mkdtemp(`${tmpdir()}/processes-`);
  });
  after(async () => {
    await processes.killAll();
    await rm(folder, { recursive: true });
  });
  const start = async (name: string, script: string) => {
    const entry = `${folder}/${name}.mjs`;
    await writeFile(entry, script);
    return processes.start({ name, entry, log: `${folder}/${name}.log`, env: process.env, graceMs: 1_000 });
  };

  it("is waited for as long as it works on it, and that is said", async () => {
    const works = `const end = Date.now() + ${3 * LOOK_MS}; while (Date.now() < end); process.send({ type: "ready" });`;
    await start("busy", works);
    assert.ok(started.includes("busy"));
  });

  it("is given up when it does nothing, with the end of its log", async () => {
    const waits = `console.log("waits for nothing"); setInterval(() => {}, 1_000);`;
    await assert.rejects(start("idle", waits), /idle did not start: it did nothing for 0.5 s.*waits for nothing/s);
  });

  it("is given up as soon as it ends", async () => {
    await assert.rejects(start("broken", "process.exit(3)"), /broken did not start: it stopped \(exit code 3\)/);
  });

  it("ends its error with the text that this run wrote, without lines of JSON and what earlier runs wrote", async () => {
    const refuses = (text: string) =>
      `console.log("${text}"); for (let i = 0; i < 100; i++) console.log('{"level":50}'); process.exitCode = 1;`;
    await assert.rejects(start("refused", refuses("SETTING: old")), /\nSETTING: old$/);
    await assert.rejects(start("refused", refuses("SETTING: new")), /refused\.log:\nSETTING: new$/);
  });
});

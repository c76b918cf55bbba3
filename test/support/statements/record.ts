/** Loaded with `--import`: writes each statement once to STATEMENTS_DIR, without values, for `check.ts`. */
import { appendFileSync } from "node:fs";
import { isMainThread } from "node:worker_threads";
import type { Recorded } from "./recorded.ts";

const ROOT = new URL("../../../", import.meta.url).href;
/** Lists of placeholders differ in length alone. */
const PLACEHOLDERS = /\$\d+(?:(?:,\s*|\), \()\$\d+)*/g;
const FRAMES = 40;

const programOf = (entry = ""): Recorded["program"] =>
  entry.endsWith("/api/main.ts") ? "api" : entry.endsWith("/workers/main.ts") ? "workers" : "other";

const folder = process.env["STATEMENTS_DIR"];
if (folder !== undefined && isMainThread) {
  const { Client } = (await import("pg")).default;
  const file = `${folder}/${process.pid}.jsonl`;
  const seen = new Set<string>();
  const query: (this: unknown, ...args: unknown[]) => unknown = Client.prototype.query;

  const record = (text: string, prepared: boolean) => {
    const key = `${prepared} ${text.replace(PLACEHOLDERS, "$")}`;
    if (seen.has(key)) return;
    seen.add(key);
    const limit = Error.stackTraceLimit;
    Error.stackTraceLimit = FRAMES;
    const frames = (new Error().stack ?? "").split("\n").slice(1);
    Error.stackTraceLimit = limit;
    const own = frames.flatMap((frame) => {
      const [, at] = /(file:\/\/[^)]+):\d+:\d+/.exec(frame) ?? [];
      return at?.startsWith(ROOT) && !/\/node_modules\/|\/test\/support\/|\/db\/|\/config\/tracing/.test(at)
        ? [at.slice(ROOT.length)]
        : [];
    });
    const line: Recorded = {
      program: programOf(process.argv[1]),
      text,
      prepared,
      from: [...new Set(own)],
      persists: frames.some((at) => /ChangeSetPersister/.test(at)),
    };
    appendFileSync(file, `${JSON.stringify(line)}\n`);
  };

  const recorded: typeof query = function (this: unknown, ...args) {
    const [first] = args;
    const { text, name } = typeof first === "string" ? { text: first } : (first as { text?: unknown; name?: unknown });
    if (typeof text === "string") record(text, name !== undefined);
    return query.apply(this, args);
  };
  Object.assign(Client.prototype, { query: recorded });
}

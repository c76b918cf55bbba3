import { execFile } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname } from "node:path";
import { promisify } from "node:util";
import { z } from "zod";
import { api } from "../test/support/api.ts";
import { makeTeam } from "../test/support/factories.ts";
import { measuredVariables, type StackChoice, withStack } from "../test/support/own-stack.ts";
import { type BenchReport, type Row, round, timed } from "./report.ts";

export interface ImportOptions extends StackChoice {
  lines: number;
  repeat: number;
}

const APP = `${import.meta.dirname}/../app/main.mjs`;
const run = promisify(execFile);

const report = z.object({
  rows: z.int(),
  created: z.int(),
  updated: z.int(),
  unchanged: z.int(),
  refused: z.int(),
  seconds: z.number(),
});
const createdList = z.object({ data: z.object({ id: z.string() }) });

/** `npm run app -- import` of a file, and once more of the same file. */
export function benchImport(options: ImportOptions): Promise<BenchReport> {
  const { lines, repeat } = options;
  return withStack(options, async () => {
    const folder = await mkdtemp(`${tmpdir()}/mailkeel-bench-csv-`);
    try {
      const file = `${folder}/people.csv`;
      await writeFile(file, csv(lines));
      const rows: Row[] = [];
      const problems: string[] = [];
      for (let i = 1; i <= repeat; i++) {
        const { team, keys } = await makeTeam();
        const list = await api(keys.live).post("/lists", { name: "Readers", optin: "SINGLE" });
        const listId = createdList.parse(list.body).data.id;
        for (const kind of ["first", "again"] as const) {
          const { ms, result } = await timed(() => importOnce(file, team.id, "--list", listId));
          rows.push({
            import: kind,
            run: String(i),
            "lines/s": round(lines / result.seconds),
            seconds: round(result.seconds, 2),
            "seconds with the start of the command": round(ms / 1_000, 2),
          });
          const expected = kind === "first" ? result.created : result.unchanged;
          if (expected !== lines) problems.push(`${kind} import of ${lines} lines: ${JSON.stringify(result)}`);
        }
      }
      return { bench: "import", options: { lines, repeat }, tables: { Import: rows }, problems };
    } finally {
      await rm(folder, { recursive: true });
    }
  });
}

/** `npm run app -- import` with further arguments. @returns its report */
export async function importOnce(file: string, team: string, ...further: string[]): Promise<z.infer<typeof report>> {
  const env = { ...measuredVariables(), DATA_DIR: dirname(process.env["MAILKEEL_STACK"] ?? "") };
  const args = [APP, "import", file, "--team", team, ...further, "--json"];
  const { stdout } = await run(process.execPath, args, { env });
  return report.parse(JSON.parse(stdout));
}

export function csv(lines: number): string {
  const rows = Array.from({ length: lines }, (_, i) => `person${i}@import.example,First${i},Last${i}`);
  return `email,first_name,last_name\n${rows.join("\n")}\n`;
}

import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { setTimeout as delay } from "node:timers/promises";
import { removeDataDir } from "../stack/postgres.ts";
import { measuredVariables } from "../test/support/own-stack.ts";
import { FREE_PORTS } from "../test/support/stack-settings.ts";
import { type BenchReport, median, type Row, round } from "./report.ts";

export interface StartOptions {
  repeat: number;
}

const ROOT = `${import.meta.dirname}/..`;
const GIVE_UP_MS = 180_000;
const POLL_MS = 10;

/** `npm start` until stack.json says that everything is ready, on a data folder that is new and on one that is not. */
export async function benchStart({ repeat }: StartOptions): Promise<BenchReport> {
  const rows: Row[] = [];
  for (let i = 1; i <= repeat; i++) {
    const parent = mkdtempSync(`${tmpdir()}/mailkeel-bench-start-`);
    const dataDir = `${parent}/data`;
    try {
      const first = await startOnce(dataDir);
      const again = await startOnce(dataDir);
      rows.push({ run: String(i), ...columns("new", first), ...columns("existing", again) });
    } finally {
      await removeDataDir(dataDir);
      rmSync(parent, { recursive: true, force: true });
    }
  }
  const of = (column: string) => median(rows.map((row) => Number(row[column])));
  const middle = Object.fromEntries(
    Object.keys(rows[0] ?? {}).map((column) => [column, column === "run" ? "median" : round(of(column), 2)]),
  );
  return {
    bench: "start",
    options: { repeat },
    tables: { "npm start, seconds": repeat > 1 ? [...rows, middle] : rows },
    problems: [],
  };
}

interface Timing {
  readySeconds: number;
  stopSeconds: number;
}

const columns = (data: string, { readySeconds, stopSeconds }: Timing): Row => ({
  [`${data} data, ready`]: round(readySeconds, 2),
  [`${data} data, stopped`]: round(stopSeconds, 2),
});

async function startOnce(dataDir: string): Promise<Timing> {
  const startedAt = performance.now();
  const child = spawn("npm", ["start", "--silent"], {
    cwd: ROOT,
    env: { ...measuredVariables(), ...FREE_PORTS, DATA_DIR: dataDir },
    stdio: ["ignore", "ignore", "pipe"],
    detached: true, // so that Ctrl-C can be pressed for all of it
  });
  let said = "";
  child.stderr.on("data", (chunk: Buffer) => {
    said += chunk.toString();
  });
  const exited = once(child, "exit");
  const pressCtrlC = () => process.kill(-(child.pid ?? 0), "SIGINT");
  process.once("exit", () => child.exitCode === null && child.signalCode === null && pressCtrlC());
  while (!existsSync(`${dataDir}/stack.json`)) {
    if (child.exitCode !== null) throw new Error(`npm start ended with ${child.exitCode}: ${said}`);
    if (performance.now() - startedAt > GIVE_UP_MS) throw new Error(`npm start is not ready: ${said}`);
    await delay(POLL_MS);
  }
  const readyAt = performance.now();
  pressCtrlC();
  await exited;
  return { readySeconds: (readyAt - startedAt) / 1_000, stopSeconds: (performance.now() - readyAt) / 1_000 };
}

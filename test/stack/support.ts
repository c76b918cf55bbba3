import assert from "node:assert/strict";
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { randomInt } from "node:crypto";
import { once } from "node:events";
import { existsSync, mkdtempSync, readFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { text } from "node:stream/consumers";
import { type EntityManager, openDatabase } from "../../db/orm.ts";
import { DEMO_FROM } from "../../stack/demo-team.ts";
import { removeDataDir } from "../../stack/postgres.ts";
import { isAlive } from "../../stack/processes.ts";
import type { StackFile } from "../../stack/state.ts";
import { until } from "../../stack/until.ts";
import { FREE_PORTS } from "../support/stack-settings.ts";

const ROOT = `${import.meta.dirname}/../..`;
const START_TIMEOUT_MS = 120_000;
const STOP_TIMEOUT_MS = 60_000;

/** Variables to find programs and the Temporal CLI; no setting of the stack that runs this test. */
const INHERITED = Object.fromEntries(
  ["PATH", "HOME", "XDG_CACHE_HOME", "TEMPORAL_CLI", "NODE_COMPILE_CACHE"].map((name) => [name, process.env[name]]),
);

/** A stack of the test's own, started as a user would. */
export interface SpawnedStack {
  process: ChildProcess;
  dataDir: string;
  output: () => string;
  exited: Promise<number | null>;
  file: () => StackFile;
  /** Resolves with stack.json once everything is up. */
  ready: () => Promise<StackFile>;
  /** Every process below it, its own included. */
  pids: () => number[];
}

const stacks: SpawnedStack[] = [];

/** Starts a stack on free ports with a data folder of its own. */
export function spawnStack({
  dataDir = temporaryFolder(),
  args = [] as readonly string[],
  env = {} as NodeJS.ProcessEnv,
} = {}): SpawnedStack {
  const child = spawn(process.execPath, [`${ROOT}/stack/start.mjs`, ...args], {
    cwd: ROOT,
    env: { ...INHERITED, ...FREE_PORTS, DATA_DIR: dataDir, ...env },
    stdio: ["ignore", "pipe", "pipe"],
  });
  let output = "";
  for (const stream of [child.stdout, child.stderr]) {
    stream.on("data", (chunk) => {
      output += chunk;
    });
  }
  const path = `${dataDir}/stack.json`;
  const file = () => JSON.parse(readFileSync(path, "utf8")) as StackFile;
  const stack: SpawnedStack = {
    process: child,
    dataDir,
    output: () => output,
    exited: new Promise((resolve) => child.once("close", resolve)),
    file,
    ready: async () => {
      const hasEnded = () => child.exitCode !== null;
      // A stack.json alone may be that of a stack that was killed.
      const isReady = () => output.includes("is ready") && existsSync(path);
      await until("the stack to be ready", () => isReady() || hasEnded(), { timeoutMs: START_TIMEOUT_MS });
      if (hasEnded()) throw new Error(`The stack ended with exit code ${child.exitCode}:\n${output}`);
      return file();
    },
    pids: () => (child.pid ? [child.pid, ...descendants(child.pid)] : []),
  };
  stacks.push(stack);
  return stack;
}

/** Stops a stack. @returns its exit code, once no process of it is left */
export async function stop(
  { process: child, exited, pids }: SpawnedStack,
  signal: NodeJS.Signals,
): Promise<number | null> {
  const running = pids();
  child.kill(signal);
  const code = await exited;
  await allGone(running);
  return code;
}

/** Works on the database of a stack with its owner's role. */
export async function inDatabase<T>(file: StackFile, work: (em: EntityManager) => Promise<T>): Promise<T> {
  const orm = await openDatabase(file.migrationDatabase, { poolMax: 2 });
  try {
    return await work(orm.em.fork());
  } finally {
    await orm.close(true);
  }
}

export const query = (file: StackFile, statement: string): Promise<Record<string, unknown>[]> =>
  inDatabase(file, (em) => em.execute(statement));

export const me = (file: StackFile, key = file.keys.live): Promise<Response> =>
  fetch(`${file.api}/me`, { headers: { authorization: `Bearer ${key}` } });

/** Leaves data that the next start of a stack must find. @returns checks that it has */
export async function leaveData(before: StackFile): Promise<(after: StackFile) => Promise<void>> {
  const answer = randomInt(1_000_000);
  await query(before, "DROP TABLE IF EXISTS kept");
  await query(before, `CREATE TABLE kept AS SELECT ${answer} AS answer`);
  return async (after) => {
    assert.deepEqual([after.keys, after.team], [before.keys, before.team]);
    assert.deepEqual(await query(after, "SELECT answer FROM kept"), [{ answer }]);
    assert.equal((await me(after)).status, 200);
    const accounts = await query(after, `SELECT port FROM email_accounts WHERE email = '${DEMO_FROM}'`);
    assert.deepEqual(
      accounts,
      [{ port: Number(new URL(after.mail.smtp).port) }],
      "the demo mails this start's catcher",
    );
  };
}

/** Runs the demo against the stack of a data folder. @returns its output */
export async function runDemo({ dataDir }: Pick<SpawnedStack, "dataDir">, ...args: string[]): Promise<string> {
  const child = spawn(process.execPath, [`${ROOT}/app/demo.ts`, ...args], {
    env: { ...INHERITED, DATA_DIR: dataDir },
    stdio: ["ignore", "pipe", "pipe"],
  });
  const [output, errors, [code]] = await Promise.all([text(child.stdout), text(child.stderr), once(child, "exit")]);
  assert.equal(code, 0, output + errors);
  return output;
}

export async function clearStacks(): Promise<void> {
  for (const stack of stacks.splice(0)) {
    stack.process.kill("SIGTERM");
    await stack.exited;
    await removeDataDir(stack.dataDir);
  }
}

export function temporaryFolder(): string {
  return mkdtempSync(`${tmpdir()}/mailkeel-stack-test-`);
}

export async function allGone(pids: number[]): Promise<void> {
  await until(`the end of ${pids.join(", ")}`, () => !pids.some(isRunning), { timeoutMs: STOP_TIMEOUT_MS });
}

/** Whether a process runs; one that has ended and was not waited for (a zombie) does not. */
function isRunning(pid: number): boolean {
  return isAlive(pid) && processes().some((entry) => entry.pid === pid && !entry.state.startsWith("Z"));
}

function processes(): { pid: number; parent: number; state: string }[] {
  const lines = execFileSync("ps", ["-A", "-o", "pid=,ppid=,stat="], { encoding: "utf8" }).trim().split("\n");
  return lines.map((line) => {
    const [pid, parent, state] = line.trim().split(/\s+/);
    return { pid: Number(pid), parent: Number(parent), state: state ?? "" };
  });
}

export function parentOf(pid: number): number {
  const entry = processes().find((each) => each.pid === pid);
  if (!entry) throw new Error(`there is no process ${pid}`);
  return entry.parent;
}

function descendants(root: number): number[] {
  const all = processes();
  const below = (parent: number): number[] =>
    all.filter((entry) => entry.parent === parent).flatMap(({ pid }) => [pid, ...below(pid)]);
  return below(root);
}

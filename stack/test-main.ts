/**
 * `npm test`: whole stacks on free ports with data of their own, and mocha against them. `npm run test:real` is this with
 * `--real`: the tests that need programs of third parties.
 */
import { spawn } from "node:child_process";
import { randomInt } from "node:crypto";
import { existsSync, globSync, mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname } from "node:path";
import { PORT_PICKS } from "../config/ports.ts";
import { reservePorts } from "./infra.ts";
import { removeDataDir } from "./postgres.ts";
import { FREE_PORTS, NO_RATE_LIMITS, readStackSettings, shellVariables } from "./settings.ts";
import { COMPILE_CACHE, Stack } from "./stack.ts";
import { explain, onSignals } from "./terminal.ts";

const TESTS = "test/**/*.test.ts";
const REAL_TESTS = "test/real/**/*.test.ts";
/** Run after all others: they look at what the stacks of all lanes have recorded. */
const LAST_TESTS = "test/last/**/*.test.ts";
/** Stacks at once, each with a mocha of its own: the tests wait more than they compute. */
const LANES = 4;
/** Files that a mocha runs; then its lane takes the next ones. */
const FILES_AT_ONCE = 4;
/** Folders whose files take longest: they come first, so that no lane is left with one of them at the end. */
const LONG_FOLDERS = ["test/stack", "test/sends", "test/webhooks", "test/app", "test/every-endpoint", "test/workers"];
const ROOT = `${import.meta.dirname}/..`;
/** Loaded into the processes of the stack: writes down the statements they run. */
const STATEMENT_RECORDER = new URL("../test/support/statements/record.ts", import.meta.url).href;

/** Settings that make waits short and requests many. */
const QUICK = {
  DEFERRAL_LADDER_SECONDS: "1,1,2",
  SMTP_TIMEOUT_MS: "5000",
  WEBHOOK_LADDER_SECONDS: "0,1,1,2",
  WEBHOOK_TIMEOUT_MS: "3000",
  ...NO_RATE_LIMITS,
};

/** Ports of webhook receivers per lane: the only addresses of this machine that webhooks may reach. */
const RECEIVERS_PER_LANE = 8;
/** Below those that stacks pick: tests bring up stacks while no receiver listens. */
const RECEIVER_PORTS = [7_000, 10_000] as const;

/** Whether an argument of mocha chooses among the tests. */
const FILTERS = /^(?:-g|--grep|-f|--fgrep)(?:=|$)/;

function namesTests(arg: string, before: string | undefined): boolean {
  if (arg.startsWith("-") || FILTERS.test(before ?? "")) return false;
  return arg.endsWith(".ts") || statSync(arg, { throwIfNoEntry: false })?.isDirectory() === true;
}

/** A stack and the mocha that runs against it. */
interface Lane {
  stack: Stack;
  dataDir: string;
  mocha?: ReturnType<typeof spawn>;
}

/** Runs mocha against the stack of a lane. @returns its exit code */
type Run = (args: readonly string[], report: Report) => Promise<number>;

/** Stacks, each with a mocha of its own. */
class Lanes {
  readonly #source = shellVariables();
  readonly #open: Lane[] = [];
  /** Where the processes of all stacks write down their statements; deleted with the data folder of the first. */
  #statements: string | undefined;

  /** Brings a stack up. @returns a function that runs mocha against it */
  async open(receivers: readonly number[]): Promise<Run> {
    const dataDir = mkdtempSync(`${tmpdir()}/mailkeel-test-`);
    this.#statements ??= mkdtempSync(`${dataDir}/statements-`);
    const statements = this.#statements;
    const settings = readStackSettings({ ...this.#source, ...FREE_PORTS, DATA_DIR: dataDir });
    const allowed = receivers.map((port) => `127.0.0.1:${port}`).join(",");
    const stack = new Stack({
      settings,
      source: {
        ...this.#source,
        ...QUICK,
        WEBHOOK_ALLOWED_HOSTS: allowed,
        NODE_OPTIONS: `${this.#source["NODE_OPTIONS"] ?? ""} --import ${STATEMENT_RECORDER}`,
        STATEMENTS_DIR: statements,
      },
      ephemeral: true,
      step: (name, work) => work((message) => console.log(`  … ${name}: ${message}`)),
      // Tests kill children on purpose; the logs say when.
      say: () => {},
    });
    const lane: Lane = { stack, dataDir };
    this.#open.push(lane);
    const { file } = await stack.start();
    const temporary = `${dataDir}/tmp`;
    mkdirSync(temporary, { mode: 0o711 });
    return (args, { summary, buffered, statementsLater }) => {
      const child = spawn(process.execPath, [`${ROOT}/node_modules/mocha/bin/mocha.js`, ...args], {
        cwd: ROOT,
        env: {
          ...process.env,
          MAILKEEL_STACK: file,
          NODE_COMPILE_CACHE: COMPILE_CACHE,
          ...(statementsLater ? {} : { STATEMENTS_DIR: statements }),
          MAILKEEL_RECEIVERS: receivers.join(","),
          // Files that tests leave behind are deleted with the data folder.
          TMPDIR: temporary,
          ...(summary === undefined ? {} : { TEST_SUMMARY: summary }),
        },
        stdio: buffered ? ["ignore", "pipe", "pipe"] : "inherit",
      });
      lane.mocha = child;
      // Two reports at once cannot be read: this one is printed when its mocha has ended.
      const output: Buffer[] = [];
      for (const stream of [child.stdout, child.stderr]) stream?.on("data", (chunk: Buffer) => output.push(chunk));
      return new Promise((resolve) =>
        child.once("close", (code) => {
          if (buffered) process.stdout.write(Buffer.concat(output));
          resolve(code ?? 1);
        }),
      );
    };
  }

  close(): Promise<void> {
    return this.#end("SIGTERM", (stack) => stack.stop());
  }

  kill(): Promise<void> {
    return this.#end("SIGKILL", (stack) => stack.kill());
  }

  async #end(signal: NodeJS.Signals, end: (stack: Stack) => Promise<void>): Promise<void> {
    for (const { mocha } of this.#open) mocha?.kill(signal);
    await Promise.all(this.#open.map(({ stack }) => end(stack)));
    for (const { dataDir } of this.#open) await removeDataDir(dataDir);
  }
}

interface Report {
  /** File for the summary. */
  summary?: string | undefined;
  /** Its report is printed at its end. */
  buffered?: boolean;
  /** It leaves the statements of the stacks to a later mocha, which checks those of all. */
  statementsLater?: boolean;
}

/** The file that test/support/reporter.cjs writes: the counts, the failures, and the tests and files that took longest. */
interface Summary {
  passed: number;
  failed: number;
  failures: { name: string; file: string; text: string }[];
  tests: { name: string; ms: number }[];
  files: { name: string; ms: number }[];
}

const MOCHA_WITHOUT_SUMMARY: Summary = {
  passed: 0,
  failed: 1,
  failures: [{ name: "A mocha ended before it wrote its summary", file: "", text: "Its report above says why." }],
  tests: [],
  files: [],
};

/** Writes the summaries of several mochas as one; a mocha that wrote none has failed. */
function joinSummaries(file: string, parts: readonly string[]): void {
  const summaries = parts.map(
    (part): Summary => (existsSync(part) ? JSON.parse(readFileSync(part, "utf8")) : MOCHA_WITHOUT_SUMMARY),
  );
  const sum = (of: "passed" | "failed") => summaries.reduce((total, summary) => total + summary[of], 0);
  const all = (of: "tests" | "files") => summaries.flatMap((summary) => summary[of]).sort((a, b) => b.ms - a.ms);
  const failures = summaries.flatMap((summary) => summary.failures);
  const counts = { passed: sum("passed"), failed: sum("failed"), failures };
  const joined: Summary = { ...counts, tests: all("tests"), files: all("files") };
  writeFileSync(file, JSON.stringify(joined));
}

/**
 * The files in parts of one folder each. Those of the long folders come first, a part of each in turn: tests that bring
 * up stacks of their own are not at work in all lanes at once.
 */
function partsOf(files: readonly string[]): string[][] {
  const folders = Object.groupBy(files, (file) => dirname(file));
  const parts = Object.entries(folders).flatMap(([folder, all = []]) =>
    Array.from({ length: Math.ceil(all.length / FILES_AT_ONCE) }, (_, turn) => ({
      turn: LONG_FOLDERS.includes(folder) ? turn : files.length + turn,
      files: all.slice(turn * FILES_AT_ONCE, (turn + 1) * FILES_AT_ONCE),
    })),
  );
  return parts.sort((a, b) => a.turn - b.turn).map((part) => part.files);
}

/** Ports of webhook receivers, for each lane: in a row, and all of them free. */
async function receiverPorts(): Promise<number[][]> {
  const count = LANES * RECEIVERS_PER_LANE;
  for (let tries = 1; ; tries++) {
    const first = randomInt(RECEIVER_PORTS[0], RECEIVER_PORTS[1] - count);
    const ports = Array.from({ length: count }, (_, i) => first + i);
    try {
      await reservePorts(Object.fromEntries(ports.map((port) => [`receiver ${port}`, { port }])));
      return Array.from({ length: LANES }, (_, n) => ports.slice(n * RECEIVERS_PER_LANE, (n + 1) * RECEIVERS_PER_LANE));
    } catch (error) {
      if (tries === PORT_PICKS) throw error;
    }
  }
}

async function main(): Promise<number> {
  const isReal = process.argv.includes("--real");
  const args = process.argv.slice(2).filter((arg) => arg !== "--real");
  const namesSome = args.some((arg, i) => namesTests(arg, args[i - 1]));
  const receivers = await receiverPorts();
  const lanes = new Lanes();
  const interrupted = (end: () => Promise<void>) => async () => {
    await end();
    process.exit(130);
  };
  onSignals(
    interrupted(() => lanes.close()),
    interrupted(() => lanes.kill()),
  );
  try {
    const open = (n: number) => lanes.open(receivers[n] ?? []);
    const runFirst = await open(0);
    if (namesSome) return await runFirst(args, {});
    if (isReal) return await runFirst([...args, ...globSync(REAL_TESTS, { cwd: ROOT }).sort()], {});
    const files = globSync(TESTS, { cwd: ROOT, exclude: [REAL_TESTS, LAST_TESTS] }).sort();
    // A mocha in which no test matches would fail.
    if (args.some((arg) => FILTERS.test(arg))) return await runFirst([...args, ...files], {});
    const summary = process.env["TEST_SUMMARY"];
    const parts: string[] = [];
    const codes: number[] = [];
    const queue = partsOf(files);
    const runPart = async (run: Run, named: readonly string[], report: Report): Promise<void> => {
      const part = summary === undefined ? undefined : `${summary}.${parts.length}`;
      if (part !== undefined) parts.push(part);
      codes.push(await run([...args, ...named], { ...report, summary: part, buffered: true }));
    };
    const takeFiles = async (run: Run): Promise<void> => {
      for (let next = queue.shift(); next !== undefined; next = queue.shift()) {
        await runPart(run, next, { statementsLater: true });
      }
    };
    const taking = [takeFiles(runFirst)];
    try {
      // One after the other: a stack sees which ports those before it have taken. The first lanes work meanwhile.
      for (let n = 1; n < LANES; n++) taking.push(takeFiles(await open(n)));
    } catch (error) {
      queue.splice(0);
      throw error;
    }
    await Promise.all(taking);
    // A check takes seconds, and more the more was recorded: one after all mochas instead of one after each.
    await runPart(runFirst, globSync(LAST_TESTS, { cwd: ROOT }).sort(), {});
    if (summary) joinSummaries(summary, parts);
    for (const part of parts) rmSync(part, { force: true });
    return Math.max(...codes);
  } finally {
    await lanes.close();
  }
}

main().then(
  (code) => process.exit(code),
  (error) => {
    console.error(`The tests could not be run.\n${explain(error)}`);
    process.exit(1);
  },
);

/** `npm test`: three stacks on free ports, a process beside each that runs test files, and one for files without a stack. */
import { type ChildProcess, fork } from "node:child_process";
import { randomInt } from "node:crypto";
import { once } from "node:events";
import { existsSync, globSync, mkdirSync, mkdtempSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { flushCompileCache } from "node:module";
import { tmpdir } from "node:os";
import { resolve } from "node:path";
import { parseArgs } from "node:util";
import { PORT_PICKS } from "../config/ports.ts";
import { reservePorts } from "../stack/infra.ts";
import { removeDataDir } from "../stack/postgres.ts";
import { StackError } from "../stack/processes.ts";
import { readStackSettings } from "../stack/settings.ts";
import { Stack } from "../stack/stack.ts";
import { explain, onSignals } from "../stack/terminal.ts";
import type { Failure, Job, JobResult } from "./support/lane.ts";
import { QUICK } from "./support/quick.ts";
import { FREE_PORTS, NO_RATE_LIMITS, shellVariables } from "./support/stack-settings.ts";

const ROOT = resolve(import.meta.dirname, "..");
const TESTS = "test/**/*.test.ts";
const LONG_TESTS = "test/**/*.long.test.ts";
/** Calls of a file that also has long tests (`support/long.ts`). */
const HAS_LONG_PART = /\b(testsOf|kindOf|isLong)\(/;
const REAL_TESTS = "test/real/**/*.test.ts";
/** Needs a browser, which root gets from Debian. */
const BROWSER_TESTS = "test/console/walk.test.ts";
/** Looks at what the stacks of all lanes have recorded. */
const LAST_TEST = "test/last/statements.test.ts";
/** Tests wait for much: two would leave a third of two cores idle. */
const STACKS = 3;
/** Folders with the files that take longest come first, and then large files: no lane is left with a long one at the end. */
const FIRST_FOLDERS = /^test\/(stack|sends|webhooks|app|workers|console)\//;
/** Tests and files that are listed at the end. */
const LISTED = 10;
const INTERRUPTED = 130;
/** Loaded into the processes of the stack: writes down the statements they run. */
const STATEMENT_RECORDER = new URL("support/statements/record.ts", import.meta.url).href;

/** Ports of webhook receivers per lane: the only addresses of this machine that webhooks may reach. */
const RECEIVERS_PER_LANE = 8;
/** Below those that stacks pick: tests bring up stacks while no receiver listens. */
const RECEIVER_PORTS = [7_000, 10_000] as const;

async function receiverPorts(): Promise<number[][]> {
  const lanes = STACKS + 1;
  const count = lanes * RECEIVERS_PER_LANE;
  for (let tries = 1; ; tries++) {
    const first = randomInt(RECEIVER_PORTS[0], RECEIVER_PORTS[1] - count);
    const ports = Array.from({ length: count }, (_, i) => first + i);
    try {
      await reservePorts(Object.fromEntries(ports.map((port) => [`receiver ${port}`, { port }])));
      return Array.from({ length: lanes }, (_, n) => ports.slice(n * RECEIVERS_PER_LANE, (n + 1) * RECEIVERS_PER_LANE));
    } catch (error) {
      if (tries === PORT_PICKS) throw error;
    }
  }
}

const STACK = `${ROOT}/test/support/stack.ts`;
const BROWSER = `${ROOT}/test/support/browser.ts`;
const IMPORTED = /(?:from|import\()\s*"(\.[^"]+\.ts)"/g;

/** The modules that each file imports: read once, as many tests import most of the service. */
const importsOf = new Map<string, readonly string[]>();

function readImports(file: string): readonly string[] {
  // A test may hold the text of an import.
  if (!existsSync(file)) return [];
  return [...readFileSync(file, "utf8").matchAll(IMPORTED)].map(([, path = ""]) => resolve(file, "..", path));
}

/** Whether a file is this module, or imports it, if only by others. */
function needs(file: string, module: string, seen = new Set<string>()): boolean {
  if (file === module) return true;
  if (seen.has(file)) return false;
  seen.add(file);
  const imports = importsOf.get(file) ?? readImports(file);
  importsOf.set(file, imports);
  return imports.some((path) => needs(path, module, seen));
}

interface LaneOptions {
  receivers: readonly number[];
  /** Folder in which the processes of all lanes write down their statements. */
  statements: string;
  hasStack: boolean;
  /** Prints each test as it ends. */
  verbose: boolean;
  long: boolean;
}

/** A process that runs test files, with a stack of its own where it has one. */
class Lane {
  readonly #source = shellVariables();
  readonly #dataDir = mkdtempSync(`${tmpdir()}/mailkeel-test-`);
  readonly #options: LaneOptions;
  readonly #stack: Stack | undefined;
  #child: ChildProcess | undefined;
  /** Rejects when the child ends. */
  #ended: Promise<never> | undefined;

  constructor(options: LaneOptions) {
    this.#options = options;
    if (options.hasStack) this.#stack = this.#newStack(options);
  }

  #newStack({ receivers, statements }: LaneOptions): Stack {
    return new Stack({
      settings: readStackSettings({ ...this.#source, ...FREE_PORTS, DATA_DIR: this.#dataDir }),
      source: {
        ...this.#source,
        ...QUICK,
        ...NO_RATE_LIMITS,
        WEBHOOK_ALLOWED_HOSTS: receivers.map((port) => `127.0.0.1:${port}`).join(","),
        NODE_OPTIONS: `${this.#source["NODE_OPTIONS"] ?? ""} --import ${STATEMENT_RECORDER}`,
        STATEMENTS_DIR: statements,
      },
      ephemeral: true,
      step: (name, work) => work((message) => console.log(`  … ${name}: ${message}`)),
      // Tests kill children on purpose; the logs say when.
      say: () => {},
    });
  }

  async open(): Promise<void> {
    const started = await this.#stack?.start();
    const temporary = `${this.#dataDir}/tmp`;
    mkdirSync(temporary, { mode: 0o711 });
    this.#child = fork(`${import.meta.dirname}/support/lane.ts`, {
      cwd: ROOT,
      env: {
        ...process.env,
        ...(started ? { MAILKEEL_STACK: started.file } : {}),
        STATEMENTS_DIR: this.#options.statements,
        ...(this.#options.long ? { TEST_LONG: "1" } : {}),
        MAILKEEL_RECEIVERS: this.#options.receivers.join(","),
        // Files that tests leave behind are deleted with the data folder.
        TMPDIR: temporary,
      },
    });
    this.#ended = once(this.#child, "exit").then(([code]) =>
      Promise.reject(new Error(`A test process ended with ${code}`)),
    );
    this.#ended.catch(() => {});
    await Promise.race([once(this.#child, "message"), this.#ended]);
  }

  /** @throws {Error} when the process ends first */
  async run(job: Omit<Job, "verbose">): Promise<JobResult> {
    const child = this.#child;
    if (child === undefined || this.#ended === undefined) throw new Error("the lane is not open");
    child.send({ ...job, verbose: this.#options.verbose } satisfies Job);
    const [result] = await Promise.race([once(child, "message"), this.#ended]);
    return result;
  }

  async close(): Promise<void> {
    const child = this.#child;
    if (child && child.exitCode === null && child.signalCode === null) {
      const gone = once(child, "exit");
      child.kill("SIGKILL");
      await gone;
    }
    await this.#stack?.kill();
    await removeDataDir(this.#dataDir);
  }
}

class Report {
  passed = 0;
  readonly failures: Failure[] = [];
  readonly #tests: { name: string; ms: number }[] = [];
  readonly #files: { name: string; ms: number }[] = [];

  add(files: readonly string[], result: JobResult, ms: number): void {
    const name = files.length === 1 ? (files[0] ?? "") : `${files.length} files`;
    this.passed += result.passed;
    this.failures.push(...result.failures);
    this.#tests.push(...result.tests);
    this.#files.push({ name, ms });
    const failed = result.failures.length > 0 ? `, ${result.failures.length} FAILED` : "";
    console.log(`${(ms / 1_000).toFixed(1).padStart(7)} s  ${name}: ${result.passed} passed${failed}`);
  }

  print(): void {
    for (const [what, entries] of Object.entries({ tests: this.#tests, files: this.#files })) {
      console.log(`\nSlowest ${what}:`);
      for (const { name, ms } of entries.toSorted((a, b) => b.ms - a.ms).slice(0, LISTED))
        console.log(`${(ms / 1_000).toFixed(1).padStart(7)} s  ${name}`);
    }
    // Last, because some readers see only the end of the report.
    if (this.failures.length > 0) console.log("\nFailed tests:");
    for (const { name, file, text } of this.failures) console.log(`\n${name} (${file})\n${text}`);
    console.log(`\n${this.passed} passed, ${this.failures.length} failed`);
  }
}

interface Choice {
  files: readonly string[];
  /** Runs all files at once, in one lane, and prints each test. */
  together: boolean;
  long: boolean;
  options: Omit<Job, "files" | "verbose">;
}

/** @throws {StackError} for an option or a file that there is not */
function parsed(args: readonly string[]) {
  const options = {
    long: { type: "boolean" },
    real: { type: "boolean" },
    grep: { type: "string", short: "g" },
    bail: { type: "boolean", short: "b" },
    timeout: { type: "string" },
  } as const;
  try {
    const { values, positionals } = parseArgs({ args: [...args], allowPositionals: true, options });
    for (const path of positionals) statSync(path);
    if (values.timeout !== undefined && !/^\d+$/.test(values.timeout)) throw new Error("--timeout takes milliseconds");
    return { values, positionals };
  } catch (error) {
    throw new StackError(error instanceof Error ? error.message : String(error));
  }
}

function chosen(args: readonly string[]): Choice {
  const { values, positionals } = parsed(args);
  const { long = false, real, grep, bail, timeout } = values;
  const find = (pattern: string, exclude: string[]) => globSync(pattern, { cwd: ROOT, exclude }).sort();
  const named = positionals.flatMap((path) =>
    statSync(path).isDirectory() ? globSync(`${path}/**/*.test.ts`, { exclude: [LAST_TEST] }).sort() : [path],
  );
  const short = () => find(TESTS, [LONG_TESTS, REAL_TESTS, LAST_TEST]);
  const withLongPart = () => short().filter((file) => HAS_LONG_PART.test(readFileSync(`${ROOT}/${file}`, "utf8")));
  const all = () =>
    real ? [...find(REAL_TESTS, []), BROWSER_TESTS] : long ? [...find(LONG_TESTS, []), ...withLongPart()] : short();
  const isPart = named.length > 0 || grep !== undefined;
  return {
    files: named.length > 0 ? named : all(),
    together: isPart || real === true,
    long,
    options: { grep, bail, timeoutMs: timeout === undefined ? undefined : Number(timeout), strict: !isPart },
  };
}

/** Compiles the service once: each process of the stacks would, and one that a test kills does not keep it. */
async function compileService(): Promise<void> {
  await Promise.all([import("../api/app.ts"), import("../workers/pools.ts")]);
  flushCompileCache();
}

async function main(): Promise<number> {
  const { files, together, long, options } = chosen(process.argv.slice(2));
  if (!together) await compileService();
  const receivers = await receiverPorts();
  const statements = mkdtempSync(`${tmpdir()}/mailkeel-statements-`);
  const lanes = receivers
    .slice(0, together ? 1 : undefined)
    .map((ports, n) => new Lane({ receivers: ports, statements, hasStack: n < STACKS, verbose: together, long }));
  const report = new Report();
  let isInterrupted = false;
  const closeAll = async () => {
    await Promise.allSettled(lanes.map((lane) => lane.close()));
    await removeDataDir(statements);
  };
  const interrupt = () => {
    isInterrupted = true;
    closeAll().finally(() => process.exit(INTERRUPTED));
  };
  onSignals(interrupt, interrupt);
  const runOn = async (lane: Lane, some: readonly string[], given = options): Promise<void> => {
    const startedAt = performance.now();
    const result = await lane.run({ ...given, files: some });
    report.add(some, result, performance.now() - startedAt);
  };
  const opensBrowser = ([file]: readonly string[]) => needs(`${ROOT}/${file}`, BROWSER);
  let browsers = 0;
  const takeFiles = async (lane: Lane, queue: string[][]): Promise<void> => {
    while (queue.length > 0) {
      // One at a time, while there are others: a browser takes a core, which two would take from all lanes.
      const other = browsers === 0 ? 0 : queue.findIndex((some) => !opensBrowser(some));
      const [next = []] = queue.splice(Math.max(other, 0), 1);
      const isBrowser = Number(opensBrowser(next));
      browsers += isBrowser;
      await runOn(lane, next);
      browsers -= isBrowser;
    }
  };
  const [alone = [], others = []] = together
    ? [[], [[...files]]]
    : [false, true].map((wanted) =>
        files
          .filter((file) => needs(`${ROOT}/${file}`, STACK) === wanted)
          .map((file) => ({
            file,
            // The lane without a stack ends long before the others, and may begin with small files beside their start.
            isFirst: Number(wanted && FIRST_FOLDERS.test(file)),
            size: statSync(`${ROOT}/${file}`).size,
          }))
          .sort((a, b) => b.isFirst - a.isFirst || b.size - a.size)
          .map(({ file }) => [file]),
      );
  try {
    const taking: Promise<void>[] = [];
    try {
      // One after the other: a stack sees which ports those before it have taken. The lane without one works meanwhile.
      for (const [n, lane] of [...lanes.entries()].reverse()) {
        await lane.open();
        taking.push(takeFiles(lane, n < STACKS ? others : alone));
      }
    } catch (error) {
      others.splice(0);
      await Promise.allSettled(taking);
      throw error;
    }
    await Promise.all(taking);
    const [first] = lanes;
    if (first) await runOn(first, [LAST_TEST], { strict: true });
    report.print();
    const summary = process.env["TEST_SUMMARY"];
    if (summary) writeFileSync(summary, `${report.passed} ${report.failures.length}\n`);
    return report.failures.length > 0 || report.passed === 0 ? 1 : 0;
  } catch (error) {
    // A start or a run that the interrupt ended fails with an error of its own.
    if (isInterrupted) await new Promise(() => {});
    throw error;
  } finally {
    await closeAll();
  }
}

main().then(
  (code) => process.exit(code),
  (error) => {
    console.error(`The tests could not be run.\n${explain(error)}`);
    process.exit(1);
  },
);

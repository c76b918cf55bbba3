/** `npm test`: whole stacks on free ports with data of their own, and mocha against them. */
import { spawn } from "node:child_process";
import { existsSync, globSync, mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { reservePorts } from "./infra.ts";
import { removeDataDir } from "./postgres.ts";
import { FREE_PORTS, readStackSettings } from "./settings.ts";
import { Stack } from "./stack.ts";
import { explain, onSignals } from "./terminal.ts";

const ALL_TESTS = "test/**/*.test.ts";
/** Those that run beside the others, on a stack of their own: they wait more than they work. */
const BESIDE = /^test\/(stack|webhooks|workers|workflows)\//;
const ROOT = `${import.meta.dirname}/..`;

/** The shell's settings for a real database or cluster are none of a test's business: only these are passed on. */
const KEPT =
  /^(PATH|HOME|USER|SHELL|TERM|TMPDIR|LANG|XDG_CACHE_HOME|LOG_LEVEL|TEMPORAL_CLI|(NODE_|GO|LC_|SSL_).*|.*_proxy)$/i;

/** Waits short enough to be waited for. */
const QUICK = {
  DEFERRAL_LADDER_SECONDS: "1,1,2",
  SMTP_TIMEOUT_MS: "5000",
  WEBHOOK_LADDER_SECONDS: "0,1,1,2",
  WEBHOOK_TIMEOUT_MS: "2000",
};

/** Where receivers of the tests may listen: the only addresses of this machine that webhooks may reach. */
const RECEIVERS = ["a", "b", "c", "d", "e", "f", "g", "h"];

function namesTests(arg: string, before: string | undefined): boolean {
  if (arg.startsWith("-") || /^(-g|--grep|-f|--fgrep)$/.test(before ?? "")) return false;
  return arg.endsWith(".ts") || statSync(arg, { throwIfNoEntry: false })?.isDirectory() === true;
}

/** What runs of a lane, to end it early. */
interface Lane {
  stack: Stack;
  dataDir: string;
  mocha?: ReturnType<typeof spawn>;
}

/** One mocha over a stack of its own. */
class Lanes {
  readonly #source = Object.fromEntries(Object.entries(process.env).filter(([name]) => KEPT.test(name)));
  readonly #open: Lane[] = [];

  /** Brings a stack up. @returns what runs mocha against it */
  async open(receivers: readonly number[]): Promise<(args: readonly string[], report: Report) => Promise<number>> {
    const dataDir = mkdtempSync(`${tmpdir()}/mailkeel-test-`);
    const settings = readStackSettings({ ...this.#source, ...FREE_PORTS, DATA_DIR: dataDir });
    const allowed = receivers.map((port) => `127.0.0.1:${port}`).join(",");
    const stack = new Stack({
      settings,
      source: { ...this.#source, ...QUICK, WEBHOOK_ALLOWED_HOSTS: allowed },
      ephemeral: true,
      step: (name, work) => work((message) => console.log(`  … ${name}: ${message}`)),
      // Tests kill children on purpose; what became of them is in the logs.
      say: () => {},
    });
    const lane: Lane = { stack, dataDir };
    this.#open.push(lane);
    const { file } = await stack.start();
    const temporary = `${dataDir}/tmp`;
    mkdirSync(temporary, { mode: 0o711 });
    return (args, { summary, beside }) => {
      const child = spawn(process.execPath, [`${ROOT}/node_modules/mocha/bin/mocha.js`, ...args], {
        cwd: ROOT,
        env: {
          ...process.env,
          MAILKEEL_STACK: file,
          MAILKEEL_RECEIVERS: receivers.join(","),
          // What tests leave behind goes with our data.
          TMPDIR: temporary,
          ...(summary === undefined ? {} : { TEST_SUMMARY: summary }),
        },
        stdio: beside ? ["ignore", "pipe", "pipe"] : "inherit",
      });
      lane.mocha = child;
      // What two say at once nobody can read: the one beside is told of when it is over.
      const said: Buffer[] = [];
      for (const stream of [child.stdout, child.stderr]) stream?.on("data", (chunk: Buffer) => said.push(chunk));
      return new Promise((resolve) =>
        child.once("close", (code) => {
          if (beside) process.stdout.write(Buffer.concat(said));
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
  /** Where the counts go. */
  summary?: string | undefined;
  /** It runs beside another. */
  beside?: boolean;
}

/** What test/support/reporter.cjs writes: the counts, and the tests and files that took longest. */
interface Summary {
  passed: number;
  failed: number;
  tests: { name: string; ms: number }[];
  files: { name: string; ms: number }[];
}

/** Writes the summaries of several mochas as one; a mocha that wrote none has failed. */
function joinSummaries(file: string, parts: readonly string[]): void {
  const summaries = parts.map(
    (part): Summary =>
      existsSync(part) ? JSON.parse(readFileSync(part, "utf8")) : { passed: 0, failed: 1, tests: [], files: [] },
  );
  const sum = (of: "passed" | "failed") => summaries.reduce((total, summary) => total + summary[of], 0);
  const all = (of: "tests" | "files") => summaries.flatMap((summary) => summary[of]).sort((a, b) => b.ms - a.ms);
  const joined: Summary = { passed: sum("passed"), failed: sum("failed"), tests: all("tests"), files: all("files") };
  writeFileSync(file, JSON.stringify(joined));
}

async function main(): Promise<number> {
  const args = process.argv.slice(2);
  const some = args.some((arg, i) => namesTests(arg, args[i - 1]));
  const names = ["first", "second"].flatMap((lane) => RECEIVERS.map((name) => `${lane} ${name}`));
  const ports = Object.values(await reservePorts(Object.fromEntries(names.map((name) => [name, { port: 0 }]))));
  const lanes = new Lanes();
  const ended = (end: () => Promise<void>) => async () => {
    await end();
    process.exit(130);
  };
  onSignals(
    ended(() => lanes.close()),
    ended(() => lanes.kill()),
  );
  try {
    const run = await lanes.open(ports.slice(0, RECEIVERS.length));
    if (some) return await run(args, {});
    // One after the other: the second sees which ports the first has taken.
    const runBeside = await lanes.open(ports.slice(RECEIVERS.length));
    const files = globSync(ALL_TESTS, { cwd: ROOT }).sort();
    const beside = files.filter((file) => BESIDE.test(file));
    const summary = process.env["TEST_SUMMARY"];
    const parts = summary ? [`${summary}.1`, `${summary}.2`] : [];
    const codes = await Promise.all([
      run([...args, ...files.filter((file) => !BESIDE.test(file))], { summary: parts[0] }),
      runBeside([...args, ...beside], { summary: parts[1], beside: true }),
    ]);
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

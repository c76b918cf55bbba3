/** A process of `npm test`. What the files import is loaded once, and connections stay open until the end. */
import { relative } from "node:path";
import Mocha from "mocha";
import { holdSchedules } from "./temporal.ts";

/** How long a test may take: a failure must not look like a slow machine, nor the other way round. */
const TIMEOUT_MS = 180_000;
/** Of the text of a failure. */
const FAILURE_CHARACTERS = 3_000;

export interface Job {
  files: readonly string[];
  /** Regular expression that the titles of tests must match. */
  grep?: string | undefined;
  /** Stops at the first failure. */
  bail?: boolean | undefined;
  timeoutMs?: number | undefined;
  /** Neither `only` nor `skip` may be in the files, and each must hold a test. */
  strict: boolean;
  /** Prints each test as it ends. */
  verbose: boolean;
}

export interface Failure {
  name: string;
  file: string;
  text: string;
}

export interface JobResult {
  passed: number;
  failures: Failure[];
  tests: { name: string; ms: number }[];
}

async function run({ files, grep, bail = false, timeoutMs, strict, verbose }: Job): Promise<JobResult> {
  const mocha = new Mocha({
    timeout: timeoutMs ?? TIMEOUT_MS,
    bail,
    reporter: verbose ? "spec" : Mocha.reporters.Base,
    forbidOnly: strict,
    // Elsewhere a program that tests need may be missing.
    forbidPending: strict && process.env["CI"] !== undefined,
    failZero: true,
    ...(grep === undefined ? {} : { grep }),
  });
  // See `together`.
  if (grep !== undefined) process.env["TEST_GREP"] = grep;
  for (const file of files) mocha.addFile(file);
  await mocha.loadFilesAsync();
  const result: JobResult = { passed: 0, failures: [], tests: [] };
  await new Promise<void>((resolve) => {
    const runner = mocha.run((failures) => {
      if (failures > result.failures.length) {
        const text = "no test ran, or one was marked `only` or `skip`";
        result.failures.push({ name: files.join(" "), file: files.join(" "), text });
      }
      resolve();
    });
    runner.on("pass", () => result.passed++);
    runner.on("test end", (test) => result.tests.push({ name: test.fullTitle(), ms: test.duration ?? 0 }));
    runner.on("fail", (test, error) => {
      const text = String(error?.stack ?? error).slice(0, FAILURE_CHARACTERS);
      result.failures.push({ name: test.fullTitle(), file: relative(process.cwd(), test.file ?? ""), text });
    });
  });
  mocha.dispose();
  return result;
}

async function runJob(job: Job): Promise<JobResult> {
  try {
    return await run(job);
  } catch (error) {
    // A file that cannot be loaded.
    const text = error instanceof Error ? (error.stack ?? error.message) : String(error);
    return { passed: 0, failures: [{ name: job.files.join(" "), file: job.files.join(" "), text }], tests: [] };
  }
}

const send = (message: JobResult | "ready"): void => void process.send?.(message);

process.on("message", (job: Job) => void runJob(job).then(send));
process.on("disconnect", () => process.exit(1));
if (process.env["MAILKEEL_STACK"] !== undefined) await holdSchedules();
send("ready");

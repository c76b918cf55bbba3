import { existsSync, mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { resolve } from "node:path";
import { removeDataDir } from "../../stack/postgres.ts";
import { readStackSettings } from "../../stack/settings.ts";
import { Stack } from "../../stack/stack.ts";
import { closeAll } from "./factories.ts";
import { FREE_PORTS, NO_RATE_LIMITS, shellVariables } from "./stack-settings.ts";

/** Settings that a measurement may vary. */
const MEASURED = /^(DISPATCH_\w+|WEBHOOK_\w+|OTEL_\w+|DATABASE_POOL_MAX)$/;

export const measuredVariables = (): NodeJS.ProcessEnv => shellVariables(MEASURED);

/** Not by the setting's own name: a shell set up for a real cluster must not get workers there that are thrown away. */
const measuredCluster = ({ BENCH_TEMPORAL_ADDRESS, BENCH_TEMPORAL_NAMESPACE }: NodeJS.ProcessEnv): NodeJS.ProcessEnv =>
  BENCH_TEMPORAL_ADDRESS === undefined
    ? {}
    : { TEMPORAL_ADDRESS: BENCH_TEMPORAL_ADDRESS, TEMPORAL_NAMESPACE: BENCH_TEMPORAL_NAMESPACE ?? "default" };

export interface StackChoice {
  /** The stack.json of a stack that runs already; without it one is brought up, and deleted with its data afterwards. */
  stack?: string | undefined;
  /** Folder for a CPU profile of every process of the stack; only for one that is brought up. */
  cpuProf?: string | undefined;
  /** Settings that differ from those of `npm start`; only for one that is brought up. */
  settings?: Record<string, string>;
  /** Does not report processes that die and are started again. */
  quiet?: boolean;
}

/** With the settings of `npm start` but no rate limits, durable; the tests' factories then work on that stack. */
export async function withStack<T>(
  { stack: given, cpuProf, settings, quiet }: StackChoice,
  work: () => Promise<T>,
): Promise<T> {
  if (given !== undefined) {
    if (!existsSync(given)) throw new Error(`${given} does not exist; is the stack running?`);
    process.env["MAILKEEL_STACK"] = resolve(given);
    return work().finally(closeAll);
  }
  const dataDir = mkdtempSync(`${tmpdir()}/mailkeel-bench-`);
  const source: NodeJS.ProcessEnv = { LOG_LEVEL: "warn", ...NO_RATE_LIMITS, ...measuredVariables(), ...settings };
  Object.assign(source, measuredCluster(process.env));
  if (cpuProf) source["NODE_OPTIONS"] = `--cpu-prof --cpu-prof-dir=${resolve(cpuProf)}`;
  const stack = new Stack({
    settings: readStackSettings({ ...source, ...FREE_PORTS, DATA_DIR: dataDir }),
    source,
    step: (_name, step) => step(() => {}),
    say: (message) => !quiet && console.error(message),
  });
  const interrupted = () => void stack.kill().then(() => process.exit(130));
  process.once("SIGINT", interrupted).once("SIGTERM", interrupted);
  try {
    const { file } = await stack.start();
    process.env["MAILKEEL_STACK"] = file;
    return await work().finally(closeAll);
  } finally {
    await stack.stop();
    await removeDataDir(dataDir);
    process.off("SIGINT", interrupted).off("SIGTERM", interrupted);
  }
}

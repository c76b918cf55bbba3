import { existsSync, mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { resolve } from "node:path";
import { removeDataDir } from "../../stack/postgres.ts";
import { FREE_PORTS, readStackSettings } from "../../stack/settings.ts";
import { Stack } from "../../stack/stack.ts";
import { closeAll } from "./factories.ts";

/** What a shell may hand on to a stack that is measured; its databases and clusters stay out. */
const KEPT =
  /^(PATH|HOME|USER|SHELL|TERM|TMPDIR|LANG|XDG_CACHE_HOME|LOG_LEVEL|TEMPORAL_CLI|DISPATCH_\w+|WEBHOOK_\w+|DATABASE_POOL_MAX|(NODE_|GO|LC_|SSL_).*|.*_proxy)$/i;

/** The shell's variables that a measured stack gets. */
export function keptVariables(): NodeJS.ProcessEnv {
  return Object.fromEntries(Object.entries(process.env).filter(([name]) => KEPT.test(name)));
}

export interface StackChoice {
  /** The stack.json of a stack that runs already; without it one is brought up, and goes with its data afterwards. */
  stack?: string | undefined;
  /** Folder for a CPU profile of every process of the stack; only for one that is brought up. */
  cpuProf?: string | undefined;
  /** Settings that differ from those of `npm start`; only for one that is brought up. */
  settings?: NodeJS.ProcessEnv;
  /** Says nothing of children that die and come back. */
  quiet?: boolean;
}

/**
 * Runs `work` beside a stack with the settings of `npm start`, which is durable; the factories of the tests then work
 * on that stack.
 */
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
  const source: NodeJS.ProcessEnv = { LOG_LEVEL: "warn", ...keptVariables(), ...settings };
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

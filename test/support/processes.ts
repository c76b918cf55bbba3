import { fork } from "node:child_process";
import { once } from "node:events";
import { readdirSync, readFileSync } from "node:fs";
import { formatKeys } from "../../config/env.ts";
import type { PoolName } from "../../temporal/ids.ts";
import { eventually } from "./eventually.ts";
import { QUICK } from "./quick.ts";
import { stack } from "./stack.ts";
import { NO_RATE_LIMITS } from "./stack-settings.ts";

type Child = "api" | PoolName | "postgres" | "temporal";

function presentPids(): Partial<Record<Child, number>> {
  const file = process.env["MAILKEEL_STACK"];
  if (!file) throw new Error("run with npm test");
  return JSON.parse(readFileSync(file, "utf8")).pids;
}

/** The present pid of a process of the stack; it changes when the process is started again. */
export function pidOf(name: Child): number {
  const pid = presentPids()[name];
  if (pid === undefined) throw new Error(`${name} is no child of this stack`);
  return pid;
}

/** Their present pids, by their names; without those of servers that the stack was given, such as a Temporal cluster. */
export function pidsOf(names: readonly Child[]): Record<string, number> {
  const pids = presentPids();
  return Object.fromEntries(names.flatMap((name) => (pids[name] === undefined ? [] : [[name, pids[name]]])));
}

/** Kills a child of the stack, or asks it to stop. `again` resolves once the supervisor has started it anew. */
export function kill(name: Child, signal: NodeJS.Signals = "SIGKILL"): { again: Promise<unknown> } {
  const pid = pidOf(name);
  process.kill(pid, signal);
  const another = () => pidOf(name) !== pid;
  return { again: eventually(another, { withinMs: 90_000, what: `another ${name}` }) };
}

export interface TestWorker {
  pid: number;
  signal(name: "SIGKILL" | "SIGSTOP" | "SIGCONT"): void;
  /** Asks it to stop, also when it is suspended, and waits for its end. @returns its exit code, null after a signal */
  stop(): Promise<number | null>;
}

export const WORKERS_MAIN = `${import.meta.dirname}/../../workers/main.ts`;

/** The stack's settings, for a worker in addition to the stack's own. */
export async function workerSettings(): Promise<Record<string, string | undefined>> {
  const { env } = await stack();
  return {
    PATH: process.env["PATH"],
    NODE_COMPILE_CACHE: process.env["NODE_COMPILE_CACHE"],
    DATABASE_URL: env.DATABASE_URL,
    TEMPORAL_ADDRESS: env.TEMPORAL_ADDRESS,
    TEMPORAL_NAMESPACE: env.TEMPORAL_NAMESPACE,
    TEMPORAL_CONFIG_FILE: "/nowhere/no-profile.toml",
    SIGNING_SECRET: formatKeys(env.SIGNING_SECRET),
    ENCRYPTION_KEYS: formatKeys(env.ENCRYPTION_KEYS),
    SYSTEM_SMTP_URL: env.SYSTEM_SMTP_URL,
    SMTP_ALLOWED_HOSTS: env.SMTP_ALLOWED_HOSTS.join(","),
    PUBLIC_URL: env.PUBLIC_URL,
    LOG_LEVEL: "silent",
    ...NO_RATE_LIMITS,
  };
}

export const threadsOf = (pid: number): string[] =>
  readdirSync(`/proc/${pid}/task`).map((id) => readFileSync(`/proc/${pid}/task/${id}/comm`, "utf8").trim());

/**
 * A worker in addition to the stack's, with its settings and the tests' short waits. Resolves once it polls.
 * @param settings those that differ
 */
export async function startWorker(pool: PoolName, settings: Record<string, string> = {}): Promise<TestWorker> {
  const child = fork(WORKERS_MAIN, ["--pool", pool], {
    stdio: ["ignore", "ignore", "inherit", "ipc"],
    env: { ...(await workerSettings()), ...QUICK, SHUTDOWN_GRACE_MS: "2000", ...settings },
  });
  const gone = once(child, "exit");
  await Promise.race([
    once(child, "message"),
    gone.then(([code]) => Promise.reject(new Error(`the worker ended with ${code} instead of getting ready`))),
  ]);
  const { pid } = child;
  if (pid === undefined) throw new Error("the worker has no pid");
  return {
    pid,
    signal: (name) => void child.kill(name),
    stop: async () => {
      child.kill("SIGCONT");
      child.kill("SIGTERM");
      const [code] = await gone;
      return code;
    },
  };
}

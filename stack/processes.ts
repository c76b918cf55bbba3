import { type ChildProcess, fork } from "node:child_process";
import { closeSync, fstatSync, openSync } from "node:fs";
import { open } from "node:fs/promises";
import { setTimeout as delay } from "node:timers/promises";
import type { GuardedCommand, ReadyMessage } from "./guard.ts";
import { readStat, TICKS } from "./process-stat.ts";
import { until } from "./until.ts";

/** A mistake that the user can repair; the message names it and the remedy. */
export class StackError extends Error {
  override name = "StackError";
}

const GUARD = `${import.meta.dirname}/guard.ts`;
const TETHER = `${import.meta.dirname}/tether.ts`;
/** A starting child must use a hundredth of each minute: on a busy machine a start may take many. */
const START_LOOK_MS = 60_000;
const LEAST_SHARE = 0.01;
/** How long a stopping child has beyond its own grace time before it is killed. */
const KILL_MARGIN_MS = 3_000;
/** How long a restart waits: twice as long each time, up to `most`. */
export const BACKOFF_MS = { first: 200, most: 10_000 };
/** After a child has run this long, its next restart waits for the shortest time again. */
const STABLE_AFTER_MS = 30_000;

interface Common {
  /** As it is called in messages and in stack.json. */
  name: string;
  /** File that takes what it writes. */
  log: string;
  env: NodeJS.ProcessEnv;
}

/** One of our own processes: reports `ready` over IPC, and exits when the IPC channel closes. */
interface OwnProcess extends Common {
  entry: string;
  args?: string[];
  /** How long it may take to stop once asked. */
  graceMs: number;
}

/** A foreign program, run under guard.ts; `ready` resolves when it serves. */
interface ForeignProcess extends Common {
  command: GuardedCommand;
  ready: (pid: number, signal: AbortSignal) => Promise<unknown>;
}

export type ProcessSpec = OwnProcess | ForeignProcess;

const graceMsOf = (spec: ProcessSpec): number => ("command" in spec ? spec.command.graceMs : spec.graceMs);

export interface ProcessEvents {
  /** A child died and is about to be started again. */
  died?: (name: string, how: string, restartInMs: number) => void;
  restarted?: (name: string, pid: number) => void;
  /** A child is not ready yet, but works on it. */
  starting?: (name: string, ms: number) => void;
}

export function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "EPERM";
  }
}

function signalIfAlive(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal);
  } catch {
    // It is gone already.
  }
}

/** Forks a child that stops when this process is gone, and that no Ctrl-C in the terminal reaches. */
function forkTethered(entry: string, args: string[], env: NodeJS.ProcessEnv, log: number): ChildProcess {
  const stdio = ["ignore", log, log, "ipc"] as const;
  return fork(entry, args, { env, execArgv: ["--import", TETHER], detached: true, stdio: [...stdio] });
}

/** A refusal is one line of text, which the other parts of the process may have buried under lines of JSON. @param from in bytes */
async function lastLines(file: string, from: number, count = 15): Promise<string> {
  const handle = await open(file, "r");
  try {
    const { size } = await handle.stat();
    const position = Math.max(from, size - 8_192);
    const { buffer, bytesRead } = await handle.read({ buffer: Buffer.alloc(8_192), position });
    const lines = buffer.toString("utf8", 0, bytesRead).trim().split("\n");
    if (position > from && lines.length > 1) lines.shift();
    const texts = lines.filter((line) => !line.startsWith("{"));
    return (texts.length > 0 ? texts : lines).slice(-count).join("\n");
  } finally {
    await handle.close();
  }
}

export interface ProcessTimes {
  /** The longest wait before a child that died is started again. */
  mostBackoffMs: number;
  lookMs: number;
}

/** A child process that is started again whenever it dies, until it is stopped. */
class ManagedProcess {
  readonly spec: ProcessSpec;
  /** The program itself, not its guard. */
  pid = 0;
  #events: ProcessEvents;
  #child: ChildProcess | undefined;
  #exited: Promise<string> = Promise.resolve("not started");
  #stopping = new AbortController();
  #startedAt = 0;
  /** Bytes that earlier runs have written to its log. */
  #logBegin = 0;
  #backoffMs = BACKOFF_MS.first;
  readonly #times: ProcessTimes;

  constructor(spec: ProcessSpec, events: ProcessEvents, times: ProcessTimes) {
    this.spec = spec;
    this.#events = events;
    this.#times = times;
  }

  /**
   * Starts it, and keeps it running from then on.
   * @throws {StackError} when it ends, or no longer works on its start; the message holds the end of its log
   */
  async start(): Promise<void> {
    try {
      await this.#launch();
    } catch (error) {
      await this.stop();
      const log = await lastLines(this.spec.log, this.#logBegin).catch(() => "");
      const reason = error instanceof Error ? error.message : String(error);
      throw new StackError(`${this.spec.name} did not start: ${reason}. The end of ${this.spec.log}:\n${log}`);
    }
    void this.#keepRunning();
  }

  async #launch(): Promise<void> {
    const { spec } = this;
    this.#stopping.signal.throwIfAborted();
    const log = openSync(spec.log, "a", 0o600);
    this.#logBegin = fstatSync(log).size;
    const foreign = "command" in spec;
    const child = forkTethered(foreign ? GUARD : spec.entry, foreign ? [] : (spec.args ?? []), spec.env, log);
    closeSync(log);
    this.#child = child;
    this.#startedAt = performance.now();
    const over = new AbortController();
    this.#exited = new Promise((resolve) => {
      child.once("exit", (code, signal) => resolve(signal ?? `exit code ${code}`));
      child.once("error", (error) => resolve(error.message));
    });
    void this.#exited.then((how) => over.abort(new Error(`it stopped (${how})`)));

    const said = new Promise<ReadyMessage>((resolve) => {
      child.on("message", (message) => {
        if ((message as Partial<ReadyMessage>).type === "ready") resolve(message as ReadyMessage);
      });
    });
    // A guard that has ended already is noticed by its exit.
    if (foreign) child.send(spec.command, () => {});

    const ready = async () => {
      const message = await said;
      this.pid = message.pid ?? child.pid ?? 0;
      if (foreign) await spec.ready(this.pid, over.signal);
    };
    const { lookMs } = this.#times;
    let usedMs = 0;
    const timer = setInterval(() => {
      // Without `/proc` the clock alone tells how long a start may take.
      const nowMs = ((readStat(this.pid || (child.pid ?? 0))?.own ?? 0) * 1_000) / TICKS;
      if (nowMs - usedMs < lookMs * LEAST_SHARE) return over.abort(new Error(`it did nothing for ${lookMs / 1_000} s`));
      usedMs = nowMs;
      this.#events.starting?.(spec.name, performance.now() - this.#startedAt);
    }, lookMs);
    const inVain = new Promise<never>((_, reject) => {
      over.signal.addEventListener("abort", () => reject(over.signal.reason));
    });
    // A child that ends after it was ready also rejects this, when nothing waits for it any more.
    inVain.catch(() => {});
    try {
      await Promise.race([ready(), inVain]);
    } finally {
      clearInterval(timer);
    }
  }

  async #keepRunning(): Promise<void> {
    for (;;) {
      const how = await this.#exited;
      await this.#endProgram("stopSignal");
      if (this.#stopping.signal.aborted) return;
      if (performance.now() - this.#startedAt > STABLE_AFTER_MS) this.#backoffMs = BACKOFF_MS.first;
      const waitMs = this.#backoffMs;
      this.#backoffMs = Math.min(waitMs * 2, this.#times.mostBackoffMs);
      this.#events.died?.(this.spec.name, how, waitMs);
      await delay(waitMs, undefined, { signal: this.#stopping.signal }).catch(() => undefined);
      if (this.#stopping.signal.aborted) return;
      try {
        await this.#launch();
        this.#events.restarted?.(this.spec.name, this.pid);
      } catch {
        this.#child?.kill("SIGKILL");
      }
    }
  }

  /** A guard that was killed could not stop its program. */
  async #endProgram(how: "stopSignal" | "kill"): Promise<void> {
    if (!("command" in this.spec) || !this.pid || !isAlive(this.pid)) return;
    const { pid } = this;
    signalIfAlive(pid, how === "kill" ? "SIGKILL" : this.spec.command.stopSignal);
    const gone = () => !isAlive(pid);
    await until("its end", gone, { timeoutMs: graceMsOf(this.spec) }).catch(() => signalIfAlive(pid, "SIGKILL"));
  }

  /** Asks it to stop; kills it at the end of its grace time. */
  async stop(): Promise<void> {
    this.#stopping.abort(new Error("it was stopped"));
    if (!this.#child) return;
    this.#child.kill("SIGTERM");
    const timer = setTimeout(() => this.#child?.kill("SIGKILL"), graceMsOf(this.spec) + KILL_MARGIN_MS);
    await this.#exited;
    clearTimeout(timer);
    await this.#endProgram("stopSignal");
  }

  async kill(): Promise<void> {
    this.#stopping.abort(new Error("it was stopped"));
    this.#child?.kill("SIGKILL");
    await this.#endProgram("kill");
  }
}

/** The children of one stack. */
export class Processes {
  #running = new Map<string, ManagedProcess>();
  #events: ProcessEvents;
  #times: ProcessTimes;
  #stopped = false;

  constructor(events: ProcessEvents = {}, { mostBackoffMs = BACKOFF_MS.most, lookMs = START_LOOK_MS } = {}) {
    this.#events = events;
    this.#times = { mostBackoffMs, lookMs };
  }

  /** Starts a child and resolves with its pid when it serves. */
  async start(spec: ProcessSpec): Promise<number> {
    if (this.#stopped) throw new StackError(`${spec.name} was not started: the stack is stopping`);
    const child = new ManagedProcess(spec, this.#events, this.#times);
    this.#running.set(spec.name, child);
    await child.start();
    return child.pid;
  }

  /** Starts a child in the place of the one with its name. @param serves called when it serves, before the other one stops */
  async replace(spec: ProcessSpec, serves: () => void): Promise<number> {
    const before = this.#running.get(spec.name);
    const pid = await this.start(spec);
    serves();
    await before?.stop();
    return pid;
  }

  pids(): Record<string, number> {
    return Object.fromEntries([...this.#running].map(([name, { pid }]) => [name, pid]));
  }

  /** Stops these children, all at the same time. */
  async stop(...names: string[]): Promise<void> {
    await Promise.all(names.map((name) => this.#running.get(name)?.stop()));
  }

  /** Stops everything: these one after the other, once all others have stopped. No child is started any more. */
  async stopAll(...last: string[]): Promise<void> {
    this.#stopped = true;
    await this.stop(...[...this.#running.keys()].filter((name) => !last.includes(name)));
    for (const name of last) await this.stop(name);
  }

  async killAll(): Promise<void> {
    this.#stopped = true;
    await Promise.all([...this.#running.values()].map((child) => child.kill()));
  }
}

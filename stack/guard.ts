/**
 * Runs one foreign program (Postgres, Temporal, go) and stops it when the guard is asked to stop. With tether.ts
 * the program thus never outlives the stack, even one that was killed. The first message is the command.
 */
import { spawn } from "node:child_process";

/** A foreign program and how it is stopped. */
export interface GuardedCommand {
  command: string;
  args: string[];
  cwd?: string;
  /** User and group to run as; those of the stack if left out. */
  uid?: number;
  gid?: number;
  /** Asks the program to stop; SIGKILL follows after `graceMs`. */
  stopSignal: NodeJS.Signals;
  graceMs: number;
}

/** A child's message to the stack once it serves. `pid` is that of a guarded program. */
export interface ReadyMessage {
  type: "ready";
  port?: number;
  pid?: number;
}

process.umask(0o077);

process.once("message", (message) => {
  const { command, args, stopSignal, graceMs, ...options } = message as GuardedCommand;
  // A process group of its own: a Ctrl-C in the terminal must not reach it before the stack has stopped what uses it.
  const program = spawn(command, args, { ...options, detached: true, stdio: ["ignore", "inherit", "inherit"] });

  program.once("error", (error) => {
    console.error(error.message);
    process.exit(127);
  });
  program.once("spawn", () => {
    if (program.pid) process.send?.({ type: "ready", pid: program.pid } satisfies ReadyMessage);
  });
  program.once("exit", (code) => process.exit(code ?? 1));

  const signal = (name: NodeJS.Signals) => {
    try {
      if (program.pid) process.kill(-program.pid, name);
    } catch {
      // It is gone already.
    }
  };
  let stopping = false;
  const stop = () => {
    if (stopping) return;
    stopping = true;
    signal(stopSignal);
    setTimeout(() => signal("SIGKILL"), graceMs);
  };
  for (const name of ["SIGTERM", "SIGINT", "SIGHUP"] as const) process.on(name, stop);
});

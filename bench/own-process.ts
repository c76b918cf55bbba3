import { fork } from "node:child_process";
import { once } from "node:events";
import { basename } from "node:path";

/** A module that runs in a process of its own, so that its CPU is not that of the measured. */
export interface OwnProcess {
  pid: number;
  /** Resolves with its next message. @throws {Error} when it ends before */
  reply<T>(): Promise<T>;
  /** Sends it a request, one at a time. @returns its answer */
  ask<T>(request: object | string): Promise<T>;
  close(): void;
}

/** Starts a module of this folder, with the variable PATH and these settings alone. */
export function startModule(file: string, args: string[] = [], settings: Record<string, string> = {}): OwnProcess {
  const child = fork(file, args, { env: { PATH: process.env["PATH"], ...settings } });
  const reply = async () => {
    const done = new AbortController();
    const { signal } = done;
    const ended = once(child, "exit", { signal }).then(() => Promise.reject(new Error(`${basename(file)} has ended`)));
    try {
      const [message] = await Promise.race([once(child, "message", { signal }), ended]);
      return message;
    } finally {
      done.abort(); // takes the listener of the loser away
    }
  };
  const ask = (request: object | string) => {
    const answer = reply();
    child.send(request);
    return answer;
  };
  return { pid: child.pid ?? 0, reply, ask, close: () => void child.kill("SIGKILL") };
}

/** Answers each request of the process that started this one, and ends with it. */
export function answerEach<Request>(answer: (request: Request) => unknown): void {
  process.on("message", async (request: Request) => process.send?.(await answer(request)));
  process.on("disconnect", () => process.exit());
}

import { spawn } from "node:child_process";
import { dirname } from "node:path";
import { Command } from "commander";
import { type Outcome, type Run, withSession } from "../../app/session.ts";
import type { Json } from "./api.ts";

export interface CommandResult {
  code: number | null;
  stdout: string;
  stderr: string;
  /** Standard output as JSON, where it is that. */
  json: Json;
}

/** Runs the app's command line against the stack of the tests. */
export function app(...args: string[]): Promise<CommandResult> {
  const child = spawn(process.execPath, [`${import.meta.dirname}/../../app/main.ts`, ...args], {
    env: {
      PATH: process.env["PATH"],
      DATA_DIR: dirname(process.env["MAILKEEL_STACK"] ?? ".data/stack.json"),
      // Half of a short command's CPU would go into compiling its modules again.
      NODE_COMPILE_CACHE: process.env["NODE_COMPILE_CACHE"],
    },
    stdio: ["ignore", "pipe", "pipe"],
  });
  const text = { stdout: "", stderr: "" };
  child.stdout.setEncoding("utf8").on("data", (chunk: string) => {
    text.stdout += chunk;
  });
  child.stderr.setEncoding("utf8").on("data", (chunk: string) => {
    text.stderr += chunk;
  });
  return new Promise((resolve, reject) => {
    child.once("error", reject);
    child.once("close", (code) => {
      let json: Json;
      try {
        json = JSON.parse(text.stdout);
      } catch {
        json = undefined;
      }
      resolve({ code, ...text, json });
    });
  });
}

/**
 * Runs a command in the test's process, over the stack of the tests: a process of its own takes a second.
 * @param add the group of commands that it belongs to
 * @throws its error
 */
export async function inProcess(add: (program: Command, run: Run) => void, ...args: string[]): Promise<Outcome> {
  const source = { DATA_DIR: dirname(process.env["MAILKEEL_STACK"] ?? ".data/stack.json") };
  const program = new Command().exitOverride().configureOutput({ writeErr: () => {} });
  let outcome: Outcome | undefined;
  const noLogin = () => () => Promise.reject(new Error("no command here logs in"));
  // The database has admitted the stack's keys.
  add(program, async (work) => {
    outcome = await withSession(source, noLogin, work, { isAdmitted: false });
  });
  await program.parseAsync(args, { from: "user" });
  if (!outcome) throw new Error(`${args[0]} printed its result itself`);
  return outcome;
}

import { spawn } from "node:child_process";
import { dirname } from "node:path";
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

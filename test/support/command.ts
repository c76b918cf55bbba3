import { dirname } from "node:path";
import { Readable, Writable } from "node:stream";
import { runCommand } from "../../app/program.ts";
import type { Json } from "./api.ts";

/** What a command left behind. */
export interface CommandResult {
  code: number;
  stdout: string;
  stderr: string;
}

/** A stream that keeps its text. */
class Kept extends Writable {
  text = "";

  override _write(chunk: Buffer, _encoding: string, done: () => void): void {
    this.text += chunk.toString();
    done();
  }
}

/**
 * Runs a command of the app in this process: to load its modules again would take a second each time.
 * @param env its settings; the tests' stack unless given
 * @param input its standard input
 */
export async function runApp(
  args: readonly string[],
  { env = { DATA_DIR: dirname(process.env["MAILKEEL_STACK"] ?? ".data/stack.json") }, input = "" }: RunOptions = {},
): Promise<CommandResult> {
  const [stdout, stderr] = [new Kept(), new Kept()];
  const code = await runCommand(args, { env, stdin: Readable.from(Buffer.from(input)), stdout, stderr });
  return { code, stdout: stdout.text, stderr: stderr.text };
}

export interface RunOptions {
  env?: NodeJS.ProcessEnv | undefined;
  input?: string | undefined;
}

/**
 * Runs a command of the app against the tests' stack.
 * @returns also its output as JSON, where it is that
 */
export async function app(...args: string[]): Promise<CommandResult & { json: Json }> {
  const result = await runApp(args);
  let json: Json;
  try {
    json = JSON.parse(result.stdout);
  } catch {
    json = undefined;
  }
  return { ...result, json };
}

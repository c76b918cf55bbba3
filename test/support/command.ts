import { strict as assert } from "node:assert";
import { dirname } from "node:path";
import { Readable, Writable } from "node:stream";
import { parseCommand, runCommand } from "../../app/program.ts";
import { type Outcome, recordCommand, type Session, withSession } from "../../app/session.ts";
import type { Json } from "./api.ts";

/** The settings of a command over the tests' stack, or over the one that a measurement has brought up. */
const ofStack = () => ({ DATA_DIR: dirname(process.env["MAILKEEL_STACK"] ?? ".data/stack.json") });

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

/** In this process: to load its modules again would take a second each time. `env` is that of the tests' stack unless given. */
export async function runApp(
  args: readonly string[],
  { env = ofStack(), input = "" }: RunOptions = {},
): Promise<CommandResult> {
  const [stdout, stderr] = [new Kept(), new Kept()];
  const code = await runCommand(args, { env, stdin: Readable.from(Buffer.from(input)), stdout, stderr });
  return { code, stdout: stdout.text, stderr: stderr.text };
}

export interface RunOptions {
  env?: NodeJS.ProcessEnv | undefined;
  input?: string | undefined;
}

/** @returns also its output as JSON, where it is that */
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

/** @returns the JSON of a command, which must succeed */
export async function run(...args: string[]): Promise<Json> {
  const { code, json, stderr } = await app(...args, "--json");
  assert.equal(code, 0, stderr);
  return json;
}

export async function refused(why: RegExp, ...args: string[]): Promise<void> {
  const { code, stderr } = await app(...args);
  assert.equal(code, 1, stderr);
  assert.match(stderr, why);
}

/** In the test's process: a process of its own takes a second. @throws its error */
export async function inProcess(...args: string[]): Promise<Outcome> {
  const terminal = { env: ofStack(), stdin: Readable.from([]), stdout: new Kept(), stderr: new Kept() };
  let outcome: Outcome | undefined;
  await parseCommand(args, terminal, async (command, values, name) => {
    const work = async (session: Session) => {
      outcome = await command.run(session, values);
      if (outcome) await recordCommand(session, name, values, outcome);
    };
    // The database has admitted the stack's keys.
    await withSession(terminal, work, { isAdmitted: false });
  });
  if (!outcome) throw new Error(`${args[0]} printed its result itself`);
  return outcome;
}

import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { text } from "node:stream/consumers";

/** On the busiest machine a program that works gets a second of the processor within this. */
const STILL_MS = 60_000;
const LOOK_MS = 2_000;

/** The processes of a group with the CPU time that each has used, as text. */
const workOf = (group: number): string =>
  execFileSync("ps", ["-A", "-o", "pgid=,pid=,time="], { encoding: "utf8" })
    .split("\n")
    .filter((line) => Number.parseInt(line, 10) === group)
    .join("\n");

/**
 * Runs a program for as long as it works, however long that takes.
 * @param what completes "It waited for …"
 * @throws {Error} once the program and those that it starts have used no CPU time for a minute
 */
export async function runStep(what: string, command: string, args: readonly string[], cwd: string) {
  const child = spawn(command, args, { cwd, detached: true, stdio: ["ignore", "pipe", "pipe"] });
  const group = child.pid ?? Number.NaN;
  let isStill = false;
  let [work, movedAt] = ["", performance.now()];
  const looks = setInterval(() => {
    const now = workOf(group);
    if (now !== work) [work, movedAt] = [now, performance.now()];
    else if (performance.now() - movedAt > STILL_MS) {
      isStill = true;
      process.kill(-group, "SIGKILL");
    }
  }, LOOK_MS);
  const ending = Promise.all([text(child.stdout), text(child.stderr), once(child, "exit")]);
  const [stdout, stderr, [code]] = await ending.finally(() => clearInterval(looks));
  if (isStill)
    throw new Error(`It waited for ${what}, which did nothing for ${STILL_MS / 1_000} s: ${stdout}${stderr}`);
  return { code: code as number | null, stdout, stderr };
}

/** @throws {Error} also when it fails. @returns what it printed */
export async function runStepWell(...[what, ...command]: Parameters<typeof runStep>): Promise<string> {
  const { code, stdout, stderr } = await runStep(what, ...command);
  if (code !== 0) throw new Error(`It waited for ${what}, which ended with ${code}: ${stdout}${stderr}`);
  return stdout;
}

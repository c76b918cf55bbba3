import { createHash } from "node:crypto";
import { existsSync } from "node:fs";
import { readFile, rm } from "node:fs/promises";
import { connect, createServer } from "node:net";
import { tmpdir } from "node:os";
import { relative } from "node:path";
import { isAlive, StackError } from "./processes.ts";
import type { StackFile } from "./state.ts";
import { until } from "./until.ts";

/** Systems refuse longer ones. */
const MAX_SOCKET_PATH = 100;
/** How long the children of a killed stack may take to finish the work in flight. */
const LEFTOVERS_TIMEOUT_MS = 30_000;

export interface DataDirLock {
  /** The stack that was here before was killed. */
  afterKill: boolean;
  release: () => Promise<void>;
}

/**
 * Makes this process the only stack on a data folder. The lock is a socket that is listened on, so it ends with its process.
 * @throws {StackError} when another stack runs on the folder
 */
export async function lockDataDir(dataDir: string): Promise<DataDirLock> {
  const path = socketOf(dataDir);
  const afterKill = existsSync(path);
  if (afterKill && (await isHeld(path))) {
    const running = await readStackFile(dataDir);
    const where = running ? ` (${running.api})` : "";
    throw new StackError(
      `A stack is already running on ${dataDir}${where}. Stop it, or set DATA_DIR to another folder.`,
    );
  }
  await rm(path, { force: true });
  const server = createServer((socket) => socket.destroy());
  await new Promise<void>((resolve, reject) => {
    server.once("error", (cause) =>
      reject(new StackError(`DATA_DIR: cannot use ${dataDir} (${cause.message})`, { cause })),
    );
    server.listen(path, resolve);
  });
  return { afterKill, release: () => new Promise((resolve) => server.close(() => resolve())) };
}

function socketOf(dataDir: string): string {
  const inside = relative(process.cwd(), `${dataDir}/stack.sock`);
  const hash = createHash("sha256").update(dataDir).digest("hex").slice(0, 24);
  return inside.length > MAX_SOCKET_PATH ? `${tmpdir()}/mailkeel-${hash}.sock` : inside;
}

/** Whether a process listens on the socket: a stack that was killed leaves its file. */
function isHeld(path: string): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(path, () => {
      socket.destroy();
      resolve(true);
    });
    socket.once("error", () => resolve(false));
  });
}

async function readStackFile(dataDir: string): Promise<StackFile | undefined> {
  try {
    return JSON.parse(await readFile(`${dataDir}/stack.json`, "utf8")) as StackFile;
  } catch {
    return undefined;
  }
}

/** Waits for the children of a killed stack, which stop by themselves; clears its stack.json away. */
export async function waitForLeftovers(dataDir: string): Promise<void> {
  const left = await readStackFile(dataDir);
  if (!left) return;
  const gone = () => !Object.values(left.pids).some(isAlive);
  // The system may have given a pid to another program: then the check of the ports decides.
  await until("the last stack to end", gone, { timeoutMs: LEFTOVERS_TIMEOUT_MS }).catch(() => {});
  await rm(`${dataDir}/stack.json`, { force: true });
}

import { createHash } from "node:crypto";
import { existsSync } from "node:fs";
import { readFile, rm } from "node:fs/promises";
import { connect, createServer, type Socket } from "node:net";
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
  /** Asks the workers that joined the stack to end, and waits for them, at most so long. */
  dismiss: (timeoutMs: number) => Promise<void>;
  release: () => Promise<void>;
}

/**
 * Makes this process the only stack on a data folder. The lock is a socket that is listened on, so it ends with its process.
 * @throws {StackError} when another stack runs on the folder
 */
export async function lockDataDir(dataDir: string): Promise<DataDirLock> {
  const path = socketOf(dataDir);
  const afterKill = existsSync(path);
  const holder = afterKill ? await connectToStack(dataDir) : undefined;
  holder?.destroy();
  if (holder) {
    const running = await readStackFile(dataDir);
    const where = running ? ` (${running.api})` : "";
    throw new StackError(
      `A stack is already running on ${dataDir}${where}. Stop it, or set DATA_DIR to another folder.`,
    );
  }
  await rm(path, { force: true });
  const joined = new Set<Socket>();
  // Half open: a worker that is asked to end closes its side when it has ended.
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    joined.add(socket);
    socket.resume().on("error", () => {});
    socket.once("end", () => socket.end()).once("close", () => joined.delete(socket));
  });
  await new Promise<void>((resolve, reject) => {
    server.once("error", (cause) =>
      reject(new StackError(`DATA_DIR: cannot use ${dataDir} (${cause.message})`, { cause })),
    );
    server.listen(path, resolve);
  });
  return {
    afterKill,
    dismiss: async (timeoutMs) => {
      for (const socket of joined) socket.end();
      await until("the workers that joined to end", () => joined.size === 0, { timeoutMs }).catch(() => {});
    },
    release: () =>
      new Promise((resolve) => {
        for (const socket of joined) socket.destroy();
        server.close(() => resolve());
      }),
  };
}

function socketOf(dataDir: string): string {
  const inside = relative(process.cwd(), `${dataDir}/stack.sock`);
  const hash = createHash("sha256").update(dataDir).digest("hex").slice(0, 24);
  return inside.length > MAX_SOCKET_PATH ? `${tmpdir()}/mailkeel-${hash}.sock` : inside;
}

/**
 * Connects to the stack of a data folder, which waits for the end of this connection when it stops.
 * @returns the connection, which the stack ends when it stops, however that happens; undefined when no stack runs there
 */
export function connectToStack(dataDir: string): Promise<Socket | undefined> {
  return new Promise((resolve) => {
    const socket = connect({ path: socketOf(dataDir), allowHalfOpen: true });
    socket.once("connect", () => resolve(socket.resume())).on("error", () => resolve(undefined));
  });
}

export async function readStackFile(dataDir: string): Promise<StackFile | undefined> {
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

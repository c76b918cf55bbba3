/** The API process: `npm run api`, or forked by the stack. */
import type { Server, ServerResponse } from "node:http";
import type { AddressInfo, Socket } from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import { setFlagsFromString } from "node:v8";
import { readEnv, SettingsError } from "../config/env.ts";
import { portFailure, serveHealth } from "../config/health.ts";
import { collectProcessMetrics } from "../config/process-metrics.ts";
import { limitStop } from "../config/stop-limit.ts";
import { startExaminations } from "../domain/mail/examination.ts";
import { AdmissionError } from "../domain/secrets/admission.ts";
import { createApp } from "./app.ts";
import { closeDeps, type Deps, openDeps } from "./deps.ts";
import { openServer } from "./server.ts";

/** How often a process that started without Postgres looks for it. */
const CONNECT_AGAIN_MS = 1_000;
/** So long a stopping server answers requests that were on their way, and tells their clients to use no connection again. */
const LINGER_MS = 1_000;
/** How often a stopping server looks for connections that have become idle. */
const SWEEP_MS = 50;

/**
 * Connections that the kernel holds until the process accepts them; Linux allows 4,096 by default. With Node's 511, a flood
 * of connections makes the kernel drop others, whose clients try again only after seconds.
 */
const BACKLOG = 4_096;

function listen(server: Server, host: string, port: number): Promise<number> {
  return new Promise((resolve, reject) => {
    server.once("error", (cause: NodeJS.ErrnoException) =>
      reject(portFailure({ host: "HOST", port: "PORT" }, host, port, cause)),
    );
    server.listen({ port, host, backlog: BACKLOG }, () => resolve((server.address() as AddressInfo).port));
  });
}

/**
 * Looks for the Postgres that was away at the start of this process. Requests are answered with 503 meanwhile.
 * @throws {AdmissionError} when the database refuses this process
 */
async function keepConnecting({ connectDatabase }: Deps): Promise<void> {
  while ((await connectDatabase()) !== undefined) await delay(CONNECT_AGAIN_MS, undefined, { ref: false });
}

/** @returns takes no more requests, and waits for those in flight */
function drainerOf(server: Server): (graceMs: number) => Promise<void> {
  /** The last one of each connection: a set of all that are under way keeps the collector busy, and costs a fifth of the rate. */
  const answers = new Map<Socket, ServerResponse>();
  let isStopping = false;
  // Node then says `Connection: close`.
  const closeAfter = (answer: ServerResponse) => Object.assign(answer, { shouldKeepAlive: false });
  server.on("connection", (socket) => socket.once("close", () => answers.delete(socket)));
  server.prependListener("request", ({ socket }, answer) => {
    answers.set(socket, answer);
    if (isStopping) closeAfter(answer);
  });
  return async (graceMs) => {
    isStopping = true;
    for (const answer of answers.values()) closeAfter(answer);
    await delay(LINGER_MS);
    await closeServer(server, graceMs);
  };
}

async function closeServer(server: Server, graceMs: number): Promise<void> {
  const closed = new Promise<void>((resolve) => server.close(() => resolve()));
  // One whose answer had begun before the stop is kept alive.
  const sweep = setInterval(() => server.closeIdleConnections(), SWEEP_MS);
  const timer = setTimeout(() => server.closeAllConnections(), graceMs);
  await closed;
  clearInterval(sweep);
  clearTimeout(timer);
}

/**
 * Sets how this process collects garbage. V8 lets the heap double or more between two full collections, so that a client
 * which reads one page of 2 MiB after the other makes it hold half a gigabyte of garbage. It marks beside the requests with
 * up to seven threads, which leave a request little of a machine of two cores: one thread marks here.
 */
function setCollection(): void {
  setFlagsFromString("--heap-growing-percent=50");
  setFlagsFromString("--concurrent-marking-max-worker-num=1");
}

async function main(): Promise<void> {
  setCollection();
  const env = readEnv(process.env, ["SYSTEM_SMTP_URL"]);
  const deps = await openDeps(env);
  const { metrics, readiness, progress } = deps;
  collectProcessMetrics(metrics);
  let stopping = false;
  const { port: healthPort } = await serveHealth(env, {
    ready: async () => !stopping && (await readiness.read()).ready && progress.stalled().length === 0,
    stalled: () => progress.stalled(),
    metrics: () => metrics.metrics(),
  });
  const isConnected = (await deps.connectDatabase()) === undefined;
  const server = openServer(createApp(deps), deps);
  const drain = drainerOf(server);
  const port = await listen(server, env.HOST, env.PORT);
  deps.log.info({ host: env.HOST, port, healthPort }, "listening");
  if (!isConnected) keepConnecting(deps).catch(endWith);
  startExaminations();

  const stop = async (reason: string) => {
    if (stopping) return;
    stopping = true;
    deps.log.info({ reason }, "stopping");
    const noteStep = limitStop(deps.log, env.SHUTDOWN_GRACE_MS);
    await drain(env.SHUTDOWN_GRACE_MS);
    noteStep("closing connections");
    await closeDeps(deps);
    process.exit(0);
  };
  for (const signal of ["SIGTERM", "SIGINT"] as const) process.on(signal, () => void stop(signal));
  // The parent process has exited.
  process.once("disconnect", () => void stop("disconnect"));
  process.send?.({ type: "ready", port, healthPort });
}

function endWith(error: unknown): never {
  const isExpected = error instanceof SettingsError || error instanceof AdmissionError;
  console.error(isExpected ? error.message : error);
  process.exit(1);
}

main().catch(endWith);

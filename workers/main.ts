import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { hostname } from "node:os";
import { parseArgs } from "node:util";
import { setFlagsFromString } from "node:v8";
import { status as grpc } from "@grpc/grpc-js";
import { isGrpcServiceError } from "@temporalio/client";
import { loadClientConnectConfig } from "@temporalio/envconfig";
import { NativeConnection, Worker, type WorkerOptions } from "@temporalio/worker";
import type { Logger } from "pino";
import type { ActivityDeps } from "../activities/deps.ts";
import { type Env, readEnv, renamedSettings, SECRETS, SettingsError } from "../config/env.ts";
import { serveHealth } from "../config/health.ts";
import { openLog } from "../config/log.ts";
import { Progress } from "../config/progress.ts";
import { limitStop } from "../config/stop-limit.ts";
import { endTracing, inStatementSpan, openTracing } from "../config/tracing.ts";
import { AdmissionError, type AdmittedDatabase, openAdmitted } from "../domain/secrets/admission.ts";
import { openVault } from "../domain/secrets/crypto.ts";
import type { PoolName } from "../temporal/ids.ts";
import { workflowBundle } from "./bundle.ts";
import { failuresToCodes, traceActivities, watchActivities } from "./interceptors.ts";
import { createMetrics } from "./metrics.ts";
import { pause } from "./pause.ts";
import { DEFAULT_ACTIVITIES, isPoolName, POOLS, type PoolDefinition } from "./pools.ts";
import { installRuntime } from "./runtime.ts";

/** How often an activity's heartbeat is sent on at most; activities space theirs (`activities/heartbeat.ts`). */
const HEARTBEAT_THROTTLE_MS = 200;
/** How often a worker tries to connect to a Temporal that is not there yet: without an end, so no retry library. */
const CONNECT_AGAIN_MS = 1_000;

function readPool(): PoolName {
  const { pool } = (() => {
    try {
      return parseArgs({ options: { pool: { type: "string" } } }).values;
    } catch {
      return {}; // --pool has no value, or an argument is unknown.
    }
  })();
  if (isPoolName(pool)) return pool;
  throw new SettingsError(`Start it with --pool and one of ${Object.keys(POOLS).join(", ")}.`);
}

/** @throws {SettingsError} when the namespace does not exist: the SDK's own error does not name it */
async function assertNamespace({ workflowService }: NativeConnection, { TEMPORAL_NAMESPACE: namespace }: Env) {
  try {
    await workflowService.describeNamespace({ namespace });
  } catch (error) {
    // Any other failure, such as a key without this permission, shows when the worker polls.
    if (!isGrpcServiceError(error) || error.code !== grpc.NOT_FOUND) return;
    throw new SettingsError(
      `TEMPORAL_NAMESPACE: Temporal has no namespace "${namespace}". \`npm run prepare:cluster\` makes it.`,
    );
  }
}

async function connect(env: Env, log: Logger, stopping: AbortSignal): Promise<NativeConnection> {
  const { connectionOptions } = loadClientConnectConfig();
  for (;;) {
    try {
      return await NativeConnection.connect({ ...connectionOptions, address: env.TEMPORAL_ADDRESS });
    } catch (error) {
      if (stopping.aborted) throw error;
      log.warn({ err: error }, "Temporal is not reachable; trying again");
      await pause(CONNECT_AGAIN_MS, stopping);
    }
  }
}

/** Waits for Postgres. @throws {AdmissionError} when it refuses this process */
async function admitted({ connect }: AdmittedDatabase, log: Logger, stopping: AbortSignal): Promise<void> {
  for (let reason = await connect(); reason !== undefined && !stopping.aborted; reason = await connect()) {
    log.warn({ err: reason }, "Postgres is not reachable; trying again");
    await pause(CONNECT_AGAIN_MS, stopping);
  }
}

/**
 * The version that this worker polls as. Sends follow the deployment's current version by themselves: their code is kept
 * replayable, so that none is tied to the build that it started on.
 */
function version({ WORKER_DEPLOYMENT_NAME: deploymentName, WORKER_BUILD_ID: buildId }: Env): Partial<WorkerOptions> {
  if (deploymentName === undefined || buildId === undefined) return {};
  return {
    workerDeploymentOptions: {
      useWorkerVersioning: true,
      version: { deploymentName, buildId },
      defaultVersioningBehavior: "AUTO_UPGRADE",
    },
  };
}

async function runPool(pool: PoolName): Promise<void> {
  const definition: PoolDefinition = POOLS[pool];
  const { heapGrowthPercent } = definition;
  if (heapGrowthPercent !== undefined) setFlagsFromString(`--heap-growing-percent=${heapGrowthPercent}`);
  const env = readEnv(
    process.env,
    SECRETS.filter((secret) => !definition.secrets.includes(secret)),
  );
  const log = openLog(env, pool);
  for (const sentence of renamedSettings()) log.warn(sentence);
  await openTracing(env, pool, log);
  const stop = new AbortController();
  const workerId = `${hostname()}-${process.pid}-${randomUUID().slice(0, 8)}`;
  let worker: Worker | undefined;
  let listening = false;
  const progress = new Progress();
  const takesWork = () => (definition.taskQueue === undefined ? listening : worker?.getState() === "RUNNING");
  const ready = () => takesWork() && progress.stalled().length === 0;
  const { registry, watchConnections, ...counters } = createMetrics(pool, ready);
  const vault = openVault(env);
  const database = await openAdmitted(env, vault, {
    poolMax: env.DATABASE_POOL_MAX,
    onPool: watchConnections,
    work: pool,
    aroundStatement: inStatementSpan,
  });
  const { orm } = database;
  const deps: ActivityDeps = { env, orm, vault, log, stopping: stop.signal, workerId, progress, ...counters };
  definition.addMetrics?.(registry, deps);
  const running = await definition.start(deps, registry);

  for (const signal of ["SIGTERM", "SIGINT"] as const) process.on(signal, () => stop.abort());
  // Started by a supervisor: when that is gone, nothing else would stop this process.
  process.on("disconnect", () => stop.abort());

  let sdkMetrics = async () => "";
  const { port, server } = await serveHealth(env, {
    ready,
    stalled: () => progress.stalled(),
    metrics: async () => (await Promise.all([registry.metrics(), sdkMetrics()])).join("\n"),
  });
  let noteStep: (step: string) => void = () => {};
  const limit = () => {
    noteStep = limitStop(log, env.SHUTDOWN_GRACE_MS);
  };
  stop.signal.addEventListener("abort", limit, { once: true });
  let connection: NativeConnection | undefined;
  try {
    sdkMetrics = await installRuntime(log, pool);
    await admitted(database, log, stop.signal);
    await running.listen?.();
    listening = true;
    if (definition.taskQueue !== undefined) {
      connection = await connect(env, log, stop.signal);
      await assertNamespace(connection, env);
      worker = await Worker.create({
        connection,
        namespace: env.TEMPORAL_NAMESPACE,
        taskQueue: definition.taskQueue,
        identity: workerId,
        ...version(env),
        ...(definition.workflows ? { workflowBundle: await workflowBundle(env.HEARTBEAT_TIMEOUT_MS) } : {}),
        activities: running.activities ?? {},
        interceptors: { activity: [traceActivities, failuresToCodes(log), watchActivities(progress)] },
        maxConcurrentActivityTaskExecutions: env.ACTIVITY_CONCURRENCY ?? definition.activities ?? DEFAULT_ACTIVITIES,
        ...definition.options,
        // By default the SDK holds heartbeats back for 80 % of their timeout: a busy machine would be taken for a lost one.
        maxHeartbeatThrottleInterval: HEARTBEAT_THROTTLE_MS,
        // It is 0 by default: activities would be cut off in the middle of their mails.
        shutdownGraceTime: env.SHUTDOWN_GRACE_MS,
      });
      if (worker.client) running.connected?.(worker.client);
    }
    log.info({ port, workerId }, "ready");
    process.send?.({ type: "ready", port });
    const stopped = async () => {
      if (!stop.signal.aborted) await once(stop.signal, "abort");
    };
    await (worker?.runUntil(stopped) ?? stopped());
    log.info("stopping");
  } finally {
    listening = false;
    stop.abort();
    noteStep("closing the pool");
    await running.close?.();
    noteStep("closing the connection to Temporal");
    await connection?.close();
    noteStep("closing the connections to Postgres");
    await orm.close(true);
    noteStep("sending spans to their collector");
    await endTracing();
    server.close();
  }
}

try {
  await runPool(readPool());
  process.exit(0);
} catch (error) {
  const isExpected = error instanceof SettingsError || error instanceof AdmissionError;
  process.stderr.write(`${isExpected ? error.message : error instanceof Error ? (error.stack ?? error) : error}\n`);
  process.exit(1);
}

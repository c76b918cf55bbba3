import { Client, Connection } from "@temporalio/client";
import { appRouter } from "../../api/router.ts";
import { prepareNamespace } from "../../stack/temporal.ts";
import { type PoolName, RECONCILER_ID } from "../../workflows/ids.ts";
import { api } from "./api.ts";
import { serveRoutes, type TestApp } from "./app.ts";
import { eventually } from "./eventually.ts";
import { unique } from "./factories.ts";
import { startWorker, type TestWorker } from "./processes.ts";
import type { Sender } from "./sending.ts";
import { stack } from "./stack.ts";
import { temporalClient } from "./temporal.ts";

/** A namespace whose task queues the stack's workers do not poll, and an API that starts its sends there. */
export interface TestNamespace {
  namespace: string;
  app: TestApp;
  connection: Connection;
  client: Client;
  /** The same sender, as a client of this namespace's API. */
  within(sender: Sender): Sender;
  /** @param settings those that differ from the stack's */
  startWorker(pool: PoolName, settings?: Record<string, string>): Promise<TestWorker>;
  close(): Promise<void>;
}

/** @param database that of its API and workers; the stack's unless given */
export async function openNamespace(database: { DATABASE_URL?: string } = {}): Promise<TestNamespace> {
  const { temporal } = await stack();
  const namespace = unique("namespace");
  await prepareNamespace({ env: { TEMPORAL_ADDRESS: temporal.address }, namespace, embedded: false, create: true });
  const reconciler = await holdReconciler();
  const connection = await Connection.connect({ address: temporal.address });
  const app = await serveRoutes(appRouter, { changes: { TEMPORAL_NAMESPACE: namespace, ...database } });
  const workers: TestWorker[] = [];
  return {
    namespace,
    app,
    connection,
    client: new Client({ connection, namespace }),
    within: (sender) => ({ ...sender, client: api(sender.keys.live, app.base) }),
    startWorker: async (pool, settings) => {
      const worker = await startWorker(pool, { TEMPORAL_NAMESPACE: namespace, ...database, ...settings });
      workers.push(worker);
      return worker;
    },
    close: async () => {
      await Promise.all(workers.map((worker) => worker.stop()));
      await app.close();
      await connection.close();
      await reconciler.release();
    },
  };
}

/**
 * Lets the stack's reconciler run by a trigger alone. It would miss the workflows of another namespace's sends in its own,
 * and start them there.
 */
export async function holdReconciler(): Promise<{ release(): Promise<void> }> {
  const { client, close } = await temporalClient();
  const schedule = client.schedule.getHandle(RECONCILER_ID);
  const running = async () => (await schedule.describe()).info.runningActions.length > 0;
  await eventually(() => schedule.pause("held by a test").then(() => true), {
    what: "the reconciler's schedule",
  });
  await eventually(async () => !(await running()), { what: "the end of the reconciler's run" });
  return {
    release: async () => {
      await schedule.unpause();
      await close();
    },
  };
}

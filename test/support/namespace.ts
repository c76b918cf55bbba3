import { Client, Connection } from "@temporalio/client";
import type { Deps } from "../../api/deps.ts";
import { appRouter } from "../../api/router.ts";
import type { Env } from "../../config/env.ts";
import { prepareNamespace } from "../../stack/temporal.ts";
import type { PoolName } from "../../temporal/ids.ts";
import { api } from "./api.ts";
import { serveRoutes, type TestApp } from "./app.ts";
import { unique } from "./factories.ts";
import { startWorker, type TestWorker } from "./processes.ts";
import type { Sender } from "./sending.ts";
import { stack } from "./stack.ts";

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

/**
 * @param changes settings of its API that differ from the stack's; the workers share TEMPORAL_ADDRESS, of another cluster
 * @param replaced dependencies of its API
 */
export async function openNamespace(changes: Partial<Env> = {}, replaced: Partial<Deps> = {}): Promise<TestNamespace> {
  const { TEMPORAL_ADDRESS = (await stack()).temporal.address } = changes;
  const namespace = unique("namespace");
  await prepareNamespace({ env: { TEMPORAL_ADDRESS }, namespace, embedded: false, create: true });
  const connection = await Connection.connect({ address: TEMPORAL_ADDRESS });
  const app = await serveRoutes(appRouter, {
    changes: { TEMPORAL_NAMESPACE: namespace, ...changes },
    with: replaced,
  });
  const workers: TestWorker[] = [];
  return {
    namespace,
    app,
    connection,
    client: new Client({ connection, namespace }),
    within: (sender) => ({ ...sender, client: api(sender.keys.live, app.base) }),
    startWorker: async (pool, settings) => {
      const worker = await startWorker(pool, { TEMPORAL_ADDRESS, TEMPORAL_NAMESPACE: namespace, ...settings });
      workers.push(worker);
      return worker;
    },
    close: async () => {
      await Promise.all(workers.map((worker) => worker.stop()));
      await app.close();
      await connection.close();
    },
  };
}

import { connect } from "node:net";
import { status as grpc } from "@grpc/grpc-js";
import { Connection, isGrpcServiceError } from "@temporalio/client";
import { msToTs } from "@temporalio/common/lib/time.js";
import { loadClientConnectConfig } from "@temporalio/envconfig";
import proto from "@temporalio/proto";
import * as searchAttributes from "../temporal/search-attributes.ts";
import type { GuardedCommand } from "./guard.ts";
import { StackError } from "./processes.ts";
import { until } from "./until.ts";

const { IndexedValueType } = proto.temporal.api.enums.v1;

/** The type of each attribute that operators search workflows by. */
export const SEARCH_ATTRIBUTES = Object.fromEntries(
  Object.values(searchAttributes).map(({ name, type }) => [name, IndexedValueType[`INDEXED_VALUE_TYPE_${type}`]]),
);

/** Servers delete finished workflows after a day by default; an operator needs to look further back. */
const RETENTION = "30 days";
const READY_TIMEOUT_MS = 55_000;

/** The Temporal CLI's dev server with its UI, as it is run for the stack. */
export function temporalDevServer(options: {
  cli: string;
  file: string;
  port: number;
  uiPort: number;
  namespace: string;
  ephemeral: boolean;
}): { command: GuardedCommand; ready: (pid: number, signal: AbortSignal) => Promise<unknown> } {
  const dynamicConfig = {
    "matching.useNewMatcher": true,
    // Off by default in server 1.29; without it one team's activities hold up those of all others.
    "matching.enableFairness": true,
    // Teams take turns within a partition only: of the 4 that a queue has by default, a worker may come to one team's
    // several times before it comes to the other's. New tasks go to one; those that lie in the others are still read.
    "matching.numTaskqueueWritePartitions": 1,
    // It would ask the internet for newer versions.
    "frontend.enableServerVersionCheck": false,
  };
  // Without WAL an update-with-start takes four times as long.
  const pragmas = { journal_mode: "WAL", synchronous: options.ephemeral ? "OFF" : "NORMAL" };
  const pairs = (flag: string, values: object) =>
    Object.entries(values).flatMap(([name, value]) => [flag, `${name}=${value}`]);
  return {
    command: {
      command: options.cli,
      args: [
        ...["server", "start-dev", "--ip", "127.0.0.1", "--log-level", "error"],
        ...["--port", String(options.port), "--ui-port", String(options.uiPort)],
        ...["--namespace", options.namespace, "--db-filename", options.file],
        ...pairs("--sqlite-pragma", pragmas),
        ...pairs("--dynamic-config-value", dynamicConfig),
      ],
      stopSignal: "SIGTERM",
      graceMs: 10_000,
    },
    ready: async (_pid, signal) => {
      for (const port of [options.port, options.uiPort]) {
        await until("Temporal to listen", () => accepts(port), { timeoutMs: READY_TIMEOUT_MS, signal });
      }
    },
  };
}

/** Whether a server listens on a port of this machine. */
export function accepts(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, "127.0.0.1");
    socket.once("connect", () => resolve(true)).once("error", () => resolve(false));
    socket.once("connect", () => socket.destroy());
  });
}

/**
 * Makes sure that the namespace has the search attributes, and one of ours a longer retention.
 * @param embedded the dev server, which makes the namespace by itself
 * @param create makes the namespace where it is missing
 * @param env where address, TLS and API key of the cluster are read from
 * @throws {StackError} when the cluster cannot be reached, refuses to make the namespace, or lacks an attribute and refuses
 *   to add it
 */
export async function prepareNamespace(options: {
  env: Record<string, string>;
  namespace: string;
  embedded: boolean;
  create?: boolean;
}): Promise<void> {
  const { namespace, embedded, create = false } = options;
  const { connectionOptions } = loadClientConnectConfig({ overrideEnvVars: options.env, disableFile: embedded });
  const address = connectionOptions.address ?? "localhost:7233";
  const connection = await Connection.connect({ ...connectionOptions, connectTimeout: 10_000 } as Parameters<
    typeof Connection.connect
  >[0]).catch((cause) => {
    throw new StackError(`Temporal does not answer at ${address}. Check TEMPORAL_ADDRESS, or leave it out.`, { cause });
  });
  try {
    if (create) await createNamespace(connection, namespace);
    const missing = async () => {
      const { customAttributes } = await connection.operatorService.listSearchAttributes({ namespace });
      return Object.entries(SEARCH_ATTRIBUTES).filter(([name]) => !(name in (customAttributes ?? {})));
    };
    // The server listens before its namespace is there.
    const timeoutMs = embedded || create ? READY_TIMEOUT_MS : 5_000;
    const toAdd = await until(`namespace ${namespace}`, missing, { timeoutMs });
    if (toAdd.length > 0) {
      await connection.operatorService.addSearchAttributes({
        namespace,
        searchAttributes: Object.fromEntries(toAdd),
      });
      await until("the search attributes", async () => (await missing()).length === 0, { timeoutMs: READY_TIMEOUT_MS });
    }
    if (embedded) {
      const config = { workflowExecutionRetentionTtl: msToTs(RETENTION) };
      await connection.workflowService.updateNamespace({ namespace, config });
    }
  } catch (cause) {
    if (cause instanceof StackError) throw cause;
    const names = Object.keys(SEARCH_ATTRIBUTES).join(", ");
    throw new StackError(
      `Namespace ${namespace} at ${address} needs the search attributes ${names}, and adding them failed. ` +
        "Add them with `temporal operator search-attribute create`, in Temporal Cloud with `tcld namespace " +
        "search-attributes add`, or check TEMPORAL_NAMESPACE.",
      { cause },
    );
  } finally {
    await connection.close();
  }
}

/** Makes a namespace that is missing. Temporal Cloud, among others, lets nobody make one by this call. */
async function createNamespace({ workflowService }: Connection, namespace: string): Promise<void> {
  // It fails also where the login may not know.
  const isThere = await workflowService.describeNamespace({ namespace }).then(
    () => true,
    () => false,
  );
  if (isThere) return;
  const workflowExecutionRetentionPeriod = msToTs(RETENTION);
  try {
    await workflowService.registerNamespace({ namespace, workflowExecutionRetentionPeriod });
  } catch (cause) {
    if (!isGrpcServiceError(cause)) throw cause;
    if (cause.code === grpc.ALREADY_EXISTS) return;
    throw new StackError(
      `Temporal refuses to make the namespace ${namespace} (${grpc[cause.code]}). Make it with a retention of ` +
        `${RETENTION}, in Temporal Cloud with its UI or \`tcld namespace create\`, and run this again; or check ` +
        "TEMPORAL_NAMESPACE and the rights of the login.",
      { cause },
    );
  }
}

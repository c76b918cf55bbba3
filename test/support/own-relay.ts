import type { Client } from "@temporalio/client";
import pino from "pino";
import { Progress } from "../../config/progress.ts";
import { OutboxRelay } from "../../workers/outbox-relay.ts";
import type { TestTeam } from "./factories.ts";
import type { OwnDatabase } from "./own-database.ts";
import { stack } from "./stack.ts";

interface RelayOptions {
  vault: TestTeam["vault"];
  workerId: string;
  countRelayFailure?: () => void;
  /** Takes the place of the start of a workflow. */
  start: (workflow: string, options: { workflowId: string }) => Promise<unknown>;
}

export interface OwnRelay {
  relay: OutboxRelay;
  close(): Promise<void>;
}

/** Runs a relay in this process, on a database of its own. */
export async function openOwnRelay(
  own: OwnDatabase,
  { vault, workerId, countRelayFailure = () => {}, start }: RelayOptions,
): Promise<OwnRelay> {
  const { env } = await stack();
  const stop = new AbortController();
  const deps = {
    env: { ...env, DATABASE_URL: own.url },
    orm: own.orm,
    vault,
    workerId,
    stopping: stop.signal,
    progress: new Progress(),
    log: pino({ level: "silent" }),
    countRelayFailure,
    countAttempts: () => {},
    countMails: () => {},
    countFailedPruning: () => {},
  };
  const relay = new OutboxRelay(deps, { wake: (webhookIds) => [...webhookIds] });
  const withDeadline = (_: number, work: () => Promise<unknown>) => work();
  relay.connected({ workflow: { start }, withDeadline } as unknown as Client);
  const close = () => {
    stop.abort();
    return relay.close();
  };
  return { relay, close };
}

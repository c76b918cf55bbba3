import { setTimeout as delay } from "node:timers/promises";
import { sql } from "kysely";
import { type EntityManager, kysely } from "../../db/orm.ts";
import { afterCommit } from "../../db/transaction.ts";
import { Batches } from "../../lib/batches.ts";

/** The channels on which relays hear of changes in the outbox, and of endpoints, by id, that deliveries have come for. */
export const OUTBOX_CHANNEL = "webhook_outbox";
export const DUE_CHANNEL = "webhook_due";

/**
 * The least time between two notifications of one process. Postgres lets one transaction that notifies commit at a time, so they are
 * sent beside the transactions they are for, one for many.
 */
const QUIET_MS = 20;

/** By pool. */
const notifications = new WeakMap<object, Batches<undefined, void>>();

/** Wakes the relays. Call it after the commit. A notification that is lost costs a poll interval. */
export function notifyRelay(em: EntityManager): void {
  const driver = em.getDriver();
  const ofPool = notifications.get(driver) ?? new Batches();
  notifications.set(driver, ofPool);
  const notify = async () => {
    await sql`select pg_notify(${OUTBOX_CHANNEL}, '')`.execute(kysely(em.fork({ clear: true })));
    await delay(QUIET_MS, undefined, { ref: false });
  };
  ofPool.join("", undefined, notify).catch(() => undefined);
}

/** Has these endpoints served after the commit. A notification that is lost costs the wait for a sweep. */
export async function notifyDue(em: EntityManager, webhookIds: readonly string[]): Promise<void> {
  await sql`select pg_notify(${DUE_CHANNEL}, id) from unnest(${[...webhookIds]}::text[]) as w (id)`.execute(kysely(em));
}

/** Wakes the relay once the transaction of `em` is committed. */
export const notifyRelayAfterCommit = (em: EntityManager): void => afterCommit(em, notifyRelay, () => notifyRelay(em));

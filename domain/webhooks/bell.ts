import { sql } from "kysely";
import { type EntityManager, kysely } from "../../db/orm.ts";

/** The channel the relay listens on: there is something to hand to endpoints. */
export const RELAY_CHANNEL = "webhook_relay";

/**
 * The least time between two rings of one process. Postgres lets one transaction that notifies commit at a time, so the
 * bell is rung beside the transactions it is for, once for many.
 */
const QUIET_MS = 20;

interface Bell {
  /** Somebody rang while it was kept quiet. */
  again: boolean;
}
const bells = new WeakMap<object, Bell>();

/** Wakes the relay, wherever it runs. Call it after the commit. Should it not be heard, the relay looks by itself. */
export function ringRelay(em: EntityManager): void {
  const driver = em.getDriver();
  const bell = bells.get(driver);
  if (bell) {
    bell.again = true;
    return;
  }
  const opened: Bell = { again: false };
  bells.set(driver, opened);
  const ring = () => {
    sql`select pg_notify(${RELAY_CHANNEL}, '')`.execute(kysely(em.fork({ clear: true }))).catch(() => undefined);
    setTimeout(() => {
      if (!opened.again) {
        bells.delete(driver);
        return;
      }
      opened.again = false;
      ring();
    }, QUIET_MS).unref();
  };
  ring();
}

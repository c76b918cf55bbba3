import type { EventEmitter } from "node:events";

/** What is used here of a `pg` client. */
interface Client extends EventEmitter {
  release(destroy: boolean): void;
}

/** Whoever can give a dead connection back does so at once; after this nobody will. */
const GRACE_MS = 1_000;

/**
 * Gives the pool its slot back when a connection dies in the middle of a transaction. Kysely's rollback fails on such a
 * connection before it comes to release it, so that every transaction cut off by a restart of Postgres would take one
 * slot with it, until there is none and the process answers nothing any more.
 */
export function reclaimDeadConnections(pool: EventEmitter): void {
  const inUse = new WeakSet<Client>();
  pool.on("acquire", (client: Client) => inUse.add(client));
  pool.on("release", (_error: unknown, client: Client) => inUse.delete(client));
  pool.on("connect", (client: Client) => {
    client.once("end", () => {
      setTimeout(() => {
        if (inUse.has(client)) client.release(true);
      }, GRACE_MS);
    });
  });
}

import { sql } from "kysely";
import { kysely } from "../../db/orm.ts";
import { transaction } from "../../db/transaction.ts";
import { beginUpload, orderCheck, type StoredOptions, storePart } from "../../domain/import/stored.ts";
import type { TestTeam } from "./factories.ts";
import { tenantOf } from "./factories.ts";

/** Stores a file of at most 1 MiB and orders its check, which no workflow carries out yet. @returns the id of the import */
export async function storeImport({ em, ...own }: TestTeam, csv: string, options: StoredOptions): Promise<string> {
  const [bytes, tenant] = [Buffer.from(csv), tenantOf(own)];
  return transaction(em, async (tx) => {
    const importId = await beginUpload(tx, tenant, own.owner.id, { name: "people.csv", size: bytes.length });
    await storePart(tx, tenant, importId, 0, bytes);
    await orderCheck(tx, tenant, importId, options);
    return importId;
  });
}

interface HeldSubscriber {
  /** Of the process of Postgres that has the lock. */
  pid: number;
  release: () => Promise<void>;
}

/** Locks a subscriber. */
export async function holdSubscriber({ em, ...own }: TestTeam, email: string): Promise<HeldSubscriber> {
  const holder = em.fork();
  await holder.begin();
  const { pid } = await kysely(holder)
    .selectFrom("subscribers")
    .select(sql<number>`pg_backend_pid()`.as("pid"))
    .where("team_id", "=", own.team.id)
    .where("email", "=", email)
    .forUpdate()
    .executeTakeFirstOrThrow();
  return { pid, release: () => holder.rollback() };
}

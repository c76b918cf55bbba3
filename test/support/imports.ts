import { kysely } from "../../db/orm.ts";
import { transaction } from "../../db/transaction.ts";
import { beginUpload, orderCheck, type StoredOptions, storePart } from "../../domain/import/stored.ts";
import type { TestTeam } from "./factories.ts";
import { tenantOf } from "./webhooks.ts";

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

/** Locks the subscriber with this address until `release`. */
export async function holdSubscriber({ em }: TestTeam, email: string): Promise<{ release: () => Promise<void> }> {
  const holder = em.fork();
  await holder.begin();
  await kysely(holder).selectFrom("subscribers").select("id").where("email", "=", email).forUpdate().execute();
  return { release: () => holder.rollback() };
}

import { type RawBuilder, sql } from "kysely";
import { type Column, columnsOf } from "../../db/columns.ts";
import { type EntityManager, kysely } from "../../db/orm.ts";
import { keyIdOf, sealContext, type Vault } from "./crypto.ts";

type SealedColumn = Column & { sealed: string };

export const sealedColumns = (em: EntityManager): SealedColumn[] =>
  columnsOf(em).filter((column): column is SealedColumn => column.sealed !== undefined);

const isSealed = ({ column, sealed }: SealedColumn): RawBuilder<boolean> =>
  sql`${sql.ref(column)} is not null and ${sql.raw(sealed)}`;
/** The key's id is the part before the first dot. */
const keyId = (column: string): RawBuilder<string> => sql`split_part(${sql.ref(column)}, '.', 1)`;

export async function countSealed(em: EntityManager): Promise<Map<string, number>> {
  const counts = new Map<string, number>();
  for (const sealed of sealedColumns(em)) {
    const { rows } = await sql<{ id: string; texts: number }>`
      select ${keyId(sealed.column)} as id, count(*)::int as texts from ${sql.table(sealed.table)}
      where ${isSealed(sealed)} group by 1`.execute(kysely(em));
    for (const { id, texts } of rows) counts.set(id, (counts.get(id) ?? 0) + texts);
  }
  return counts;
}

export interface ReencryptReport {
  reencrypted: number;
  unreadable: string[];
}

const BATCH_ROWS = 500;

const columns = (names: readonly string[]): RawBuilder<unknown> => sql.join(names.map((name) => sql.ref(name)));

/**
 * Seals everything under the first key. It may run beside the service: a text that changes meanwhile was sealed anew.
 * @param currentId id of the first key of ENCRYPTION_KEYS
 */
export async function reencrypt(em: EntityManager, vault: Vault, currentId: string): Promise<ReencryptReport> {
  const report: ReencryptReport = { reencrypted: 0, unreadable: [] };
  for (const sealed of sealedColumns(em)) await reencryptColumn(em, vault, currentId, sealed, report);
  return report;
}

async function reencryptColumn(
  em: EntityManager,
  vault: Vault,
  currentId: string,
  sealed: SealedColumn,
  report: ReencryptReport,
): Promise<void> {
  const { table, column, key, isTenants } = sealed;
  const tenant = isTenants ? ["team_id", "environment"].filter((name) => !key.includes(name)) : [];
  const db = kysely(em);
  let after: RawBuilder<boolean> = sql`true`;
  for (;;) {
    const { rows } = await sql<Record<string, string> & { sealed_text: string }>`
      select ${columns([...key, ...tenant])}, ${sql.ref(column)} as sealed_text from ${sql.table(table)}
      where ${isSealed(sealed)} and ${keyId(column)} <> ${currentId} and ${after}
      order by ${columns(key)} limit ${BATCH_ROWS}`.execute(db);
    for (const row of rows) {
      const id = key.map((name) => row[name] ?? "");
      const fresh = tryReseal(vault, row.sealed_text, sealContext(table, column, ...id));
      if (fresh === undefined) {
        report.unreadable.push([table, column, ...id].join(" "));
        continue;
      }
      const named = [...tenant, ...key].map((name) => sql`${sql.ref(name)} = ${row[name]}`);
      const { numAffectedRows } = await sql`
        update ${sql.table(table)} set ${sql.ref(column)} = ${fresh}
        where ${sql.join(named, sql` and `)} and ${sql.ref(column)} = ${row.sealed_text}`.execute(db);
      report.reencrypted += Number(numAffectedRows ?? 0);
    }
    const last = rows.at(-1);
    if (!last || rows.length < BATCH_ROWS) return;
    // Also past those that cannot be opened, which stay as they are.
    after = sql`(${columns(key)}) > (${sql.join(key.map((name) => sql`${last[name]}`))})`;
  }
}

function tryReseal(vault: Vault, sealed: string, context: string): string | undefined {
  try {
    return vault.encrypt(vault.decrypt(sealed, context), context);
  } catch {
    return undefined;
  }
}

export async function forgetDatabaseKeys(em: EntityManager, lostId: string): Promise<number> {
  const rows = await kysely(em).selectFrom("database_keys").select(["name", "encrypted_key"]).execute();
  const lost = rows.filter(({ encrypted_key }) => keyIdOf(encrypted_key) === lostId).map(({ name }) => name);
  if (lost.length === 0) return 0;
  await kysely(em).deleteFrom("database_keys").where("name", "in", lost).execute();
  return lost.length;
}

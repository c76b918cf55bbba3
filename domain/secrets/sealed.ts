import { type RawBuilder, sql } from "kysely";
import { type EntityManager, kysely } from "../../db/orm.ts";
import { sealContext } from "../access/idempotency.ts";
import { passwordContext } from "../accounts/accounts.ts";
import { accessTokenContext, grantContext } from "../accounts/tokens.ts";
import { dkimKeyContext } from "../sending-domains/keys.ts";
import { headersContext, secretContext } from "../webhooks/secrets.ts";
import { databaseKeyContext } from "./admission.ts";
import { keyIdOf, type Vault } from "./crypto.ts";

/** Columns of one row: its primary key, of a tenant's table with both tenant columns. */
type Row = Record<string, string>;

/** A column whose texts are sealed under a key of ENCRYPTION_KEYS. */
interface SealedColumn {
  table: string;
  column: string;
  /** Columns that name a row, with an index over them. */
  identity: readonly string[];
  /** Tenant columns that are not part of the identity: named in every change of a row. */
  tenant?: readonly string[];
  /** Rows whose column is sealed, where that is not all of them. */
  only?: RawBuilder<boolean>;
  /** The context that the text of a row is sealed under. */
  context(row: Row): string;
}

const TENANT = ["team_id", "environment"] as const;
const text = (row: Row, column: string): string => row[column] ?? "";

/** Every sealed column; the texts of a column that is not listed here cannot be opened after a rotation. */
export const SEALED_COLUMNS: readonly SealedColumn[] = [
  {
    table: "email_accounts",
    column: "encrypted_password",
    identity: ["id"],
    tenant: TENANT,
    context: (row) => passwordContext(text(row, "id")),
  },
  {
    table: "dkim_keys",
    column: "encrypted_private_key",
    identity: ["id"],
    tenant: TENANT,
    context: (row) => dkimKeyContext(text(row, "id")),
  },
  {
    table: "account_grants",
    column: "encrypted_grant",
    identity: ["account_id"],
    context: (row) => grantContext(text(row, "account_id")),
  },
  {
    table: "account_grants",
    column: "encrypted_access_token",
    identity: ["account_id"],
    context: (row) => accessTokenContext(text(row, "account_id")),
  },
  ...["encrypted_secret", "previous_encrypted_secret", "encrypted_headers"].map((column) => ({
    table: "webhook_endpoints",
    column,
    identity: ["id"],
    tenant: TENANT,
    context: (row: Row) => (column === "encrypted_headers" ? headersContext : secretContext)(text(row, "id")),
  })),
  {
    table: "idempotency_records",
    column: "payload",
    identity: [...TENANT, "key_hash"],
    only: sql<boolean>`payload_kind = 'sealed'`,
    context: (row) =>
      sealContext({
        teamId: text(row, "team_id"),
        environment: row["environment"] === "LIVE" ? "LIVE" : "TEST",
        keyHash: text(row, "key_hash"),
      }),
  },
  {
    table: "database_keys",
    column: "encrypted_key",
    identity: ["name"],
    context: (row) => databaseKeyContext(text(row, "name")),
  },
];

const isSealed = ({ column, only }: SealedColumn): RawBuilder<boolean> =>
  sql`${sql.ref(column)} is not null and ${only ?? sql`true`}`;
/** The key's id is the part before the first dot. */
const keyId = (column: string): RawBuilder<string> => sql`split_part(${sql.ref(column)}, '.', 1)`;

/** How many stored texts are sealed under each key of ENCRYPTION_KEYS, by the key's id. */
export async function countSealed(em: EntityManager): Promise<Map<string, number>> {
  const counts = new Map<string, number>();
  for (const sealed of SEALED_COLUMNS) {
    const { rows } = await sql<{ id: string; texts: number }>`
      select ${keyId(sealed.column)} as id, count(*)::int as texts from ${sql.table(sealed.table)}
      where ${isSealed(sealed)} group by 1`.execute(kysely(em));
    for (const { id, texts } of rows) counts.set(id, (counts.get(id) ?? 0) + texts);
  }
  return counts;
}

/** The result of a pass over everything that is sealed. */
export interface ReencryptReport {
  /** Texts that are now sealed under the first key. */
  reencrypted: number;
  /** Rows whose text no key opens, as `table column id`. */
  unreadable: string[];
}

const BATCH_ROWS = 500;

const columns = (names: readonly string[]): RawBuilder<unknown> => sql.join(names.map((name) => sql.ref(name)));

/**
 * Seals everything under the first key that is sealed under another one. It may run beside the service, be stopped and be
 * run again: a text that changes meanwhile is left as it is, for its writer has sealed it anew.
 * @param currentId id of the first key of ENCRYPTION_KEYS
 */
export async function reencrypt(em: EntityManager, vault: Vault, currentId: string): Promise<ReencryptReport> {
  const report: ReencryptReport = { reencrypted: 0, unreadable: [] };
  for (const sealed of SEALED_COLUMNS) await reencryptColumn(em, vault, currentId, sealed, report);
  return report;
}

async function reencryptColumn(
  em: EntityManager,
  vault: Vault,
  currentId: string,
  sealed: SealedColumn,
  report: ReencryptReport,
): Promise<void> {
  const { table, column, identity, tenant = [], context } = sealed;
  const db = kysely(em);
  let after: RawBuilder<boolean> = sql`true`;
  for (;;) {
    const { rows } = await sql<Row & { sealed_text: string }>`
      select ${columns([...identity, ...tenant])}, ${sql.ref(column)} as sealed_text from ${sql.table(table)}
      where ${isSealed(sealed)} and ${keyId(column)} <> ${currentId} and ${after}
      order by ${columns(identity)} limit ${BATCH_ROWS}`.execute(db);
    for (const row of rows) {
      const fresh = tryReseal(vault, row.sealed_text, context(row));
      if (fresh === undefined) {
        report.unreadable.push([table, column, ...identity.map((name) => row[name])].join(" "));
        continue;
      }
      const named = [...tenant, ...identity].map((name) => sql`${sql.ref(name)} = ${row[name]}`);
      const { numAffectedRows } = await sql`
        update ${sql.table(table)} set ${sql.ref(column)} = ${fresh}
        where ${sql.join(named, sql` and `)} and ${sql.ref(column)} = ${row.sealed_text}`.execute(db);
      report.reencrypted += Number(numAffectedRows ?? 0);
    }
    const last = rows.at(-1);
    if (!last || rows.length < BATCH_ROWS) return;
    // Also past those that cannot be opened, which stay as they are.
    after = sql`(${columns(identity)}) > (${sql.join(identity.map((name) => sql`${last[name]}`))})`;
  }
}

/** The text under the first key; undefined when no key opens it. */
function tryReseal(vault: Vault, sealed: string, context: string): string | undefined {
  try {
    return vault.encrypt(vault.decrypt(sealed, context), context);
  } catch {
    return undefined;
  }
}

/** Deletes the keys that the service made for this database, where they are sealed under a key that is lost. */
export async function forgetDatabaseKeys(em: EntityManager, lostId: string): Promise<number> {
  const rows = await kysely(em).selectFrom("database_keys").select(["name", "encrypted_key"]).execute();
  const lost = rows.filter(({ encrypted_key }) => keyIdOf(encrypted_key) === lostId).map(({ name }) => name);
  if (lost.length === 0) return 0;
  await kysely(em).deleteFrom("database_keys").where("name", "in", lost).execute();
  return lost.length;
}

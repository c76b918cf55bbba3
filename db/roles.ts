import { createHash, createHmac, pbkdf2Sync, randomBytes } from "node:crypto";
import { type QueryExecutorProvider, sql } from "kysely";
import { codeOf } from "./unreachable.ts";

export interface Login {
  name: string;
  password: string;
}

export function loginOf(databaseUrl: string): Login {
  const { username, password } = new URL(databaseUrl);
  if (username === "") throw new Error("The database's address names no role");
  return { name: decodeURIComponent(username), password: decodeURIComponent(password) };
}

const SCRAM_ITERATIONS = 4096;

/** The form in which Postgres stores a password (RFC 5803). A statement with the password itself could reach a log. */
function scramVerifier(password: string): string {
  const salt = randomBytes(16);
  const salted = pbkdf2Sync(password.normalize("NFKC"), salt, SCRAM_ITERATIONS, 32, "sha256");
  const keyed = (text: string) => createHmac("sha256", salted).update(text).digest();
  const storedKey = createHash("sha256").update(keyed("Client Key")).digest("base64");
  const serverKey = keyed("Server Key").toString("base64");
  return `SCRAM-SHA-256$${SCRAM_ITERATIONS}:${salt.toString("base64")}$${storedKey}:${serverKey}`;
}

const MADE_MEANWHILE = new Set(["42710", "23505"]);

/** A role that the server has keeps its password. Not in a transaction. */
export async function ensureRole(db: QueryExecutorProvider, { name, password }: Login): Promise<void> {
  const { rows } = await sql`select from pg_roles where rolname = ${name}`.execute(db);
  if (rows.length > 0) return;
  try {
    await sql`create role ${sql.id(name)} login password ${sql.lit(scramVerifier(password))}`.execute(db);
  } catch (error) {
    if (!(error instanceof Error && MADE_MEANWHILE.has(codeOf(error)))) throw error;
  }
}

/** It cannot change the schema or the record of migrations. */
export async function grantAccess(db: QueryExecutorProvider, { name }: Pick<Login, "name">): Promise<void> {
  const role = sql.id(name);
  const { rows } = await sql<{ database: string; mayGrantStats: boolean }>`
    select current_database() as database,
      pg_has_role('pg_read_all_stats', 'MEMBER WITH ADMIN OPTION')
        and not pg_has_role(${name}, 'pg_read_all_stats', 'MEMBER') as "mayGrantStats"`.execute(db);
  const [{ database, mayGrantStats } = { database: "", mayGrantStats: false }] = rows;
  for (const statement of [
    sql`revoke create on schema public from public`,
    // Imports stage their rows in temporary tables.
    sql`grant connect, temporary on database ${sql.id(database)} to ${role}`,
    sql`grant usage on schema public to ${role}`,
    sql`grant select, insert, update, delete on all tables in schema public to ${role}`,
    sql`grant usage on all sequences in schema public to ${role}`,
    sql`revoke all on mikro_orm_migrations from ${role}`,
    // Else synced_through stands still while another role's transaction writes: its begin would be hidden.
    ...(mayGrantStats ? [sql`grant pg_read_all_stats to ${role}`] : []),
  ]) {
    await statement.execute(db);
  }
}

import { readFileSync } from "node:fs";
import { basename } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { sql } from "kysely";
import { type EntityManager, kysely, openDatabase } from "../db/orm.ts";
import { openStackDatabase } from "../test/support/factories.ts";
import { currentDigests, releasedDigests } from "../test/support/kept.ts";
import { type StackChoice, withStack } from "../test/support/own-stack.ts";
import { stack } from "../test/support/stack.ts";
import { type BenchReport, type Row, round, timed } from "./report.ts";

export interface MigrationsOptions extends StackChoice {
  /** Of each table that a migration names. */
  rows: number;
}

/** Other statements on a table wait for a migration at most this long. */
const MOST_WAIT_MS = 1_000;
const ROWS_PER_INSERT = 1_000_000;
const LOOK_EVERY_MS = 5;
const ROOT = `${import.meta.dirname}/..`;
const NAMES_TABLE = /\b(?:table|on|into|update)\s+(?:only\s+)?"(\w+)"/gi;

const migrationsOf = (digests: Record<string, string>): string[] =>
  Object.keys(digests).filter((path) => path.startsWith("db/migrations/"));

/** SQL for the value of a column in row `i`. */
function sampleOf(type: string): string {
  if (/^(text|character)/.test(type)) return "'x' || i";
  if (type === "smallint") return "(i % 30000)::smallint";
  if (/^(integer|bigint)/.test(type)) return "i";
  if (/^(timestamp|date)/.test(type)) return "now()";
  return { boolean: "false", jsonb: "'{}'", ARRAY: "'{}'" }[type] ?? "0";
}

/** Gives a table rows whose columns hold as little as they may. */
async function fill(em: EntityManager, table: string, rows: number): Promise<void> {
  const columns = await em.execute<{ name: string; type: string }[]>(
    `select column_name as name, data_type as type from information_schema.columns
     where table_schema = 'public' and table_name = ? and is_nullable = 'NO' and column_default is null`,
    [table],
  );
  const [names, values] = [columns.map(({ name }) => `"${name}"`), columns.map(({ type }) => sampleOf(type))];
  for (let from = 1; from <= rows; from += ROWS_PER_INSERT) {
    const to = Math.min(rows, from + ROWS_PER_INSERT - 1);
    await em.execute(`insert into "${table}" (${names}) select ${values} from generate_series(${from}, ${to}) i`);
  }
}

/** Asks again and again for the lock of a write. @returns the longest wait in ms */
async function longestWait(em: EntityManager, table: string, over: AbortSignal): Promise<number> {
  let longest = 0;
  while (!over.aborted) {
    const write = () =>
      kysely(em.fork())
        .transaction()
        .execute((tx) => sql`lock table ${sql.table(table)} in row exclusive mode`.execute(tx));
    longest = Math.max(longest, (await timed(write)).ms);
    await delay(LOOK_EVERY_MS);
  }
  return longest;
}

/** How long writes wait for each migration since the latest release, on large tables. */
export function benchMigrations(options: MigrationsOptions): Promise<BenchReport> {
  return withStack(options, async () => {
    const released = migrationsOf(releasedDigests());
    const pending = migrationsOf(currentDigests()).filter((path) => !released.includes(path));
    const server = await openStackDatabase("owner");
    await server.em.execute("create database migrations");
    const owners = new URL((await stack()).env.MIGRATION_DATABASE_URL ?? "");
    owners.pathname = "/migrations";
    const orm = await openDatabase(owners.href, { poolMax: 10, work: "migration" });
    const rows: Row[] = [];
    const problems: string[] = [];
    try {
      for (const path of released) await orm.migrator.up({ to: basename(path, ".ts") });
      for (const path of pending) {
        const name = basename(path, ".ts");
        const text = readFileSync(`${ROOT}/${path}`, "utf8");
        const known = await orm.em.execute<{ name: string }[]>("select tablename as name from pg_tables");
        const named = new Set([...text.matchAll(NAMES_TABLE)].map((match) => match[1]));
        // Not those that it makes.
        const tables = known.map(({ name }) => name).filter((table) => named.has(table));
        for (const table of tables) await fill(orm.em.fork(), table, options.rows);
        const over = new AbortController();
        const waiting = Promise.all(tables.map((table) => longestWait(orm.em.fork(), table, over.signal)));
        const { ms } = await timed(() => orm.migrator.up({ to: name }));
        over.abort();
        for (const [i, waited] of (await waiting).entries()) {
          const [table = "", wait] = [tables[i], round(waited)];
          rows.push({ migration: name, table, rows: options.rows, "takes ms": round(ms), "writes wait ms": wait });
          if (waited > MOST_WAIT_MS) problems.push(`${name}: writes of ${table} waited ${wait} ms`);
        }
      }
    } finally {
      await orm.close(true);
      await server.em.execute("drop database migrations with (force)");
      await server.close(true);
    }
    return {
      bench: "migrations",
      options: { rows: options.rows },
      tables: { "Migrations since the latest release": rows },
      problems,
    };
  });
}

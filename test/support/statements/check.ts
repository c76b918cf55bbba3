import { readdirSync, readFileSync } from "node:fs";
import { CompiledQuery } from "kysely";
import { type EntityManager, kysely } from "../../../db/orm.ts";
import { EXCEPTIONS } from "./exceptions.ts";
import type { Recorded } from "./recorded.ts";
import { type Columns, unscopedTables } from "./scope.ts";

async function readColumns(em: EntityManager): Promise<Columns> {
  const rows = await em.execute<{ table_name: string; column_name: string }[]>(
    "select table_name, column_name from information_schema.columns where table_schema = 'public'",
  );
  const tables = new Map<string, Set<string>>();
  for (const row of rows) {
    const columns = tables.get(row.table_name) ?? new Set();
    tables.set(row.table_name, columns.add(row.column_name));
  }
  return tables;
}

export const readStatements = (folder: string): Recorded[] =>
  readdirSync(folder).flatMap((file) =>
    readFileSync(`${folder}/${file}`, "utf8")
      .split("\n")
      // A process that was killed may have left half a line.
      .filter((line) => line.endsWith("}"))
      .map((line) => JSON.parse(line) as Recorded),
  );

const READS_OR_WRITES = /^(?:\/\*.*?\*\/ )?(?:select|insert|update|delete|with)\b/;

const simplified = (statement: string): string =>
  statement.toLowerCase().replaceAll('"', "").replace(/\s+/g, " ").trim();

const isException = (statement: string, { program, from: [file = ""] }: Recorded, table: string): boolean =>
  EXCEPTIONS.some(
    (exception) =>
      exception.program === program &&
      exception.file.test(file) &&
      exception.tables.includes(table) &&
      (exception.statement?.test(statement) ?? true),
  );

/** Adds a column everywhere: a prepared `select *` then fails with "cached plan must not change result type". */
export async function findChanging(folder: string, em: EntityManager): Promise<string[]> {
  const texts = readStatements(folder).flatMap(({ text, prepared }) =>
    prepared && READS_OR_WRITES.test(simplified(text)) ? [text] : [],
  );
  const statements = [...new Set(texts)];
  const tx = em.fork();
  const run = <Row>(text: string) => kysely(tx).executeQuery(CompiledQuery.raw(text) as CompiledQuery<Row>);
  const readResults = async () => {
    for (const [i, text] of statements.entries()) await run(`prepare checked_${i} as ${text}`);
    const { rows } = await run<{ i: number; columns: number }>(
      `select substring(name from 'checked_(.*)')::int as i, cardinality(result_types) as columns
       from pg_prepared_statements where name like 'checked\\_%'`,
    );
    await run("deallocate all");
    return new Map(rows.map(({ i, columns }) => [i, columns]));
  };
  await tx.begin();
  try {
    const { rows: tables } = await run<{ name: string }>(
      "select quote_ident(relname) as name from pg_class where relkind = 'r' and relnamespace = 'public'::regnamespace",
    );
    // Temporary tables hide those of the schema, and nobody waits for their locks.
    for (const { name } of tables) await run(`create temporary table ${name} (like public.${name} including all)`);
    const before = await readResults();
    for (const { name } of tables) await run(`alter table pg_temp.${name} add column added_by_a_migration text`);
    const after = await readResults();
    return statements.filter((_text, i) => before.get(i) !== after.get(i)).map(simplified);
  } finally {
    await tx.rollback();
  }
}

/** @returns those on tenants' tables that do not keep to one tenant and are no exception */
export async function findUnscoped(folder: string, em: EntityManager): Promise<string[]> {
  const tables = await readColumns(em);
  const statements = readStatements(folder);
  if (statements.length === 0) throw new Error(`no statement was recorded in ${folder}`);
  const found = new Map<string, string>();
  /** By their texts: each process wrote down most statements anew. */
  const known = new Map<string, string[]>();
  for (const recorded of statements) {
    const { text, from, program, persists } = recorded;
    const statement = simplified(text);
    // An entity is written by its primary key after it was read under its tenant's filter.
    if (persists || !READS_OR_WRITES.test(statement)) continue;
    const all = known.get(text) ?? (await unscopedTables(text, tables));
    known.set(text, all);
    const unscoped = all.filter((table) => !isException(statement, recorded, table));
    if (unscoped.length === 0) continue;
    found.set(
      `${program} ${statement}`,
      `${unscoped.join(", ")} in: ${statement}\n    ${program}: ${from.join(" < ")}`,
    );
  }
  return [...found.values()];
}

import { readdirSync, readFileSync } from "node:fs";
import type { EntityManager } from "../../../db/orm.ts";
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

const readStatements = (folder: string): Recorded[] =>
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

/**
 * Looks at all statements that the processes of the stack ran so far.
 * @returns those on tenants' tables that do not keep to one tenant and are no exception
 */
export async function findUnscoped(folder: string, em: EntityManager): Promise<string[]> {
  const tables = await readColumns(em);
  const statements = readStatements(folder);
  if (statements.length === 0) throw new Error(`no statement was recorded in ${folder}`);
  const found = new Map<string, string>();
  for (const recorded of statements) {
    const { text, from, program, persists } = recorded;
    const statement = simplified(text);
    // An entity is written by its primary key after it was read under its tenant's filter.
    if (persists || !READS_OR_WRITES.test(statement)) continue;
    const unscoped = (await unscopedTables(text, tables)).filter((table) => !isException(statement, recorded, table));
    if (unscoped.length === 0) continue;
    found.set(
      `${program} ${statement}`,
      `${unscoped.join(", ")} in: ${statement}\n    ${program}: ${from.join(" < ")}`,
    );
  }
  return [...found.values()];
}

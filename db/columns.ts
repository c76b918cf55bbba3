import type { EntityMetadata } from "@mikro-orm/postgresql";
import type { ColumnFacts } from "./entities/shared.ts";
import type { Database, EntityManager } from "./orm.ts";

/** By their names in the database. */
export interface Column extends ColumnFacts {
  table: keyof Database;
  column: string;
  key: string[];
  isTenants: boolean;
}

const COLUMNS = new WeakMap<object, readonly Column[]>();

/** Read once: deletions and restores ask for them, too. */
export function columnsOf(em: EntityManager): readonly Column[] {
  const metadata = em.getMetadata();
  const known = COLUMNS.get(metadata) ?? readColumns([...metadata.getAll().values()]);
  COLUMNS.set(metadata, known);
  return known;
}

const readColumns = (entities: readonly EntityMetadata[]): Column[] =>
  entities
    .flatMap(({ tableName, props }) => {
      const columns = props.map((prop) => ({ prop, column: prop.fieldNames[0] ?? prop.name }));
      const key = columns.filter(({ prop }) => prop.primary).map(({ column }) => column);
      const isTenants = ["team_id", "environment"].every((name) => columns.some(({ column }) => column === name));
      return columns.map(({ prop, column }): Column => {
        const { personal, retention, sealed } = prop as ColumnFacts;
        return { table: tableName as keyof Database, column, key, isTenants, personal, retention, sealed };
      });
    })
    .sort((a, b) => a.table.localeCompare(b.table));

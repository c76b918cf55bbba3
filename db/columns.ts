import type { ColumnFacts } from "./entities/shared.ts";
import type { Database, EntityManager } from "./orm.ts";

/** By their names in the database. */
export interface Column extends ColumnFacts {
  table: keyof Database;
  column: string;
  key: string[];
  isTenants: boolean;
}

export const columnsOf = (em: EntityManager): Column[] =>
  [...em.getMetadata().getAll().values()]
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

import { type Expression, type SqlBool, sql } from "kysely";
import type { Environment } from "./entities/shared.ts";

/** The owner of rows: a team in one of its two environments. */
export interface Tenant {
  teamId: string;
  environment: Environment;
}

/** Keeps a statement to one tenant's rows. `table` or its alias is needed where it has more than one. */
export function ofTenant({ teamId, environment }: Tenant, table?: string): Expression<SqlBool> {
  const column = (name: string) => sql.ref(table === undefined ? name : `${table}.${name}`);
  return sql<SqlBool>`(${column("team_id")} = ${teamId} and ${column("environment")} = ${environment})`;
}

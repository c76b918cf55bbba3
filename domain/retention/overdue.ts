import { sql } from "kysely";
import type { LedgerState } from "../../db/entities/send.ts";
import { type EntityManager, kysely } from "../../db/orm.ts";
import type { RetentionSettings } from "./pruning.ts";

/** Of the ledgers and the remembered answers; 0 when none is overdue. */
export async function readOverdueSeconds(
  em: EntityManager,
  { LEDGER_DAYS, LEDGER_NAMES_DAYS }: RetentionSettings,
): Promise<number> {
  const endOf = (state: LedgerState) => sql`
    select completed_at from sends where ledger_state = ${sql.lit(state)} and ledger_state <> 'DELETED'
      and completed_at is not null and status in ('SENT', 'CANCELLED', 'FAILED') and settled_at is not null
    order by completed_at limit 1`;
  const { rows } = await sql<{ seconds: number }>`
    select coalesce(greatest(extract(epoch from now() - min(due_at)), 0), 0)::float8 as seconds from (
      select (${endOf("COMPLETE")}) + make_interval(days => least(${LEDGER_NAMES_DAYS}::int, ${LEDGER_DAYS}::int)) as due_at
      union all select (${endOf("NAMELESS")}) + make_interval(days => ${LEDGER_DAYS}::int)
      union all select (${endOf("DELETING")}) + make_interval(days => ${LEDGER_DAYS}::int)
      union all select min(expires_at) from idempotency_records
    ) d`.execute(kysely(em));
  return rows[0]?.seconds ?? 0;
}

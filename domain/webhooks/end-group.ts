import { sql } from "kysely";
import type { DeliveryStatus } from "../../db/entities/webhook.ts";
import { type EntityManager, kysely } from "../../db/orm.ts";

/** The end of deliveries that were not attempted yet. */
interface Untried {
  status: "BLOCKED" | "FAILED";
  why: string;
}

/** Ends a group whose deliveries cannot continue: those that failed before are FAILED, the others become `untried`. */
export async function endGroup(
  em: EntityManager,
  groupId: string,
  why: string,
  untried: Untried,
): Promise<{ failed: number; blocked: number }> {
  const { rows } = await sql<{ status: DeliveryStatus }>`
    with ended as (
      update webhook_deliveries
      set status = case when status = 'PENDING' then ${untried.status} else 'FAILED' end, next_attempt_at = null,
        error_message =
          case when status = 'PENDING' then ${untried.why} else concat_ws(' ', error_message, ${why}::text) end,
        updated_at = now()
      where group_id = ${groupId} and status in ('PENDING', 'RETRYING') returning status
    ), gone as (delete from webhook_groups where id = ${groupId})
    select status from ended`.execute(kysely(em));
  const blocked = rows.filter(({ status }) => status === "BLOCKED").length;
  return { failed: rows.length - blocked, blocked };
}

/** Why a delivery is FAILED that an operator cancelled. */
export const CANCELLED = "An operator gave it up; it can be replayed.";

/** Ends a group at an operator's command. @returns how many deliveries were given up */
export async function cancelGroup(em: EntityManager, groupId: string): Promise<number> {
  const { failed } = await endGroup(em, groupId, CANCELLED, { status: "FAILED", why: CANCELLED });
  return failed;
}

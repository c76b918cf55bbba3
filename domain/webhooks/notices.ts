import { sql } from "kysely";
import { type EntityManager, kysely } from "../../db/orm.ts";
import { claimedUntil, isRecent } from "../mail/system-mail.ts";

/** The first time; after that the process that claimed a notice is presumed dead. */
const CLAIM_MINUTES = 10;

export interface DueNotice {
  webhookId: string;
  teamId: string;
  name: string;
  url: string;
  teamName: string;
  /** Owners of the team; none when all have left. */
  emails: string[];
}

/** Claims notices of endpoints that were switched off within a day. */
export async function claimNotices(em: EntityManager, limit: number): Promise<DueNotice[]> {
  const { rows } = await sql<DueNotice>`
    with due as (
      select id from webhook_endpoints
      where notice_due_at <= clock_timestamp() and ${isRecent(sql`disabled_at`)}
      order by notice_due_at limit ${limit} for update skip locked
    )
    update webhook_endpoints w set notice_due_at = ${claimedUntil(sql`w.disabled_at`, CLAIM_MINUTES)}
    from due, teams t where w.id = due.id and t.id = w.team_id
    returning w.id as "webhookId", t.id as "teamId", w.name, w.url, t.name as "teamName", array(
      select m.email from members m where m.team_id = t.id and m.role = 'OWNER' and m.removed_at is null
      order by m.id) as emails`.execute(kysely(em));
  return rows;
}

/** Notes that a notice was handed over, or can never be. */
export async function settleNotice(em: EntityManager, webhookId: string): Promise<void> {
  await kysely(em).updateTable("webhook_endpoints").set({ notice_due_at: null }).where("id", "=", webhookId).execute();
}

import { sql } from "kysely";
import type { Role } from "../../db/entities/team.ts";
import { type EntityManager, kysely } from "../../db/orm.ts";
import { claimedUntil, isRecent } from "../mail/system-mail.ts";

/** The first time; after that the process that claimed a mail is presumed dead. A link is tried each time again. */
const CLAIM_MINUTES = 1;

/** A link that is due by mail. */
export interface DueLink {
  id: string;
  email: string;
}

/** Claims links that are neither used nor expired. */
export async function claimLinks(em: EntityManager, limit: number): Promise<DueLink[]> {
  const { rows } = await sql<DueLink>`
    update sign_in_links set mail_due_at = clock_timestamp() + make_interval(mins => ${CLAIM_MINUTES})
    where id in (
      select id from sign_in_links
      where mail_due_at <= clock_timestamp() and expires_at > clock_timestamp() and used_at is null
      order by mail_due_at limit ${limit} for update skip locked
    )
    returning id, email`.execute(kysely(em));
  return rows;
}

/** Notes that the mail was handed over, or can never be. */
export async function settleLink(em: EntityManager, { id }: Pick<DueLink, "id">): Promise<void> {
  await kysely(em).updateTable("sign_in_links").set({ mail_due_at: null }).where("id", "=", id).execute();
}

/** The mail to a member who was added in the console. */
export interface DueInvite {
  id: string;
  teamId: string;
  email: string;
  role: Role;
  teamName: string;
}

/** Claims the mails to those who were added within a day. */
export async function claimInvites(em: EntityManager, limit: number): Promise<DueInvite[]> {
  const { rows } = await sql<DueInvite>`
    with due as (
      select id from members
      where invite_due_at <= clock_timestamp() and removed_at is null and ${isRecent(sql`created_at`)}
      order by invite_due_at limit ${limit} for update skip locked
    )
    update members m set invite_due_at = ${claimedUntil(sql`m.created_at`, CLAIM_MINUTES)} from due, teams t
    where m.id = due.id and t.id = m.team_id
    returning m.id, t.id as "teamId", m.email, m.role, t.name as "teamName"`.execute(kysely(em));
  return rows;
}

export async function settleInvite(em: EntityManager, { id }: Pick<DueInvite, "id">): Promise<void> {
  await kysely(em).updateTable("members").set({ invite_due_at: null }).where("id", "=", id).execute();
}

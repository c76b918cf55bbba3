import { sql } from "kysely";
import { type EntityManager, kysely, type Tenant } from "../../db/orm.ts";
import { newId } from "../ids.ts";
import type { MailRef } from "../links.ts";
import { suppress } from "../suppressions.ts";
import { emit } from "../webhooks/emit.ts";
import { subscriptionRecord, unsubscribeRecord } from "../webhooks/records.ts";

/** How somebody unsubscribed: by the page behind the link, or by their mail program (RFC 8058). */
export type UnsubscribeSource = "link" | "one_click";

const REASON = "UNSUBSCRIBED";

interface MailedRow {
  team_id: string;
  environment: Tenant["environment"];
  team_name: string;
  resource_id: string;
  resource_type: string;
  member_id: string;
  email: string;
  list_id: string | null;
}

/** The mail a link came from. The ledger knows its address even when the subscriber is gone or has another one. */
async function readMail(em: EntityManager, { sendId, seq }: MailRef): Promise<MailedRow | undefined> {
  const { rows } = await sql<MailedRow>`
    select s.team_id, s.environment, t.name as team_name, s.resource_id, s.resource_type,
      r.member_id, r.email, r.list_id
    from send_recipients r join sends s on s.id = r.send_id join teams t on t.id = s.team_id
    where r.send_id = ${sendId} and r.seq = ${seq}`.execute(kysely(em));
  return rows[0];
}

/** Who sent a mail, for the page behind its link; undefined when there is no such mail. */
export async function readSender(em: EntityManager, mail: MailRef): Promise<string | undefined> {
  return (await readMail(em, mail))?.team_name;
}

/**
 * Takes the person behind a mail off: an opt-out of every list that mail's newsletter targets, a team-wide suppression
 * (one that stands keeps its reason) and one row of history. Doing it again changes nothing.
 * Runs in the caller's transaction, with no tenant: the signed link is the authority.
 * @returns false when there is no such mail
 */
export async function unsubscribe(em: EntityManager, ref: MailRef, source: UnsubscribeSource): Promise<boolean> {
  const mail = await readMail(em, ref);
  if (!mail) return false;
  // Two clicks at once: the second waits here, then finds the first one's row.
  await sql`select pg_advisory_xact_lock(hashtextextended(${`unsubscribe/${mail.resource_id}/${mail.email}`}, 0))`.execute(
    kysely(em),
  );
  await optOutOfTargets(em, mail);
  await suppress(em, tenantOf(mail), [mail.email], REASON);
  await recordOnce(em, mail, source);
  return true;
}

const tenantOf = ({ team_id, environment }: MailedRow): Tenant => ({ teamId: team_id, environment });

/**
 * Every targeted list the person is on, and the one that brought the mail even if they left it since: that opt-out has
 * to stand should they be added again. It is no event then: they were taken off it when they left.
 */
async function optOutOfTargets(em: EntityManager, mail: MailedRow): Promise<void> {
  const { rows } = await sql<{ list_id: string; left: boolean }>`
    insert into subscriptions (list_id, subscriber_id, team_id, environment, status, unsubscribed_at)
    select l.id, p.id, l.team_id, l.environment, 'UNSUBSCRIBED', now()
    from lists l join subscribers p on p.id = ${mail.member_id}
    where l.team_id = ${mail.team_id} and l.environment = ${mail.environment}
      and (l.id = ${mail.list_id} or exists (
        select 1 from newsletter_lists n join subscriptions s on s.list_id = n.list_id
        where n.newsletter_id = ${mail.resource_id} and n.list_id = l.id and s.subscriber_id = p.id))
    order by l.id
    on conflict (list_id, subscriber_id) do update
      set status = 'UNSUBSCRIBED', unsubscribed_at = now(), confirmation_due_at = null
      where subscriptions.status <> 'UNSUBSCRIBED'
    -- A row that this statement inserted was never locked or changed.
    returning list_id, xmax <> 0 as left`.execute(kysely(em));
  const left = rows.flatMap((row) => (row.left ? [row.list_id] : []));
  if (left.length === 0) return;
  await emit(em, tenantOf(mail), "subscription.removed", {
    record: subscriptionRecord("s"),
    from: sql`subscriptions s where s.subscriber_id = ${mail.member_id} and s.list_id = any(${left})`,
  });
}

async function recordOnce(em: EntityManager, mail: MailedRow, source: UnsubscribeSource): Promise<void> {
  const id = newId("unsubscribe");
  const { numAffectedRows } = await sql`
    insert into unsubscribes (id, team_id, environment, email, reason, source, campaign_id)
    select ${id}, ${mail.team_id}, ${mail.environment}, ${mail.email}, ${REASON}, ${source},
      ${mail.resource_id}
    where not exists (
      select 1 from unsubscribes
      where team_id = ${mail.team_id} and environment = ${mail.environment}
        and campaign_id = ${mail.resource_id} and email = ${mail.email})`.execute(kysely(em));
  if (!numAffectedRows) return;
  await emit(em, tenantOf(mail), "unsubscribe.created", {
    record: unsubscribeRecord("u"),
    from: sql`unsubscribes u where u.id = ${id}`,
  });
}

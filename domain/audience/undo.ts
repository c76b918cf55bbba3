import { sql } from "kysely";
import { type EntityManager, kysely, ofTenant } from "../../db/orm.ts";
import { hashAddress } from "../erasure/erased-addresses.ts";
import type { MailRef } from "../mail/links.ts";
import type { Vault } from "../secrets/crypto.ts";
import { emit } from "../webhooks/emit.ts";
import { askOptedOut } from "./lists.ts";
import { subscriptionRows } from "./opt-outs.ts";
import { liftUnsubscribed } from "./suppressions.ts";
import {
  lockUnsubscribe,
  type MailedRow,
  type MailOrigin,
  mailedPerson,
  originOf,
  readLeft,
  readMail,
} from "./unsubscribes.ts";

/** For so long a link takes back the opt-out that it made. */
const UNDO_MINUTES = 60;

/**
 * SQL: when the link of a mail made opt-outs that it may take back. What one of them wrote has its time, to the millisecond. None
 * once the mail was reported: a complaint leaves the suppression of an opt-out as it is.
 */
const undoableTimes = ({ sendId, seq }: MailRef) => sql`
  select u.unsubscribed_at from send_recipients r join sends d on d.id = r.send_id
  join unsubscribes u on u.team_id = d.team_id and u.environment = d.environment and u.campaign_id = d.resource_id
    and u.email = r.email
  where r.send_id = ${sendId} and r.seq = ${seq} and u.source in ('link', 'one_click')
    and u.unsubscribed_at > clock_timestamp() - make_interval(mins => ${UNDO_MINUTES})
    and not exists (select from mail_reports m where m.send_id = r.send_id and m.seq = r.seq)`;

/** Whether the link of a mail has made an opt-out that it may take back. */
export async function isUndoable(em: EntityManager, ref: MailRef): Promise<boolean> {
  const { rows } = await sql`${undoableTimes(ref)} limit 1`.execute(kysely(em));
  return rows.length > 0;
}

export interface Undone extends MailOrigin {
  /** False where the recipient is opted out as before. */
  isBack: boolean;
  /** The lists that ask for a confirmation by mail. */
  asked: string[];
}

/**
 * Takes back the opt-outs that the link of a mail made within the hour, in the caller's transaction: their suppressions, and the
 * opt-outs of lists. A list with double opt-in asks for a confirmation by mail, as after any other opt-out. The record of the
 * unsubscribe stays. @returns undefined when there is no such mail
 */
export async function undoUnsubscribe(em: EntityManager, vault: Vault, ref: MailRef): Promise<Undone | undefined> {
  const mail = await readMail(em, ref);
  if (!mail) return undefined;
  const origin = originOf(mail, []);
  if (origin.isErased) return { ...origin, isBack: false, asked: [] };
  await lockUnsubscribe(em, mail);
  if (!(await isUndoable(em, ref))) return { ...origin, isBack: false, asked: [] };
  const asked = await liftOptOuts(em, vault, mail, ref);
  const isOwn = sql`s.created_at in (${undoableTimes(ref)})
    and s.email in (select ${mail.email}::text union select p.email from ${mailedPerson(mail)})`;
  await liftUnsubscribed(em, mail, isOwn);
  return { ...origin, isBack: (await readLeft(em, mail)) === undefined, asked };
}

/** @returns the names of the lists that ask for a confirmation */
async function liftOptOuts(em: EntityManager, vault: Vault, mail: MailedRow, ref: MailRef): Promise<string[]> {
  const times = undoableTimes(ref);
  await sql`delete from list_opt_outs o where ${ofTenant(mail, "o")} and o.unsubscribed_at in (${times})
    and o.address_hash = ${hashAddress(vault, mail, mail.email)}`.execute(kysely(em));
  const isOwn = sql`${ofTenant(mail, "s")} and s.unsubscribed_at in (${times}) and s.subscriber_id in (
    select p.id from subscribers p where ${ofTenant(mail, "p")} and (p.id = ${mail.memberId} or p.email = ${mail.email}))`;
  // The person was not on these lists.
  await sql`delete from subscriptions s where ${isOwn} and s.created_at = s.unsubscribed_at
    and s.signed_up_again_at is null`.execute(kysely(em));
  const { rows } = await sql<{ listId: string; id: string; name: string; isAsked: boolean; asks: boolean }>`
    select s.list_id as "listId", s.subscriber_id as id, l.name, s.signed_up_again_at is not null as "isAsked",
      l.optin = 'DOUBLE' or s.confirmed_at is null as asks
    from subscriptions s join lists l on l.id = s.list_id where ${isOwn} order by l.id, s.subscriber_id for update of s`.execute(
    kysely(em),
  );
  for (const { listId, id, asks, isAsked } of rows) {
    if (isAsked) continue;
    if (asks) {
      await askOptedOut(em, mail, listId, [id]);
      continue;
    }
    const row = sql`s.list_id = ${listId} and s.subscriber_id = ${id}`;
    await sql`update subscriptions s set status = 'CONFIRMED', unsubscribed_at = null
      where ${ofTenant(mail, "s")} and ${row}`.execute(kysely(em));
    await emit(em, mail, "subscription.confirmed", subscriptionRows(mail, row));
  }
  return [...new Set(rows.flatMap(({ name, asks, isAsked }) => (asks || isAsked ? [name] : [])))];
}

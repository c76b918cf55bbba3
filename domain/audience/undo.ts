import { sql } from "kysely";
import { type EntityManager, kysely, ofTenant } from "../../db/orm.ts";
import { hashAddress } from "../erasure/erased-addresses.ts";
import type { MailRef } from "../mail/links.ts";
import type { Vault } from "../secrets/crypto.ts";
import { emit } from "../webhooks/emit.ts";
import { askOptedOut } from "./lists.ts";
import { isOf, subscriptionRows } from "./opt-outs.ts";
import { isUnsubscribe, liftUnsubscribed } from "./suppressions.ts";
import {
  lockUnsubscribe,
  type MailedRow,
  type MailOrigin,
  mailedPerson,
  originOf,
  readLeft,
  readMail,
  readUndoable,
} from "./unsubscribes.ts";

export interface Undone extends MailOrigin {
  /** `suppressed`: nothing was taken back, as the address is suppressed otherwise. `none`: the recipient is still opted out. */
  outcome: "back" | "suppressed" | "none";
  /** The lists that ask for a confirmation by mail. */
  asked: string[];
}

/**
 * Takes back the opt-outs that the link of a mail made within the hour, in the caller's transaction: their suppressions, and the
 * opt-outs of lists, unless another suppression keeps mail from the recipient. A list with double opt-in asks for a confirmation
 * by mail, as after any other opt-out. The record of the unsubscribe stays. @returns undefined when there is no such mail
 */
export async function undoUnsubscribe(em: EntityManager, vault: Vault, ref: MailRef): Promise<Undone | undefined> {
  const mail = await readMail(em, ref);
  if (!mail) return undefined;
  const still: Undone = { ...originOf(mail, []), outcome: "none", asked: [] };
  if (still.isErased) return still;
  await lockUnsubscribe(em, mail);
  const times = await readUndoable(em, mail);
  if (times.length === 0) return still;
  const isOfPerson = sql`s.email in (select ${mail.email}::text union select p.email from ${mailedPerson(mail)})`;
  const isOfThese = sql`s.created_at = any(${times}::timestamptz[])`;
  // Locked, so that a report waits for the end.
  const { rows } = await sql<{ isLifted: boolean }>`
    select ${isUnsubscribe("s")} and ${isOfThese} as "isLifted" from suppressions s
    where ${ofTenant(mail, "s")} and ${isOfPerson} order by s.email for update`.execute(kysely(em));
  if (rows.some(({ isLifted }) => !isLifted)) return { ...still, outcome: "suppressed" };
  const asked = await liftOptOuts(em, vault, mail, times);
  await liftUnsubscribed(em, mail, sql`${isOfThese} and ${isOfPerson}`);
  return (await readLeft(em, mail)) ? still : { ...still, outcome: "back", asked };
}

/** @param times of the opt-outs @returns the names of the lists that ask for a confirmation */
async function liftOptOuts(em: EntityManager, vault: Vault, mail: MailedRow, times: string[]): Promise<string[]> {
  const isOfThese = sql`unsubscribed_at = any(${times}::timestamptz[])`;
  await sql`delete from list_opt_outs o where ${ofTenant(mail, "o")} and ${isOfThese}
    and o.address_hash = ${hashAddress(vault, mail, mail.email)}`.execute(kysely(em));
  const isOwn = sql`${ofTenant(mail, "s")} and ${isOfThese} and s.subscriber_id in (
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
    const row = isOf(listId, id);
    await sql`update subscriptions s set status = 'CONFIRMED', unsubscribed_at = null
      where ${ofTenant(mail, "s")} and ${row}`.execute(kysely(em));
    await emit(em, mail, "subscription.confirmed", subscriptionRows(mail, row));
  }
  return [...new Set(rows.flatMap(({ name, asks, isAsked }) => (asks || isAsked ? [name] : [])))];
}

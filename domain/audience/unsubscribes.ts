import { sql } from "kysely";
import type { UnsubscribeSource } from "../../db/entities/audience.ts";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../db/orm.ts";
import { type StoredAddress, shownAddress } from "../address.ts";
import { binnedRows } from "../bin/bin.ts";
import { isPlaceholder } from "../erasure/erased-addresses.ts";
import { orNotFound } from "../errors.ts";
import { newId } from "../ids.ts";
import type { MailRef } from "../mail/links.ts";
import type { Vault } from "../secrets/crypto.ts";
import type { ResourceType } from "../sends/resource.ts";
import { type LinkTeam, LOOK, type Look, SENDER } from "../teams/brand.ts";
import { emit } from "../webhooks/emit.ts";
import { unsubscribeRecord } from "../webhooks/records.ts";
import { besideBin, insertOptOuts, isOf, keepOptOuts, optOut, restoreOptOuts } from "./opt-outs.ts";
import { suppress } from "./suppressions.ts";

const REASON = "UNSUBSCRIBED";

export interface MailedRow extends MailRef, Tenant, StoredAddress, Pick<Look, "teamName" | "language"> {
  resourceId: string;
  resourceType: ResourceType;
  memberId: string;
  listId: string | null;
  /** Its opens and clicks are counted. */
  tracked: boolean;
}

/** It is of a newsletter, or of a sequence of a list. */
const cameByList = ({ resourceType, listId }: MailedRow): boolean => resourceType === "newsletter" || listId !== null;

/** SQL: the subscriber or contact `p` who was mailed, if there still is one; their address may be another one now. */
export const mailedPerson = (mail: MailedRow) => sql`
  ${cameByList(mail) ? sql`subscribers` : sql`contacts`} p where ${ofTenant(mail, "p")} and p.id = ${mail.memberId}`;

/** The ledger knows its address even when the subscriber is gone or has another one. */
export async function readMail(em: EntityManager, { sendId, seq }: MailRef): Promise<MailedRow | undefined> {
  const { rows } = await sql<MailedRow>`
    select s.id as "sendId", r.seq, s.team_id as "teamId", s.environment, ${SENDER} as "teamName", t.language, s.resource_id as "resourceId",
      s.resource_type as "resourceType", r.member_id as "memberId", r.email, r.email_spelling as "emailSpelling",
      r.list_id as "listId", r.tracked
    from send_recipients r join sends s on s.id = r.send_id join teams t on t.id = s.team_id
    where r.send_id = ${sendId} and r.seq = ${seq}`.execute(kysely(em));
  return rows[0];
}

/** The team whose mail it is, read without a lock; undefined when there is no such mail. */
export async function teamOfMail(em: EntityManager, { sendId }: MailRef): Promise<LinkTeam | undefined> {
  const { rows } = await sql<LinkTeam>`
    select t.id as "teamId", ${LOOK} from sends s join teams t on t.id = s.team_id where s.id = ${sendId}`.execute(
    kysely(em),
  );
  return rows[0];
}

export interface MailOrigin {
  teamName: string;
  /** The lists by which the mail came; none for a campaign. */
  listNames: string[];
  isErased: boolean;
  /** The link may take back an opt-out that it made. */
  isUndoable: boolean;
}

export const originOf = ({ teamName, email }: MailedRow, listNames: string[], isUndoable = false): MailOrigin => ({
  teamName,
  listNames,
  isErased: isPlaceholder(email),
  isUndoable,
});

/** The lists by which the mail came, or all mail of the team. */
export type UnsubscribeScope = "lists" | "all";

/** @returns undefined when there is no such mail; `left`: what the recipient has left already */
export async function readOrigin(
  em: EntityManager,
  ref: MailRef,
): Promise<(MailOrigin & { left: UnsubscribeScope | undefined }) | undefined> {
  const mail = await readMail(em, ref);
  if (!mail) return undefined;
  const left = await readLeft(em, mail);
  return { ...originOf(mail, await readListNames(em, mail), left && (await isUndoable(em, mail))), left };
}

/** Undefined for a recipient who has left nothing. */
export async function readLeft(em: EntityManager, mail: MailedRow): Promise<UnsubscribeScope | undefined> {
  const isLeft = async (scope: UnsubscribeScope) => ((await isUnsubscribed(em, mail, scope)) ? scope : undefined);
  return (await isLeft("all")) ?? (await isLeft("lists"));
}

/** For so long a link takes back the opt-outs that it made. */
export const UNDO_MINUTES = 60;

/**
 * When the link of a mail made opt-outs that it may take back, as Postgres writes instants: the rows that an opt-out wrote have
 * its time, to the millisecond. None once the mail was reported.
 */
export async function readUndoable(em: EntityManager, mail: MailedRow): Promise<string[]> {
  const { rows } = await sql<{ at: string }>`
    select u.unsubscribed_at as at from unsubscribes u
    where ${ofTenant(mail, "u")} and u.campaign_id = ${mail.resourceId} and u.email = ${mail.email}
      and u.source in ('link', 'one_click')
      and u.unsubscribed_at > clock_timestamp() - make_interval(mins => ${UNDO_MINUTES})
      and not exists (select from mail_reports m
        where ${ofTenant(mail, "m")} and m.send_id = ${mail.sendId} and m.seq = ${mail.seq})`.execute(kysely(em));
  return rows.map(({ at }) => at);
}

const isUndoable = async (em: EntityManager, mail: MailedRow) => (await readUndoable(em, mail)).length > 0;

/** Of two clicks at once, the second waits here and then finds the row of the first. */
export async function lockUnsubscribe(em: EntityManager, { resourceId, email }: MailedRow): Promise<void> {
  await sql`select pg_advisory_xact_lock(hashtextextended(${`unsubscribe/${resourceId}/${email}`}, 0))`.execute(
    kysely(em),
  );
}

/**
 * Unsubscribes the recipient of a mail, once, in the caller's transaction: opts them out of every list that the newsletter
 * targets, and adds a row of history. Leaving all mail also suppresses the address, and the present one of the person; so does
 * an unsubscribe whose opt-out no list can keep. The signed link is the authority.
 * @returns the lists that the recipient has left, none after leaving all mail; undefined when there is no such mail
 */
export async function unsubscribe(
  em: EntityManager,
  vault: Vault,
  ref: MailRef,
  source: UnsubscribeSource,
  scope: UnsubscribeScope = "all",
): Promise<MailOrigin | undefined> {
  const mail = await readMail(em, ref);
  if (!mail) return undefined;
  // No person sees the answer to a program.
  const answer = async (listNames: string[]) =>
    originOf(mail, listNames, source === "link" && (await isUndoable(em, mail)));
  if (await isUnsubscribed(em, mail, scope)) {
    return answer(scope === "lists" ? await readListNames(em, mail) : []);
  }
  await lockUnsubscribe(em, mail);
  let changes = cameByList(mail) ? await optOutOfLists(em, vault, mail) : 0;
  const listNames = scope === "lists" ? await readListNames(em, mail) : [];
  if (listNames.length === 0) {
    // Locked, so that the address does not change before it is suppressed.
    const present = await sql<StoredAddress>`
      select p.email, p.email_spelling as "emailSpelling" from ${mailedPerson(mail)} for key share`.execute(kysely(em));
    const addresses = [mail, ...present.rows].map(shownAddress);
    changes += (await suppress(em, mail, addresses, REASON)).added.length;
  }
  await record(em, mail, source, changes > 0);
  return answer(listNames);
}

/**
 * SQL: the lists `l` that the subscriber `p` leaves: the targeted lists that they are on, and the list that brought the mail.
 * Where they have another address now, the one who has the mail's address leaves too.
 */
const leftLists = (mail: MailedRow) => sql`
  lists l join subscribers p on (p.id = ${mail.memberId} or p.email = ${mail.email}) and ${ofTenant(mail, "p")}
  where ${ofTenant(mail, "l")}
    and (l.id = ${mail.listId} or exists (
      select 1 from newsletter_lists n join subscriptions s on s.list_id = n.list_id and ${ofTenant(mail, "s")}
      where n.newsletter_id = ${mail.resourceId} and n.list_id = l.id and s.subscriber_id = p.id))
  order by l.id`;

/** Asked without a lock: a request may come many times. */
async function isUnsubscribed(em: EntityManager, mail: MailedRow, scope: UnsubscribeScope): Promise<boolean> {
  const { rows } = await sql<{ done: boolean }>`
    with left_lists as (
      select coalesce(s.status = 'UNSUBSCRIBED' and s.signed_up_again_at is null, false) as is_opted_out
      from (select l.id, p.id as subscriber_id from ${leftLists(mail)}) l
      left join subscriptions s on s.list_id = l.id and s.subscriber_id = l.subscriber_id and ${ofTenant(mail, "s")}
    )
    select not exists (select from left_lists where not is_opted_out)
      and exists (
        select from unsubscribes
        where ${ofTenant(mail)} and campaign_id = ${mail.resourceId} and email = ${mail.email})
      and (
        ${scope === "lists"}::boolean and exists (select from left_lists)
        or not exists (
          select from (select ${mail.email}::text as email union select p.email from ${mailedPerson(mail)}) a
          where not exists (select from suppressions x where ${ofTenant(mail, "x")} and x.email = a.email)
            or exists (
              select from subscriptions s join subscribers p on p.id = s.subscriber_id and ${ofTenant(mail, "p")}
              where ${ofTenant(mail, "s")} and p.email = a.email and s.signed_up_again_at is not null))
      ) as done`.execute(kysely(em));
  return rows[0]?.done === true;
}

async function readListNames(em: EntityManager, mail: MailedRow): Promise<string[]> {
  if (!cameByList(mail)) return [];
  const { rows } = await sql<{ name: string }>`select distinct on (l.id) l.name from ${leftLists(mail)}`.execute(
    kysely(em),
  );
  return rows.map(({ name }) => name);
}

/**
 * Also of the list that brought the mail if they left it since, so that the opt-out holds if they are added again.
 * @returns how many opt-outs are new
 */
async function optOutOfLists(em: EntityManager, vault: Vault, mail: MailedRow): Promise<number> {
  // Locked, so that neither of the two is deleted before the row is written.
  const rows = sql`select l.id as list_id, p.id as subscriber_id, now() as unsubscribed_at
    from ${leftLists(mail)} for key share of l, p`;
  const isOfMail = sql`s.subscriber_id in (
      select p.id from subscribers p where (p.id = ${mail.memberId} or p.email = ${mail.email}) and ${ofTenant(mail, "p")})
    and (s.list_id = ${mail.listId} or exists (select from ${binnedRows(mail, sql`s.list_id`, "newsletter_lists")}
      and b.data->>'newsletter_id' = ${mail.resourceId}))`;
  const added = await besideBin(em, mail, isOfMail, () => insertOptOuts(em, mail, rows));
  const holders = await sql<{ id: string; email: string }>`
    select id, email from subscribers where ${ofTenant(mail)} and email = ${mail.email}`.execute(kysely(em));
  if (holders.rows[0]?.id === mail.memberId) return added;
  // The address that was mailed keeps them too, for the subscriber who has it or the next one.
  const kept = sql`select distinct l.id as list_id, now() as unsubscribed_at from (select l.id from ${leftLists(mail)}) l`;
  await keepOptOuts(em, vault, mail, mail.email, kept);
  await restoreOptOuts(em, vault, mail, holders.rows);
  return added;
}

/**
 * For a person who asked the team to get no mail: opts a subscriber out of a list, and suppresses their address. No mail caused it, so
 * it is in no history of unsubscribes.
 * @throws {ApiError} `not_found` for one who is not on the list
 */
export async function unsubscribeMember(
  em: EntityManager,
  tenant: Tenant,
  listId: string,
  subscriberId: string,
): Promise<void> {
  const isMember = isOf(listId, subscriberId);
  // Locked first, as by other changes of a subscriber: the address stays the one that is suppressed.
  const { rows } = await sql<StoredAddress>`
    select p.email, p.email_spelling as "emailSpelling"
    from subscriptions s join subscribers p on p.id = s.subscriber_id and ${ofTenant(tenant, "p")}
    where ${ofTenant(tenant, "s")} and ${isMember} for key share of p`.execute(kysely(em));
  const address = shownAddress(orNotFound(rows[0]));
  await optOut(em, tenant, isMember);
  await suppress(em, tenant, [address], REASON);
}

/** @param isNew a record of an earlier unsubscribe does not stand for this one */
async function record(em: EntityManager, mail: MailedRow, source: UnsubscribeSource, isNew: boolean): Promise<void> {
  const id = newId("unsubscribe");
  const { numAffectedRows } = await sql`
    insert into unsubscribes (id, team_id, environment, email, email_spelling, reason, source, campaign_id)
    select ${id}, ${mail.teamId}, ${mail.environment}, ${mail.email}, ${mail.emailSpelling}, ${REASON}, ${source},
      ${mail.resourceId}
    where ${isNew}::boolean or not exists (
      select 1 from unsubscribes
      where ${ofTenant(mail)} and campaign_id = ${mail.resourceId} and email = ${mail.email})`.execute(kysely(em));
  if (!numAffectedRows) return;
  await emit(em, mail, "unsubscribe.created", {
    record: unsubscribeRecord("u"),
    from: sql`unsubscribes u where ${ofTenant(mail, "u")} and u.id = ${id}`,
  });
}

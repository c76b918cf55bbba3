import { sql } from "kysely";
import type { ConsentStatus, ConsentWay } from "../../db/entities/audience.ts";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../db/orm.ts";
import { isoInstant } from "../../db/sql.ts";
import { storedAddress } from "../address.ts";
import { hashAddress, isErased, isPlaceholder } from "../erasure/erased-addresses.ts";
import { wordsOf } from "../languages/words.ts";
import type { MailRef } from "../mail/links.ts";
import type { Vault } from "../secrets/crypto.ts";
import { emit } from "../webhooks/emit.ts";
import { contactRecord, subscriberRecord } from "../webhooks/records.ts";
import { type MailedRow, mailedPerson, readMail } from "./unsubscribes.ts";

/** A person's answer whether their opens and clicks may be counted. */
export interface ConsentAnswer {
  status: ConsentStatus;
  /** The text that they were shown. */
  words?: string | null | undefined;
  /** Now unless given; never later. */
  at?: Date | undefined;
}

/**
 * Stores the answers of people, by their addresses, in the caller's transaction. A later answer replaces an earlier one. A grant
 * lifts a denial only from the person, from a member, or from a client that states its later time; an import lifts none.
 * An API's answer without a time that repeats the last one leaves its time, way and words: they are the proof.
 * An erased address is left out.
 * @param given valid addresses; of several answers for one, in any spelling, the last counts
 * @returns the addresses whose answer was stored, as addresses are compared
 */
export async function setConsents(
  em: EntityManager,
  vault: Vault,
  tenant: Tenant,
  given: readonly (ConsentAnswer & { email: string })[],
  way: ConsentWay,
): Promise<Set<string>> {
  if (given.length === 0) return new Set();
  const people = new Map(given.map((answer) => [storedAddress(answer.email).email, answer]));
  const [emails, answers] = [[...people.keys()], [...people.values()]];
  const isOwnAct = way === "PAGE" || way === "MEMBER" || way === "FORM";
  const lifting = emails.filter((email) => isOwnAct || people.get(email)?.at !== undefined);
  // A file may be of any age, and be imported again.
  const mayReplace =
    way === "IMPORT"
      ? sql`k.status = 'GRANTED' and excluded.status = 'DENIED'`
      : sql`excluded.email = any(${lifting}::text[]) or (k.status = 'GRANTED' and excluded.status = 'DENIED')
          or (k.status = excluded.status and excluded.words <> coalesce(k.words, ''))`;
  const { rows } = await sql<{ email: string }>`
    insert into tracking_consents as k (team_id, environment, email, status, way, words, at)
    select ${tenant.teamId}, ${tenant.environment}, g.email, g.status, ${way}, g.words,
      least(g.at, clock_timestamp())
    from unnest(${emails}::text[], ${answers.map(({ status }) => status)}::text[],
      ${answers.map(({ words }) => words ?? null)}::text[], ${answers.map(({ at }) => at?.toISOString() ?? null)}::timestamptz[],
      ${emails.map((email) => hashAddress(vault, tenant, email))}::text[]) g (email, status, words, at, hash)
    where not ${isErased(tenant, sql.ref("g.hash"))}
    -- In one order, so that two calls with the same addresses do not deadlock.
    order by g.email collate "C"
    on conflict (team_id, environment, email) do update
      set status = excluded.status, way = excluded.way, words = excluded.words, at = excluded.at
      where excluded.at > k.at and (${mayReplace})
    returning email`.execute(kysely(em));
  const stored = rows.map(({ email }) => email);
  if (stored.length > 0) {
    const isOf = (row: string) => sql`${ofTenant(tenant, row)} and ${sql.ref(`${row}.email`)} = any(${stored}::text[])`;
    await emit(em, tenant, "contact.updated", { record: contactRecord("c"), from: sql`contacts c where ${isOf("c")}` });
    await emit(em, tenant, "subscriber.updated", {
      record: subscriberRecord("s"),
      from: sql`subscribers s where ${isOf("s")}`,
    });
  }
  return new Set(stored);
}

/** Copies a denial to the new address of a person. A grant stays with the former one: another person may read the new one. */
export async function keepDenial(em: EntityManager, tenant: Tenant, former: string, present: string): Promise<void> {
  await sql`
    insert into tracking_consents as k (team_id, environment, email, status, way, words, at)
    select d.team_id, d.environment, ${present}, d.status, d.way, d.words, d.at from tracking_consents d
    where ${ofTenant(tenant, "d")} and d.email = ${former} and d.status = 'DENIED'
    on conflict (team_id, environment, email) do update
      set status = excluded.status, way = excluded.way, words = excluded.words, at = excluded.at
      where excluded.at > k.at`.execute(kysely(em));
}

/** Of the recipient of a mail, by the address that it went to. */
export interface MailConsent {
  teamName: string;
  isErased: boolean;
  /** The opens and clicks of this mail are counted, unless the status is DENIED. */
  tracked: boolean;
  /** The question that the page shows; it is stored with the answer. */
  question: string;
  /** Null before the first. `at` is ISO 8601. */
  answer: { status: ConsentStatus; words: string | null; at: string } | null;
}

const questionOf = ({ teamName, language }: MailedRow): string => wordsOf(language).tracking.question(teamName);

async function readConsent(em: EntityManager, mail: MailedRow): Promise<MailConsent> {
  const { teamName, email, tracked } = mail;
  const answer = await kysely(em)
    .selectFrom("tracking_consents")
    .select(["status", "words", isoInstant(sql.ref("at")).as("at")])
    .where(ofTenant(mail))
    .where("email", "=", email)
    .executeTakeFirst();
  const question = questionOf(mail);
  return { teamName, tracked, isErased: isPlaceholder(email), question, answer: answer ?? null };
}

/** @returns undefined when there is no such mail */
export async function readMailConsent(em: EntityManager, ref: MailRef): Promise<MailConsent | undefined> {
  const mail = await readMail(em, ref);
  return mail && readConsent(em, mail);
}

/**
 * Stores the answer of a mail's recipient, in the caller's transaction. The signed link is the authority. A denial also concerns
 * the present address of the person. @returns undefined when there is no such mail
 */
export async function answerMailConsent(
  em: EntityManager,
  vault: Vault,
  ref: MailRef,
  status: ConsentStatus,
): Promise<MailConsent | undefined> {
  const mail = await readMail(em, ref);
  if (!mail) return undefined;
  if (!isPlaceholder(mail.email)) {
    const present = await sql<{ email: string }>`select p.email from ${mailedPerson(mail)}`.execute(kysely(em));
    const people = status === "DENIED" ? [mail, ...present.rows] : [mail];
    const answers = people.map(({ email }) => ({ email, status, words: questionOf(mail) }));
    await setConsents(em, vault, mail, answers, "PAGE");
  }
  return readConsent(em, mail);
}

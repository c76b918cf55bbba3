import { hash } from "node:crypto";
import { sql } from "kysely";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../db/orm.ts";
import { countForm } from "../forms/forms.ts";
import type { ConfirmationMailRef, ConfirmationToken } from "../mail/links.ts";
import type { Vault } from "../secrets/crypto.ts";
import { enrolConfirmed } from "../sequences/enrolments.ts";
import { type LinkTeam, LOOK, SENDER } from "../teams/brand.ts";
import { emit } from "../webhooks/emit.ts";
import { isOfForm, signUpMark } from "./confirmation-mails.ts";
import { CONFIRMED } from "./initial-status.ts";
import { optOut, subscriptionRows } from "./opt-outs.ts";
import { liftUnsubscribed } from "./suppressions.ts";
import { setConsents } from "./tracking-consents.ts";

export interface Confirmation {
  listName: string;
  teamName: string;
  /** The address is on the do-not-mail list: no mail comes yet. */
  isSuppressed: boolean;
  isConfirmed: boolean;
  /** The words to which the person agrees by confirming: those of the form at which they signed up. */
  agreed: string[];
}

/** Stands for the words to which a person agrees by a button. */
export const idOfWords = (agreed: readonly string[]): string => hash("sha256", agreed.join("\n"));

/**
 * Reads a confirmation link; undefined when it is not of the present address and sign-up. It takes no tenant: the signed link
 * is the authority.
 */
export async function readConfirmation(em: EntityManager, token: ConfirmationToken): Promise<Confirmation | undefined> {
  return (await findSubscription(em, token))?.confirmation;
}

/** The team of its list, read without a lock; undefined when the list is gone. */
export async function teamOfConfirmation(
  em: EntityManager,
  { listId }: ConfirmationToken,
): Promise<LinkTeam | undefined> {
  const { rows } = await sql<LinkTeam>`
    select t.id as "teamId", ${LOOK} from lists l join teams t on t.id = l.team_id where l.id = ${listId}`.execute(
    kysely(em),
  );
  return rows[0];
}

interface FoundSubscription extends Required<ConfirmationMailRef> {
  tenant: Tenant;
  /** Of the form at which the person signed up, with their answer about tracking; all null for another sign-up. */
  formId: string | null;
  tracking: boolean | null;
  words: string | null;
  confirmation: Confirmation;
}

async function findSubscription(
  em: EntityManager,
  token: ConfirmationToken,
  { lock = false }: { lock?: boolean } = {},
): Promise<FoundSubscription | undefined> {
  const { rows } = await sql<
    Omit<Confirmation, "agreed"> &
      Tenant &
      Omit<FoundSubscription, "tenant" | "confirmation"> & { consent: string | null }
  >`
    select s.team_id as "teamId", s.environment, p.email, ${signUpMark} as "signUp",
      s.status = 'CONFIRMED' and coalesce(s.confirmed_at >= s.signed_up_again_at, true) as "isConfirmed",
      l.name as "listName", ${SENDER} as "teamName", exists (select from suppressions x
        where x.team_id = s.team_id and x.environment = s.environment and x.email = p.email) as "isSuppressed",
      f.form_id as "formId", f.consent, f.tracking as words, case when f.tracking is not null then s.form_tracking end as tracking
    from subscriptions s
    join subscribers p on p.id = s.subscriber_id
    join lists l on l.id = s.list_id
    join teams t on t.id = s.team_id
    left join form_texts f on f.id = s.form_text_id and ${isOfForm}
    where s.list_id = ${token.listId} and s.subscriber_id = ${token.subscriberId}
      and (s.status <> 'UNSUBSCRIBED' or s.signed_up_again_at is not null)
    ${lock ? sql`for update of s for share of p, l` : sql``}`.execute(kysely(em));
  const [row] = rows;
  if (!row || !token.verify(row)) return undefined;
  const { teamId, environment, email, signUp, formId, consent, tracking, words, ...confirmation } = row;
  const agreed = [consent, tracking ? words : null].filter((text) => text !== null);
  return {
    ...{ tenant: { teamId, environment }, email, signUp, formId, tracking, words },
    confirmation: { ...confirmation, agreed },
  };
}

/**
 * Confirms a subscription, once, in the caller's transaction. The link of a sign-up after an opt-out also lifts the
 * suppression of an unsubscribe, and then opts the person out of the lists that they did not confirm since.
 * @param agreedId of the words that the person was shown; the subscription stays as it is where they are others by now
 * @returns undefined as `readConfirmation`
 */
export async function confirmSubscription(
  em: EntityManager,
  vault: Vault,
  token: ConfirmationToken,
  agreedId = idOfWords([]),
): Promise<Confirmation | undefined> {
  const present = await findSubscription(em, token);
  if (!present || present.confirmation.isConfirmed) return present?.confirmation;
  // Locked, so that the address does not change before the confirmation is written.
  const found = await findSubscription(em, token, { lock: true });
  const isShown = found && idOfWords(found.confirmation.agreed) === agreedId;
  if (!isShown || found.confirmation.isConfirmed) return found?.confirmation;
  const { tenant, email, signUp, formId, tracking, words } = found;
  const confirmation = { ...found.confirmation, isConfirmed: true };
  await kysely(em)
    .updateTable("subscriptions")
    .set({ ...CONFIRMED, unsubscribed_at: null })
    .where(ofTenant(tenant))
    .where("list_id", "=", token.listId)
    .where("subscriber_id", "=", token.subscriberId)
    .execute();
  const isOfSubscriber = sql`s.subscriber_id = ${token.subscriberId}`;
  const row = sql`${isOfSubscriber} and s.list_id = ${token.listId}`;
  await emit(em, tenant, "subscription.confirmed", subscriptionRows(tenant, row));
  await enrolConfirmed(em, vault, tenant, token.listId, [token.subscriberId]);
  if (formId !== null) await countForm(em, formId, "confirmed");
  if (tracking !== null) {
    const answer = { email, status: tracking ? "GRANTED" : "DENIED", words } as const;
    await setConsents(em, vault, tenant, [answer], "FORM");
  }
  // Campaigns would mail a contact with the address.
  const isNoContact = sql`s.email = ${email}
    and not exists (select from contacts c where ${ofTenant(tenant, "c")} and c.email = s.email)`;
  if (signUp === null || !(await liftUnsubscribed(em, tenant, isNoContact))) return confirmation;
  const isOther = sql`${isOfSubscriber} and s.list_id <> ${token.listId}
    and not coalesce(s.confirmed_at >= s.signed_up_again_at, false)`;
  // The suppression kept their mail away.
  await optOut(em, tenant, isOther, { keepSignUps: true });
  return { ...confirmation, isSuppressed: false };
}

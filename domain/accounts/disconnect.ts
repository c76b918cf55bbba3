import { sql } from "kysely";
import { type EntityManager, kysely, ofTenant } from "../../db/orm.ts";
import { transaction } from "../../db/transaction.ts";
import { ApiError, notFound } from "../errors.ts";
import type { SendingAccount } from "../sends/account-capacity.ts";
import { pickAccount } from "../sends/draft.ts";

const MAX_NAMED = 5;

/**
 * Deletes an account with its credentials. Draft campaigns that other ACTIVE accounts can mail name it no longer; mails in
 * flight are finished.
 * @throws {ApiError} `not_found`; `resource_state_invalid` when no other ACTIVE account can mail a draft, a send that has
 *   not ended, or a send whose unknown outcomes wait for a decision
 */
export function disconnectAccount(em: EntityManager, account: SendingAccount): Promise<void> {
  const { accountId } = account;
  return transaction(em, async (tx) => {
    const db = kysely(tx);
    const ownAccount = () =>
      db.selectFrom("email_accounts").select("id").where("id", "=", accountId).where(ofTenant(account)).forUpdate();
    if ((await ownAccount().execute()).length === 0) throw notFound();
    const letters = await newslettersOf(tx, account);
    await db.deleteFrom("email_accounts").where("id", "=", accountId).where(ofTenant(account)).execute();
    const needed = [...(await readNeeded(tx, account)), ...(await withoutAccount(tx, account, letters))];
    if (needed.length > 0) throw neededBy(needed);
    await db
      .updateTable("campaigns")
      .set({ account_ids: sql<string[]>`array_remove(account_ids, ${accountId})` })
      .where(ofTenant(account))
      .where("status", "=", "DRAFT")
      .where(sql<boolean>`${accountId} = any(account_ids)`)
      .execute();
    for (const table of ["account_grants", "account_checks", "account_refusals"] as const) {
      await db.deleteFrom(table).where("account_id", "=", accountId).execute();
    }
  });
}

function neededBy(needed: readonly string[]): ApiError {
  const more = needed.length > MAX_NAMED ? ` and ${needed.length - MAX_NAMED} more` : "";
  return new ApiError(
    "resource_state_invalid",
    `Without the account no ACTIVE one mails ${needed.slice(0, MAX_NAMED).join(", ")}${more}. Connect another for the ` +
      "address, or delete the drafts; end or cancel the sends, and decide about their unknown outcomes.",
  );
}

/** Ids of the draft campaigns and sends that the account mails, and no other ACTIVE one does. */
async function readNeeded(em: EntityManager, account: SendingAccount): Promise<string[]> {
  const { accountId } = account;
  const mailed = (accounts: ReturnType<typeof sql>) =>
    sql`exists (select from email_accounts a where ${ofTenant(account, "a")} and a.status = 'ACTIVE' and a.id = any(${accounts}))`;
  const { rows } = await sql<{ id: string }>`
    select s.id from sends s
    cross join lateral (select array_agg(account_id) as ids from send_lanes where send_id = s.id) l
    where ${ofTenant(account, "s")} and (s.status in ('SCHEDULED', 'SENDING', 'PAUSED') or s.review_until > now())
      and ${accountId} = any(l.ids) and not ${mailed(sql`l.ids`)}
    union all
    select c.id from campaigns c
    where ${ofTenant(account, "c")} and c.status = 'DRAFT' and ${accountId} = any(c.account_ids)
      and not ${mailed(sql`c.account_ids`)}`.execute(kysely(em));
  return rows.map(({ id }) => id);
}

interface DraftLetter {
  id: string;
  from: string;
}

/** The draft newsletters that the account mails now. */
async function newslettersOf(em: EntityManager, account: SendingAccount): Promise<DraftLetter[]> {
  const drafts = await kysely(em)
    .selectFrom("newsletters")
    .select(["id", "from_email as from"])
    .where(ofTenant(account))
    .where("status", "=", "DRAFT")
    .where("from_email", "is not", null)
    .$narrowType<DraftLetter>()
    .execute();
  const picked = await pickedFor(em, account, drafts);
  return drafts.filter(({ from }) => picked.get(from)?.id === account.accountId);
}

/** Ids of those of the newsletters that no ACTIVE account mails now. */
async function withoutAccount(
  em: EntityManager,
  account: SendingAccount,
  letters: readonly DraftLetter[],
): Promise<string[]> {
  const picked = await pickedFor(em, account, letters);
  return letters.filter(({ from }) => picked.get(from)?.status !== "ACTIVE").map(({ id }) => id);
}

async function pickedFor(em: EntityManager, account: SendingAccount, letters: readonly DraftLetter[]) {
  const picked = new Map<string, Awaited<ReturnType<typeof pickAccount>>>();
  for (const from of new Set(letters.map((letter) => letter.from)))
    picked.set(from, await pickAccount(em, account, from));
  return picked;
}

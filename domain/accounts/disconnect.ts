import { sql } from "kysely";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../db/orm.ts";
import { transaction } from "../../db/transaction.ts";
import { ApiError, notFound } from "../errors.ts";
import { pickAccount } from "../sends/drafts/draft.ts";
import type { SendingAccount } from "../sends/ledger/account-capacity.ts";

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
    const letters: DraftLetter[] = [];
    for (const letter of await readDraftNewsletters(tx, account)) {
      if ((await pickAccount(tx, account, letter.from))?.id === accountId) letters.push(letter);
    }
    const deleted = await db
      .deleteFrom("email_accounts")
      .where("id", "=", accountId)
      .where(ofTenant(account))
      .executeTakeFirst();
    if (deleted.numDeletedRows === 0n) throw notFound();
    const needed = await readNeeded(tx, account);
    for (const { id, from } of letters) {
      if ((await pickAccount(tx, account, from))?.status !== "ACTIVE") needed.push(id);
    }
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

export interface AccountUse {
  id: string;
  kind: "newsletter" | "campaign" | "sequence";
  name: string;
  status: string;
}

/** Drafts, sends that have not ended, and running sequences that the account mails, or would mail now. */
export async function readAccountUses(em: EntityManager, account: SendingAccount): Promise<AccountUse[]> {
  const { accountId } = account;
  const open = sql`s.status in ('SCHEDULED', 'SENDING', 'PAUSED') or s.review_until > now()`;
  const sent = (kind: "newsletter" | "campaign") => sql`
    select r.id, ${kind}::text as kind, r.name, s.status, null as "from" from sends s
    join ${sql.table(`${kind}s`)} r on r.id = s.resource_id and ${ofTenant(account, "r")}
    where ${ofTenant(account, "s")} and (${open})
      and exists (select from send_lanes l where l.send_id = s.id and l.account_id = ${accountId})`;
  const { rows } = await sql<AccountUse & { from: string | null }>`
    ${sent("newsletter")} union ${sent("campaign")}
    union all select c.id, 'campaign', c.name, c.status, null from campaigns c
    where ${ofTenant(account, "c")} and c.status = 'DRAFT' and ${accountId} = any(c.account_ids)
    union all select n.id, 'newsletter', n.name, n.status, n.from_email from newsletters n
    where ${ofTenant(account, "n")} and n.status = 'DRAFT' and n.from_email is not null
    union all select c.id, 'sequence', c.name, c.status, q.from_email
    from sequences q join campaigns c on c.id = q.campaign_id and ${ofTenant(account, "c")}
    where ${ofTenant(account, "q")} and c.status in ('ACTIVE', 'PAUSED')`.execute(kysely(em));
  const addresses = new Set(rows.map(({ from }) => from).filter((from) => from !== null));
  const mailed = new Set<string>();
  for (const from of addresses) if ((await pickAccount(em, account, from))?.id === accountId) mailed.add(from);
  return rows.filter(({ from }) => from === null || mailed.has(from)).map(({ from: _, ...use }) => use);
}

/** Why an account cannot be disconnected now; null when it can. @throws {ApiError} `not_found` */
export function disconnectRefusal(em: EntityManager, account: SendingAccount): Promise<string | null> {
  return transaction(em, (tx) => disconnectAccount(tx, account), { isRolledBack: true }).then(
    () => null,
    (error) => {
      if (error instanceof ApiError && error.code === "resource_state_invalid") return error.message;
      throw error;
    },
  );
}

function neededBy(needed: readonly string[]): ApiError {
  const more = needed.length > MAX_NAMED ? ` and ${needed.length - MAX_NAMED} more` : "";
  return new ApiError(
    "resource_state_invalid",
    `No other ACTIVE account can mail ${needed.slice(0, MAX_NAMED).join(", ")}${more}. Connect another for the ` +
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

type DraftLetter = { id: string; from: string };

const readDraftNewsletters = (em: EntityManager, tenant: Tenant): Promise<DraftLetter[]> =>
  kysely(em)
    .selectFrom("newsletters")
    .select(["id", "from_email as from"])
    .where(ofTenant(tenant))
    .where("status", "=", "DRAFT")
    .where("from_email", "is not", null)
    .$narrowType<DraftLetter>()
    .execute();

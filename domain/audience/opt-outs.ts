import { type RawBuilder, type SqlBool, sql } from "kysely";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../db/orm.ts";
import { hashAddress } from "../erasure/erased-addresses.ts";
import type { Vault } from "../secrets/crypto.ts";
import { emit } from "../webhooks/emit.ts";
import { subscriptionRecord } from "../webhooks/records.ts";
import { pending } from "./initial-status.ts";

/** SQL: a subscription `s` is that of a subscriber to a list. */
export const isOf = (listId: string, subscriberId: string): RawBuilder<SqlBool> =>
  sql`s.list_id = ${listId} and s.subscriber_id = ${subscriberId}`;

/** Records of the tenant's subscriptions `s` that meet a condition, for their events. */
export const subscriptionRows = (tenant: Tenant, condition: RawBuilder<unknown>) => ({
  record: subscriptionRecord("s"),
  from: sql`subscriptions s where ${ofTenant(tenant, "s")} and ${condition}`,
});

interface OptedOut {
  list_id: string;
  subscriber_id: string;
  /** They were on the list until now. */
  has_left: boolean;
}

const SIGN_UP_ENDED = sql`signed_up_again_at = null, confirmation_due_at = null, confirmation_withheld = null`;
const SIGN_UP_KEPT = sql`
  confirmation_due_at = case when s.signed_up_again_at is not null then s.confirmation_due_at end,
  confirmation_withheld = case when s.signed_up_again_at is not null then s.confirmation_withheld end`;
/** Without a sign-up that stays, no link that was mailed before confirms anything. */
const optOutColumns = (keepsSignUp: boolean) => sql`status = 'UNSUBSCRIBED',
  unsubscribed_at = case s.status when 'UNSUBSCRIBED' then s.unsubscribed_at else now() end,
  ${keepsSignUp ? SIGN_UP_KEPT : SIGN_UP_ENDED}`;
const IS_OPEN = sql`(s.status <> 'UNSUBSCRIBED' or s.signed_up_again_at is not null)`;
/** A person who had left before keeps the time of that. */
const HAS_LEFT_NOW = sql<boolean>`coalesce(s.unsubscribed_at = now()::timestamptz(3), false)`;

/** @returns how many subscribers left only now */
async function emitRemoved(em: EntityManager, tenant: Tenant, rows: readonly OptedOut[]): Promise<number> {
  const left = rows.filter((row) => row.has_left);
  if (left.length === 0) return 0;
  const hasLeft = sql`(s.list_id, s.subscriber_id) in (select * from unnest(
    ${left.map((row) => row.list_id)}::text[], ${left.map((row) => row.subscriber_id)}::text[]))`;
  await emit(em, tenant, "subscription.removed", subscriptionRows(tenant, hasLeft));
  return left.length;
}

/**
 * Also of lists in the bin. @param options `keepSignUps`: a link that was mailed after an earlier opt-out still confirms
 * @returns how many had not been opted out before, of lists that are not in the bin
 */
export async function optOut(
  em: EntityManager,
  tenant: Tenant,
  condition: RawBuilder<unknown>,
  { keepSignUps = false } = {},
): Promise<number> {
  const update = sql<OptedOut>`
    update subscriptions s set ${optOutColumns(keepSignUps)} where ${ofTenant(tenant, "s")} and ${condition} and ${IS_OPEN}
    returning s.list_id, s.subscriber_id, ${HAS_LEFT_NOW} as has_left`;
  const { rows } = await besideBin(em, tenant, condition, () => update.execute(kysely(em)), keepSignUps);
  return emitRemoved(em, tenant, rows);
}

/**
 * Opts out of lists, and of those in the bin, of which no event tells: before `work` and behind it. Beside a restore the first time
 * waits for it, and a deletion for which `work` waits is found by the second. @param condition on subscriptions `s` in the bin
 */
export async function besideBin<Result>(
  em: EntityManager,
  tenant: Tenant,
  condition: RawBuilder<unknown>,
  work: () => Promise<Result>,
  keepSignUps = false,
): Promise<Result> {
  const optOutInBin = () =>
    sql`update bin_subscriptions s set ${optOutColumns(keepSignUps)}
      where ${ofTenant(tenant, "s")} and ${condition} and ${IS_OPEN}`.execute(kysely(em));
  await optOutInBin();
  const result = await work();
  await optOutInBin();
  return result;
}

/**
 * As `optOut`, and makes the subscriptions that do not exist; their number is returned too.
 * @param rows with `list_id`, `subscriber_id` and `unsubscribed_at`
 */
export async function insertOptOuts(em: EntityManager, tenant: Tenant, rows: RawBuilder<unknown>): Promise<number> {
  const written = await sql<OptedOut & { created: boolean }>`
    insert into subscriptions as s (list_id, subscriber_id, team_id, environment, status, unsubscribed_at)
    select r.list_id, r.subscriber_id, ${tenant.teamId}, ${tenant.environment}, 'UNSUBSCRIBED', r.unsubscribed_at
    from (${rows}) r order by r.list_id, r.subscriber_id
    on conflict (list_id, subscriber_id) do update set ${optOutColumns(false)} where ${IS_OPEN}
    -- A row that this statement inserted was never locked or changed.
    returning s.list_id, s.subscriber_id, xmax = 0 as created, xmax <> 0 and ${HAS_LEFT_NOW} as has_left`.execute(
    kysely(em),
  );
  const left = await emitRemoved(em, tenant, written.rows);
  return left + written.rows.filter(({ created }) => created).length;
}

/** Ends sign-ups after an opt-out: their mailed links confirm nothing. A PENDING subscription waits for another mail. */
export async function endSignUps(em: EntityManager, tenant: Tenant, condition: RawBuilder<unknown>): Promise<void> {
  await sql`
    update subscriptions s set signed_up_again_at = null, confirmation_withheld = null, confirmation_due_at =
      case s.status when 'PENDING' then coalesce(s.confirmation_due_at, ${pending(tenant.environment).confirmation_due_at}) end
    where ${ofTenant(tenant, "s")} and s.signed_up_again_at is not null and ${condition}`.execute(kysely(em));
}

/** Keeps opt-outs of an address under its hash, see `restoreOptOuts`. @param rows with `list_id` and `unsubscribed_at` */
export async function keepOptOuts(
  em: EntityManager,
  vault: Vault,
  tenant: Tenant,
  email: string,
  rows: RawBuilder<unknown>,
): Promise<void> {
  await sql`
    insert into list_opt_outs (team_id, environment, address_hash, list_id, unsubscribed_at)
    select ${tenant.teamId}, ${tenant.environment}, ${hashAddress(vault, tenant, email)}, r.list_id, r.unsubscribed_at
    from (${rows}) r on conflict do nothing`.execute(kysely(em));
}

/** For a subscriber that is about to be deleted, or to get another address. @returns their subscriptions to lists that are not in the bin */
export async function keepOptOutsOf(
  em: EntityManager,
  vault: Vault,
  tenant: Tenant,
  { id, email }: { id: string; email: string },
): Promise<number> {
  let count = 0;
  // Beside a restore, the first step waits for it; a deletion for which the second waits is found by the third.
  for (const table of ["bin_subscriptions", "subscriptions", "bin_subscriptions"] as const) {
    const subscriptions = sql`${sql.table(table)} s where ${ofTenant(tenant, "s")} and s.subscriber_id = ${id}`;
    // Locked: an opt-out at the same moment is kept, too.
    const locked = await sql`select from ${subscriptions} order by s.list_id for update`.execute(kysely(em));
    const rows = sql`select s.list_id, coalesce(s.unsubscribed_at, now()) as unsubscribed_at
      from ${subscriptions} and s.status = 'UNSUBSCRIBED'`;
    await keepOptOuts(em, vault, tenant, email, rows);
    if (table === "subscriptions") count = locked.rows.length;
  }
  return count;
}

/**
 * Gives subscribers the opt-outs kept for their addresses. The lists are locked first: one that is being deleted gets none.
 */
export async function restoreOptOuts(
  em: EntityManager,
  vault: Vault,
  tenant: Tenant,
  subscribers: readonly { id: string; email: string }[],
): Promise<void> {
  const ids = subscribers.map(({ id }) => id);
  const hashes = subscribers.map(({ email }) => hashAddress(vault, tenant, email));
  const { rows } = await sql<{ list_id: string; subscriber_id: string; unsubscribed_at: string }>`
    with locked as materialized (
      select l.id from lists l where ${ofTenant(tenant, "l")} and l.id in (
        select o.list_id from list_opt_outs o where ${ofTenant(tenant, "o")} and o.address_hash = any(${hashes}))
      order by l.id for key share
    )
    delete from list_opt_outs o using unnest(${ids}::text[], ${hashes}::text[]) g (id, hash), locked
    where ${ofTenant(tenant, "o")} and o.address_hash = g.hash and o.list_id = locked.id
    returning o.list_id, g.id as subscriber_id, o.unsubscribed_at`.execute(kysely(em));
  if (rows.length === 0) return;
  const kept = sql`select * from unnest(${rows.map((row) => row.list_id)}::text[],
    ${rows.map((row) => row.subscriber_id)}::text[], ${rows.map((row) => row.unsubscribed_at)}::timestamptz[])
    as k (list_id, subscriber_id, unsubscribed_at)`;
  await insertOptOuts(em, tenant, kept);
}

import { type RawBuilder, sql } from "kysely";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../db/orm.ts";
import { ApiError } from "../errors.ts";

/*
 * A tenant's contact slots are the distinct addresses over its contacts and subscribers: `audience_addresses` counts the
 * records of each, `contact_slot_counts` the addresses. A tenant's row of it is the last that a transaction locks: take and
 * free slots behind all other writes.
 */

export interface SlotUse {
  /** Of the plan, in each environment; null for any number. */
  limit: number | null;
  used: number;
  /** Null without a limit. */
  remaining: number | null;
}

export async function readSlotUse(em: EntityManager, tenant: Tenant): Promise<SlotUse> {
  const { rows } = await sql<{ limit: number | null; used: number }>`
    select contact_slots as limit,
      coalesce((select used from contact_slot_counts where ${ofTenant(tenant)}), 0) as used
    from teams where id = ${tenant.teamId}`.execute(kysely(em));
  const { limit = null, used = 0 } = rows[0] ?? {};
  return { limit, used, remaining: limit === null ? null : Math.max(0, limit - used) };
}

/** @param emails a query with the column `email` */
const holding = ({ teamId, environment }: Tenant, emails: RawBuilder<unknown>) => sql`
  insert into audience_addresses as a (team_id, environment, email, holders)
  -- In one order, so that two transactions with the same addresses do not deadlock.
  select ${teamId}, ${environment}, email, 1 from (${emails}) e order by email collate "C"
  on conflict (team_id, environment, email) do update set holders = a.holders + 1
  returning email, holders = 1 as is_new`;

const taking = ({ teamId, environment }: Tenant, amount: RawBuilder<unknown>) =>
  sql`take_contact_slots(${teamId}, ${environment}, ${amount})`;

/** Slots that a write takes; -1 for one that it frees. */
export interface TakenSlots {
  slots: number;
}

/**
 * CTEs of a statement that makes records, which fails beyond the plan's limit, see `slotsRefusal`.
 * @param emails a query for the `email` of each record that was made
 */
export const takingSlots = (tenant: Tenant, emails: RawBuilder<unknown>): RawBuilder<unknown> => sql`
  held as (${holding(tenant, emails)}),
  taken as materialized (
    select slots, case when slots > 0 then ${taking(tenant, sql`slots`)} end
    from (select count(*)::int as slots from held where is_new) n)`;

/** SQLSTATE of `take_contact_slots`. */
const NO_ROOM = "MK001";

/** Undefined for an error that is not about slots. */
export function slotsRefusal(error: unknown): ApiError | undefined {
  if (!(error instanceof Error && "code" in error && error.code === NO_ROOM && "detail" in error)) return undefined;
  return slotsExceeded(Number(error.message), Number(error.detail));
}

/**
 * Takes the slots of records that the transaction has made. @param records addresses of each kind of record, each once
 * @throws {ApiError} `quota_exceeded`
 */
export async function takeSlots(em: EntityManager, tenant: Tenant, ...records: (readonly string[])[]): Promise<void> {
  let slots = 0;
  for (const emails of records) slots += (await hold(em, tenant, emails)).size;
  if (slots > 0) await count(em, tenant, slots);
}

/**
 * Takes the slots of as many records that the transaction has made as the plan allows, in their order.
 * @returns also the addresses that are refused one, whose records the caller has to take back
 */
export async function takeSlotsInOrder(
  em: EntityManager,
  tenant: Tenant,
  emails: readonly string[],
): Promise<TakenSlots & { refused: string[] }> {
  const fresh = await hold(em, tenant, emails);
  if (fresh.size === 0) return { slots: 0, refused: [] };
  // Locks the count, so that no other transaction takes what is left.
  const left = (await count(em, tenant, 0)) ?? fresh.size;
  const slots = Math.max(0, Math.min(fresh.size, left));
  if (slots > 0) await count(em, tenant, slots);
  const refused = emails.filter((email) => fresh.has(email)).slice(slots);
  if (refused.length > 0) await forget(em, tenant, refused);
  return { slots, refused };
}

/**
 * Moves a record's slot. @returns the slots that this takes, -1 to 1: another record may have either address
 * @throws {ApiError} `quota_exceeded`
 */
export async function moveSlot(em: EntityManager, tenant: Tenant, from: string, to: string): Promise<number> {
  // The order in which `holding` locks addresses, so that two moves do not deadlock.
  const released = from < to ? await release(em, tenant, [from]) : undefined;
  const { size: held } = await hold(em, tenant, [to]);
  const slots = held - (released ?? (await release(em, tenant, [from])));
  if (slots !== 0) await count(em, tenant, slots);
  return slots;
}

/** @param records as of `takeSlots`, that the transaction deletes */
export async function freeSlots(em: EntityManager, tenant: Tenant, ...records: (readonly string[])[]): Promise<void> {
  let freed = 0;
  for (const emails of records) freed += await release(em, tenant, emails);
  if (freed > 0) await count(em, tenant, -freed);
}

/** Counts one record more for each address. @returns those that had none, of which each takes a slot */
async function hold(em: EntityManager, tenant: Tenant, emails: readonly string[]): Promise<Set<string>> {
  if (emails.length === 0) return new Set();
  const given = sql`select email from unnest(${emails}::text[]) g (email)`;
  const { rows } = await sql<{ email: string }>`
    with held as (${holding(tenant, given)}) select email from held where is_new`.execute(kysely(em));
  return new Set(rows.map(({ email }) => email));
}

/** Counts one record less for each address. @returns the slots that this frees */
async function release(em: EntityManager, tenant: Tenant, emails: readonly string[]): Promise<number> {
  const isHeld = sql`${ofTenant(tenant)} and email = any(${[...emails]}::text[])`;
  // The rows' locks come first, as they are taken: a delete alone would not see a holder that is released at the same time.
  await sql`select from audience_addresses where ${isHeld} order by email collate "C" for update`.execute(kysely(em));
  const { rows } = await sql<{ email: string; holders: number }>`
    update audience_addresses set holders = holders - 1 where ${isHeld} returning email, holders`.execute(kysely(em));
  const free = rows.filter(({ holders }) => holders === 0).map(({ email }) => email);
  if (free.length > 0) await forget(em, tenant, free);
  return free.length;
}

async function forget(em: EntityManager, tenant: Tenant, emails: string[]): Promise<void> {
  await sql`delete from audience_addresses where ${ofTenant(tenant)} and email = any(${emails}::text[])`.execute(
    kysely(em),
  );
}

/**
 * @returns the slots that are left, negative under a limit that was lowered; null for any number
 * @throws {ApiError} `quota_exceeded`
 */
async function count(em: EntityManager, tenant: Tenant, amount: number): Promise<number | null> {
  try {
    const counting = sql<{ left: number | null }>`select ${taking(tenant, sql`${amount}::int`)} as left`;
    return (await counting.execute(kysely(em))).rows[0]?.left ?? null;
  } catch (error) {
    throw slotsRefusal(error) ?? error;
  }
}

/** @param left slots, fewer than the `amount` that is needed */
export const slotsExceeded = (amount: number, left: number): ApiError =>
  new ApiError(
    "quota_exceeded",
    `New addresses take contact slots: this needs ${amount}, and the team has ${left} left. Delete contacts or subscribers, or raise the plan's limit.`,
  );

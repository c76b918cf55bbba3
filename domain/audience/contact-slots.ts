import { type RawBuilder, sql } from "kysely";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../db/orm.ts";
import { ApiError } from "../errors.ts";

/*
 * A tenant's contact slots are the distinct addresses over its contacts and subscribers. `audience_addresses` has a row for
 * each address with the number of its records, so that the first record takes the slot and the last one frees it, also
 * when both kinds of record are written at once.
 *
 * The number of rows is kept in several parts, so that writes at once do not wait for each other. A part takes no more than
 * its share of the plan's ceiling, and the shares add up to the ceiling: no sum of parts exceeds it. A write that does not
 * fit in its part locks all of them, and divides the sum anew. So does every write that takes a slot while a part has more
 * than its share, because the plan got its ceiling, or a lower one, after the slots were taken.
 *
 * The lock of a part is the last that a transaction takes. Call these functions behind all other writes: a transaction that
 * held a part and waited for a row would make others wait, and they might hold that row.
 */

/** Parts of a tenant's count: about the transactions of a tenant that write at once. */
const PARTS = 16;

const MAX_INTEGER = 2 ** 31 - 1;

/** SQL: the part that a connection counts in, so that transactions at once use different ones. */
const OWN_PART = sql<number>`(pg_backend_pid() % ${sql.lit(PARTS)})`;

/** A tenant's use of its contact slots. */
export interface SlotUse {
  /** As many as the team's plan allows in each environment; null for any number. */
  limit: number | null;
  used: number;
  /** Null without a limit. */
  remaining: number | null;
}

/** Reads the tenant's use of its contact slots. */
export async function readSlotUse(em: EntityManager, tenant: Tenant): Promise<SlotUse> {
  const { rows } = await sql<{ limit: number | null; used: number }>`
    select contact_slots as limit,
      coalesce((select sum(used) from contact_slot_counts where ${ofTenant(tenant)}), 0)::int as used
    from teams where id = ${tenant.teamId}`.execute(kysely(em));
  const { limit = null, used = 0 } = rows[0] ?? {};
  return { limit, used, remaining: limit === null ? null : Math.max(0, limit - used) };
}

/** Counts an address in `audience_addresses` once more for each row of `emails`, a query with the column `email`. */
const holding = ({ teamId, environment }: Tenant, emails: RawBuilder<unknown>) => sql`
  insert into audience_addresses as a (team_id, environment, email, holders)
  -- In one order, so that two transactions with the same addresses do not deadlock.
  select ${teamId}, ${environment}, email, 1 from (${emails}) e order by email collate "C"
  on conflict (team_id, environment, email) do update set holders = a.holders + 1
  returning email, holders = 1 as is_new`;

/** SQL: the share that a part has of the ceiling `contact_slots`. */
const shareOf = (part: RawBuilder<number>) =>
  sql<number>`(contact_slots / ${sql.lit(PARTS)} + (${part} < contact_slots % ${sql.lit(PARTS)})::int)`;

/**
 * A query for the number of slots that the connection's part may hold: less than any count while a part has more than
 * its share.
 */
const allowing = (tenant: Tenant) => sql`
  select case when contact_slots is null then ${sql.lit(MAX_INTEGER)}
    when exists (select from contact_slot_counts p where ${ofTenant(tenant, "p")} and p.used > ${shareOf(sql`p.part`)})
      then ${sql.lit(-MAX_INTEGER)}
    else ${shareOf(OWN_PART)} end as share
  from teams where id = ${tenant.teamId}`;

/**
 * A query that adds `amount` slots, not 0, to the connection's part. It returns a row when they fit: when the part then
 * holds no more than `share` of the CTE `allowed`. A negative amount always fits. Before the tenant's first slot there is
 * no part, and the query returns no row.
 *
 * Where the amount does not fit, the part must not stay locked: two transactions that hold a part each and then lock all of
 * them would deadlock. An update that has waited for the row keeps its lock even when its condition fails by then, so a
 * function of the database takes that lock back.
 */
const counting = (
  { teamId, environment }: Tenant,
  amount: RawBuilder<number>,
  count: "count_contact_slots" | "take_contact_slots" = "count_contact_slots",
): RawBuilder<unknown> => sql`
  select from (
    select ${sql.id(count)}(${teamId}, ${environment}, ${OWN_PART}, ${amount}, (select share from allowed)) as fits
  ) own where fits`;

/** Slots that a write takes; -1 for one that it frees. */
export interface TakenSlots {
  slots: number;
}

/** The same, as a statement with `takingSlots` returns it: whether they are counted. */
export interface CountedSlots extends TakenSlots {
  counted: boolean;
}

/**
 * CTEs of a statement that makes records: they take the slots of the records' addresses. The statement selects
 * `countedSlots`, and its caller passes the row to `ensureCounted`.
 * @param emails a query for the `email` of each record that was made
 * @param options `orFail`: the statement fails, see `hasNoRoom`, where it cannot count the slots in its part alone
 */
export const takingSlots = (
  tenant: Tenant,
  emails: RawBuilder<unknown>,
  { orFail = false }: { orFail?: boolean } = {},
): RawBuilder<unknown> => sql`
  held as (${holding(tenant, emails)}),
  taken as (select count(*)::int as slots from held where is_new),
  allowed as (${allowing(tenant)}),
  counted as materialized (${counting(
    tenant,
    sql<number>`(select slots from taken)`,
    orFail ? "take_contact_slots" : "count_contact_slots",
  )})`;

/** SQLSTATE that the database's function gives a part that has no room. */
const NO_ROOM = "MK001";

/** Whether a statement with `takingSlots` failed because the slots must be counted in all parts, in a transaction. */
export const hasNoRoom = (error: unknown): boolean =>
  error instanceof Error && "code" in error && error.code === NO_ROOM;

/** Columns of a statement with the CTEs of `takingSlots`. */
export const countedSlots = sql`(select slots from taken), exists (select from counted) as counted`;

/** The same, for the row of one record of a statement that makes several. @param row its name, which has an `email` */
export const slotOf = (row: string) => sql`
  coalesce((select is_new::int from held where held.email = ${sql.ref(`${row}.email`)}), 0) as slots,
  exists (select from counted) as counted`;

/**
 * Counts the slots that a statement with `takingSlots` could not count in its part alone.
 * @throws {ApiError} `quota_exceeded` when the plan does not allow as many
 */
export async function ensureCounted(
  em: EntityManager,
  tenant: Tenant,
  { slots, counted }: CountedSlots,
): Promise<void> {
  if (!counted && slots > 0) await countOrRefuse(em, tenant, slots, countInEvenParts);
}

/**
 * Takes the slots of the addresses of records that the transaction has made.
 * @param emails a query with the column `email`, each address once
 * @throws {ApiError} `quota_exceeded` when the plan does not allow as many
 */
export async function takeSlots(em: EntityManager, tenant: Tenant, emails: RawBuilder<unknown>): Promise<void> {
  const taking = sql<CountedSlots>`with ${takingSlots(tenant, emails)} select ${countedSlots}`;
  for (const taken of (await taking.execute(kysely(em))).rows) await ensureCounted(em, tenant, taken);
}

/**
 * Takes the slots of as many addresses as the plan allows, the first ones in the order given.
 * @param emails of records that the transaction has made, each address once
 * @returns the slots taken, and the addresses that are refused one, whose records the caller has to take back
 */
export async function takeSlotsInOrder(
  em: EntityManager,
  tenant: Tenant,
  emails: readonly string[],
): Promise<TakenSlots & { refused: string[] }> {
  if (emails.length === 0) return { slots: 0, refused: [] };
  const given = sql`select email from unnest(${emails}::text[]) g (email)`;
  const { rows } = await sql<{ email: string }>`
    with held as (${holding(tenant, given)}) select email from held where is_new`.execute(kysely(em));
  const fresh = new Set(rows.map(({ email }) => email));
  const slots = await countUpTo(em, tenant, fresh.size);
  const refused = emails.filter((email) => fresh.has(email)).slice(slots);
  if (refused.length > 0) await forget(em, tenant, refused);
  return { slots, refused };
}

/**
 * Moves a record's slot to its new address.
 * @returns the slots that this takes, from -1 to 1: either address may belong to another record too
 * @throws {ApiError} `quota_exceeded` when it takes one that the plan does not allow
 */
export async function moveSlot(em: EntityManager, tenant: Tenant, from: string, to: string): Promise<number> {
  // The order in which `holding` locks addresses, so that two moves do not deadlock.
  const released = from < to ? await release(em, tenant, from) : undefined;
  const { rows } = await sql<{ is_new: boolean }>`
    with held as (${holding(tenant, sql`select ${to}::text as email`)}) select is_new from held`.execute(kysely(em));
  const freed = released ?? (await release(em, tenant, from));
  const slots = (rows[0]?.is_new ? 1 : 0) - freed;
  await countOrRefuse(em, tenant, slots, countUpTo);
  return slots;
}

/** Frees the slot of a deleted record's address, unless another record has the address. */
export async function freeSlot(em: EntityManager, tenant: Tenant, email: string): Promise<void> {
  await countUpTo(em, tenant, -(await release(em, tenant, email)));
}

/** Counts one record less for an address. @returns the slots that this frees, 0 or 1 */
async function release(em: EntityManager, tenant: Tenant, email: string): Promise<number> {
  const db = kysely(em);
  // The row's lock comes first: a delete alone would not see a holder that is released at the same time.
  const left = await db
    .updateTable("audience_addresses")
    .set({ holders: sql<number>`holders - 1` })
    .where(ofTenant(tenant))
    .where("email", "=", email)
    .returning("holders")
    .executeTakeFirst();
  if (left?.holders !== 0) return 0;
  await forget(em, tenant, [email]);
  return 1;
}

/** Deletes the rows of addresses that no record has any more. */
async function forget(em: EntityManager, tenant: Tenant, emails: string[]): Promise<void> {
  await kysely(em).deleteFrom("audience_addresses").where(ofTenant(tenant)).where("email", "in", emails).execute();
}

/** Counts as many of `amount` slots as the plan allows, all of a negative amount. @returns the slots that it counted */
async function countUpTo(em: EntityManager, tenant: Tenant, amount: number): Promise<number> {
  if (amount === 0) return 0;
  const { rows } =
    await sql`with allowed as (${allowing(tenant)}) ${counting(tenant, sql<number>`${amount}::int`)}`.execute(
      kysely(em),
    );
  return rows.length > 0 ? amount : countInEvenParts(em, tenant, amount);
}

/** Does the same under the locks of all parts, and distributes the sum evenly over them. */
async function countInEvenParts(em: EntityManager, tenant: Tenant, amount: number): Promise<number> {
  const db = kysely(em);
  // A part without a row could not be locked.
  await sql`insert into contact_slot_counts (team_id, environment, part, used)
    select ${tenant.teamId}, ${tenant.environment}, part, 0 from generate_series(0, ${PARTS - 1}::int) part order by part
    on conflict do nothing`.execute(db);
  await sql`select from contact_slot_counts where ${ofTenant(tenant)} order by part for update`.execute(db);
  const { limit, used } = await readSlotUse(em, tenant);
  const granted = limit === null || amount < 0 ? amount : Math.max(0, Math.min(amount, limit - used));
  if (granted === 0) return 0;
  const total = used + granted;
  const each = Math.floor(total / PARTS);
  await db
    .updateTable("contact_slot_counts")
    .set({ used: sql<number>`${each}::int + (part < ${total - each * PARTS}::int)::int` })
    .where(ofTenant(tenant))
    .execute();
  return granted;
}

/** Counts `amount` slots by `count`, and throws when the plan allows fewer. */
async function countOrRefuse(
  em: EntityManager,
  tenant: Tenant,
  amount: number,
  count: typeof countUpTo,
): Promise<void> {
  const granted = await count(em, tenant, amount);
  if (granted < amount) throw slotsExceeded(amount, granted);
}

/** The refusal of new addresses. @param left slots, fewer than the `amount` that is needed */
export const slotsExceeded = (amount: number, left: number): ApiError =>
  new ApiError(
    "quota_exceeded",
    `New addresses take contact slots: this needs ${amount}, and the team has ${left} left. Delete contacts or subscribers, or raise the plan's limit.`,
  );

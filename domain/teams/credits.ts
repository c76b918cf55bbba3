import { sql } from "kysely";
import type { CreditKind } from "../../db/entities/send.ts";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../db/orm.ts";
import { isoInstant } from "../../db/sql.ts";
import { ApiError } from "../errors.ts";
import { newId } from "../ids.ts";

/** Whole credits: `available` can be reserved, `reserved` is set aside for confirmed sends. */
export interface CreditBalance {
  available: number;
  reserved: number;
}

/** A balance is always the sum of these effects over the ledger's entries. */
export const CREDIT_EFFECT = {
  GRANT: { available: 1, reserved: 0 },
  RESERVE: { available: -1, reserved: 1 },
  CONSUME: { available: 0, reserved: -1 },
  RELEASE: { available: 1, reserved: -1 },
} as const satisfies Record<CreditKind, CreditBalance>;

/** Every sum of credits is an exact number in JSON. */
const MAX_CREDITS = 1_000_000_000_000_000;

export async function readCreditBalance(em: EntityManager, tenant: Tenant): Promise<CreditBalance> {
  const row = await kysely(em)
    .selectFrom("credit_balances")
    .select(["available", "reserved"])
    .where(ofTenant(tenant))
    .executeTakeFirst();
  return { available: Number(row?.available ?? 0), reserved: Number(row?.reserved ?? 0) };
}

interface Movement {
  kind: CreditKind;
  amount: number;
  sendId: string | null;
  /** One movement of a kind and send has it. */
  cause: string;
}

export interface CreditEntry extends Movement {
  at: string;
}

export async function listCreditEntries(
  em: EntityManager,
  tenant: Tenant,
  { sendId, limit }: { sendId?: string | undefined; limit: number },
): Promise<CreditEntry[]> {
  const { rows } = await sql<Omit<CreditEntry, "amount"> & { amount: string }>`
    select kind, amount, send_id as "sendId", cause, ${isoInstant(sql`created_at`)} as at from credit_entries
    where ${ofTenant(tenant)} and (${sendId ?? null}::text is null or send_id = ${sendId ?? null})
    order by id desc limit ${limit}`.execute(kysely(em));
  return rows.map(({ amount, ...entry }) => ({ ...entry, amount: Number(amount) }));
}

/** SQL: the calendar month in UTC whose use is reported. */
export const PERIOD_START = sql<string>`date_trunc('month', statement_timestamp(), 'UTC')`;

export const PERIOD_END = sql<string>`((${PERIOD_START} at time zone 'UTC' + interval '1 month') at time zone 'UTC')`;

export interface CreditUsage {
  granted: number;
  reserved: number;
  consumed: number;
  available: number;
}

export async function readCreditUsage(em: EntityManager, tenant: Tenant): Promise<CreditUsage> {
  const { rows } = await sql<{ available: string; reserved: string; consumed: string }>`
    select available, reserved, coalesce((select sum(amount) from credit_entries
      where ${ofTenant(tenant)} and kind = 'CONSUME' and created_at >= ${PERIOD_START}), 0) as consumed
    from credit_balances where ${ofTenant(tenant)}`.execute(kysely(em));
  const [row] = rows;
  const available = Number(row?.available ?? 0);
  const reserved = Number(row?.reserved ?? 0);
  const consumed = Number(row?.consumed ?? 0);
  return { granted: available + reserved + consumed, reserved, consumed, available };
}

/**
 * Any number but 0 is a defect. One statement reads the whole ledger, which sees a movement on both sides or on
 * neither.
 */
export async function countCreditMismatches(em: EntityManager): Promise<number> {
  const ledgerSum = (side: keyof CreditBalance) => {
    const effects = Object.entries(CREDIT_EFFECT).map(
      ([kind, effect]) => sql`when ${sql.lit(kind)} then ${sql.lit(effect[side])}`,
    );
    return sql`sum(amount * case kind ${sql.join(effects, sql` `)} end)`;
  };
  const { rows } = await sql<{ count: number }>`
    select count(*)::int as count
    from credit_balances b left join (
      select team_id, environment, ${ledgerSum("available")} as available, ${ledgerSum("reserved")} as reserved
      from credit_entries group by team_id, environment
    ) e on e.team_id = b.team_id and e.environment = b.environment
    where b.available <> coalesce(e.available, 0) or b.reserved <> coalesce(e.reserved, 0)`.execute(kysely(em));
  return rows[0]?.count ?? 0;
}

/**
 * Once per team and `cause`, in the caller's transaction. @throws {ApiError} `validation_failed` beyond `MAX_CREDITS`
 */
export async function grantCredits(em: EntityManager, tenant: Tenant, amount: number, cause: string): Promise<void> {
  await kysely(em)
    .insertInto("credit_balances")
    .values({ team_id: tenant.teamId, environment: tenant.environment, available: 0, reserved: 0 })
    .onConflict((conflict) => conflict.doNothing())
    .execute();
  await moveCredits(em, tenant, { kind: "GRANT", amount, sendId: null, cause });
}

export function lockBalance(em: EntityManager, tenant: Tenant) {
  return kysely(em)
    .selectFrom("credit_balances")
    .select(["available", "reserved"])
    .where(ofTenant(tenant))
    .forUpdate()
    .executeTakeFirst();
}

/**
 * Once per kind, send and cause, in the caller's transaction.
 * @throws {ApiError} `quota_exceeded` @throws {Error} beyond what is reserved
 */
export async function moveCredits(
  em: EntityManager,
  tenant: Tenant,
  { kind, amount, sendId, cause }: Movement,
): Promise<void> {
  if (!em.isInTransaction()) throw new Error("Credits move inside a transaction only");
  if (!Number.isSafeInteger(amount) || amount < 0) throw new RangeError(`${amount} is no number of credits`);
  if (amount === 0) return;
  const db = kysely(em);

  // The lock is a statement of its own, so that the next one sees the commit of the lock's previous holder.
  const locked = await lockBalance(em, tenant);
  const done = await db
    .selectFrom("credit_entries")
    .select("id")
    .where(ofTenant(tenant))
    .where("kind", "=", kind)
    .where("send_id", "is not distinct from", sendId)
    .where("cause", "=", cause)
    .executeTakeFirst();
  if (done) return;

  const effect = CREDIT_EFFECT[kind];
  const available = Number(locked?.available ?? 0) + effect.available * amount;
  const reserved = Number(locked?.reserved ?? 0) + effect.reserved * amount;
  if (available < 0) {
    throw new ApiError(
      "quota_exceeded",
      `This needs ${amount} email credits; the team has ${available + amount} left.`,
    );
  }
  if (kind === "GRANT" && available + reserved > MAX_CREDITS) {
    throw new ApiError("validation_failed", `A team may hold ${MAX_CREDITS} email credits: grant fewer.`);
  }
  if (reserved < 0) throw new Error(`${kind} of ${amount} credits for ${sendId}: fewer are reserved`);

  await db.updateTable("credit_balances").set({ available, reserved }).where(ofTenant(tenant)).execute();
  await db
    .insertInto("credit_entries")
    .values({
      id: newId("creditEntry"),
      team_id: tenant.teamId,
      environment: tenant.environment,
      kind,
      amount,
      send_id: sendId,
      cause,
    })
    .execute();
}

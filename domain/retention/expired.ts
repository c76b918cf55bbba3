import { type RawBuilder, sql } from "kysely";
import { type Database, kysely } from "../../db/orm.ts";
import { BATCHES_KEPT } from "../tracking/record.ts";
import type { Pruning, RetentionSettings } from "./pruning.ts";

/** SQL: the instant or the day before which rows are expired. */
type Expired = (settings: RetentionSettings) => RawBuilder<unknown>;

/**
 * A pruning that deletes the rows of a table that meet a condition. Rows that another transaction holds are left for the
 * next batch, so that neither waits for the other.
 * @param name needed where a table has two
 */
const expired = (table: keyof Database, condition: Expired, name: string = table): Pruning => ({
  name,
  async prune(em, rows, settings) {
    const { numAffectedRows = 0n } = await sql`
      delete from ${sql.table(table)} where ctid = any(array(
        select ctid from ${sql.table(table)} where ${condition(settings)} limit ${rows} for update skip locked))`.execute(
      kysely(em),
    );
    return { rows: Number(numAffectedRows), more: numAffectedRows === BigInt(rows) };
  },
});

/** SQL: so many days ago. */
export const daysAgo = (days: number): RawBuilder<unknown> => sql`now() - make_interval(days => ${days}::int)`;

/** Rows that a single condition on their table finds. */
export const EXPIRED: readonly Pruning[] = [
  expired("idempotency_records", () => sql`expires_at < now()`),
  expired("send_previews", () => sql`used_at is null and expires_at < now() - interval '2 days'`, "unused previews"),
  expired("send_previews", ({ PREVIEW_DAYS }) => sql`expires_at < ${daysAgo(PREVIEW_DAYS)}`, "used previews"),
  expired("confirmation_mails", () => sql`day < (now() - interval '9 days')::date`),
  // A verifier's clock may be behind that of the database.
  expired("revoked_tokens", () => sql`expires_at < now() - interval '1 day'`),
  expired("account_leases", () => sql`expires_at < now() - interval '1 hour'`),
  // An account that failed for long is checked once a day or so.
  expired("account_refusals", () => sql`retry_at < now() - interval '3 days'`),
  expired("account_usage", () => sql`starts_at < now() - interval '7 days'`),
  // A window is a minute long.
  expired("request_counts", () => sql`starts_at < now() - interval '2 minutes'`),
  expired("hit_batches", () => sql`updated_at < now() - ${BATCHES_KEPT}`),
  expired("daily_send_usage", () => sql`day < (now() - interval '60 days')::date`),
  expired("webhook_replays", ({ BULK_REPLAY_DAYS }) => sql`completed_at < ${daysAgo(BULK_REPLAY_DAYS)}`),
];

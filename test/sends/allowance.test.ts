import assert from "node:assert/strict";
import { sql } from "kysely";
import { InFlightLimit } from "../../activities/account-pools.ts";
import { type EntityManager, kysely } from "../../db/orm.ts";
import { returnQuota, takeQuota } from "../../domain/sends/ledger/account-capacity.ts";
import { elapsedMs } from "../../lib/elapsed.ts";
import { eventually } from "../support/eventually.ts";
import { makeSender } from "../support/sending.ts";

const setClock = (em: EntityManager, to: string) => sql`select set_config('test.now', ${to}, true)`.execute(kysely(em));

/** Gives the transaction of `em` a clock that can be set. */
async function takeClock(em: EntityManager): Promise<void> {
  await sql`create schema test_clock`.execute(kysely(em));
  await sql`create function test_clock.clock_timestamp() returns timestamptz language sql
    as $$ select current_setting('test.now')::timestamptz $$`.execute(kysely(em));
  await sql`set local search_path = test_clock, pg_catalog, public`.execute(kysely(em));
}

describe("The share of an account's limits that a slice takes", () => {
  it("counts in the hour it was taken from, where unused mails return, and lets none begin after it", async () => {
    const { accountId, ...sender } = await makeSender({ recipients: 1 });
    const em = sender.em.fork();
    await em.begin();
    try {
      await takeClock(em);
      const usedByHour = async () => {
        const { rows } = await sql<{ hour: string; used: number }>`
            select to_char(starts_at at time zone 'UTC', 'HH24') as hour, used from account_usage
            where account_id = ${accountId} and "window" = 'HOUR' order by starts_at`.execute(kysely(em));
        return Object.fromEntries(rows.map(({ hour, used }) => [hour, used]));
      };
      const take = (mails: number) => takeQuota(em, accountId, { hourly: 5, daily: 100 }, mails);

      await setClock(em, "2031-05-06T10:59:59.800Z");
      const before = await take(4);
      assert.equal(before.granted, 4);
      await setClock(em, "2031-05-06T11:00:00.100Z");
      const after = await take(9);
      assert.equal(after.granted, 5);
      assert.deepEqual(await usedByHour(), { 10: 4, 11: 5 });

      await eventually(() => elapsedMs() >= before.endsAt, { what: "the end of the first hour" });
      assert.ok(elapsedMs() < after.endsAt);
      await returnQuota(em, accountId, before, 4);
      assert.deepEqual(await usedByHour(), { 10: 0, 11: 5 }, "the second hour gets no room by that");
      assert.equal((await take(1)).granted, 0);
    } finally {
      await em.rollback();
    }
  });

  it("is never more than an hour and a day allow, also for twenty slices at once", async () => {
    const { em, accountId } = await makeSender({ recipients: 1 });
    const takeAll = async (limits: { hourly: number | null; daily: number | null }) => {
      const shares = await Promise.all(Array.from({ length: 20 }, () => takeQuota(em.fork(), accountId, limits, 7)));
      return shares.reduce((sum, { granted }) => sum + granted, 0);
    };
    assert.deepEqual(
      [await takeAll({ hourly: 100, daily: 130 }), await takeAll({ hourly: null, daily: 130 })],
      [100, 30],
    );
  });

  it("waits for no row of another send once its own send is paused", async () => {
    const inFlight = new InFlightLimit({ mostInFlight: 3, batch: 2 });
    assert.equal(await inFlight.take(new AbortController().signal), 2);
    const paused = new AbortController();
    const taking = inFlight.take(paused.signal);
    paused.abort();
    assert.equal(await taking, 0, "the other send keeps its rows");
  });
});

import assert from "node:assert/strict";
import { sql } from "kysely";
import { pino } from "pino";
import { InFlightLimit } from "../../activities/account-pools.ts";
import { Allowance, isWithinWindows, type MailShare } from "../../activities/dispatch/allowance.ts";
import { Settler } from "../../activities/dispatch/settler.ts";
import { type EntityManager, kysely } from "../../db/orm.ts";
import { newId } from "../../domain/ids.ts";
import { NOT_ATTEMPTED } from "../../domain/mail/outcome.ts";
import { eventually } from "../support/eventually.ts";
import { makeSender } from "../support/sending.ts";
import { stack } from "../support/stack.ts";

const inFlight = new InFlightLimit({ mostInFlight: 30 });

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
      const allowance = new Allowance(em, accountId, { hourly: 5, daily: 100 }, inFlight);

      await setClock(em, "2031-05-06T10:59:59.800Z");
      const before = await allowance.takeMails(4);
      assert.equal(before.granted, 4);
      await setClock(em, "2031-05-06T11:00:00.100Z");
      const after = await allowance.takeMails(9);
      assert.equal(after.granted, 5);
      assert.deepEqual(await usedByHour(), { 10: 4, 11: 5 });

      await eventually(() => !isWithinWindows(before), { what: "the end of the first hour" });
      assert.ok(isWithinWindows(after));
      await allowance.returnMails(before, 4);
      assert.deepEqual(await usedByHour(), { 10: 0, 11: 5 }, "the second hour gets no room by that");
      assert.equal((await allowance.takeMails(1)).granted, 0);
    } finally {
      await em.rollback();
    }
  });

  it("gets unused mails back once, although the answer to that is lost", async () => {
    const { em, team, accountId, newsletterId } = await makeSender({ recipients: 1 });
    class LossyAllowance extends Allowance {
      override async returnMails(share: MailShare, mails: number): Promise<void> {
        await super.returnMails(share, mails);
        throw Object.assign(new Error("the connection was lost"), { code: "ECONNRESET" });
      }
    }
    const { env } = await stack();
    const limits = { hourly: 10, daily: null };
    const allowance = new LossyAllowance(em.fork(), accountId, limits, inFlight);
    const share = await allowance.takeMails(4);
    assert.equal((await new Allowance(em.fork(), accountId, limits, inFlight).takeMails(3)).granted, 3);
    const settler = new Settler({
      deps: { env, stopping: new AbortController().signal, log: pino({ level: "silent" }), countMails: () => {} },
      em: em.fork(),
      dispatch: {
        ...{ sendId: newId("send"), accountId, teamId: team.id, environment: "LIVE", status: "SENDING", epoch: 1 },
        ...{ resource: { type: "newsletter", id: newsletterId }, tracking: false, shared: false, afterSeq: 0 },
        ...{ policyRefusals: 0, eventsWanted: false, hasComplaints: false, unknown: 0 },
      },
      allowance,
    });
    const nameless = { firstName: null, lastName: null, listId: null, fields: null };
    const unsent = { ...nameless, email: "a@b.example", stagedAt: 0, wasDeferred: false, share };
    await settler.settle([1, 2, 3, 4].map((seq) => ({ item: { ...unsent, seq }, outcome: NOT_ATTEMPTED })));
    assert.equal(settler.failure, undefined);
    const { rows } =
      await sql`select used from account_usage where account_id = ${accountId} and "window" = 'HOUR'`.execute(
        kysely(em.fork()),
      );
    assert.deepEqual(rows, [{ used: 3 }]);
  });

  it("is never more than an hour and a day allow, also for twenty slices at once", async () => {
    const { em, accountId } = await makeSender({ recipients: 1 });
    const takeAll = async (limits: { hourly: number | null; daily: number | null }) => {
      const slices = Array.from({ length: 20 }, () => new Allowance(em.fork(), accountId, limits, inFlight));
      const shares = await Promise.all(slices.map((slice) => slice.takeMails(7)));
      return shares.reduce((sum, { granted }) => sum + granted, 0);
    };
    assert.deepEqual(
      [await takeAll({ hourly: 100, daily: 130 }), await takeAll({ hourly: null, daily: 130 })],
      [100, 30],
    );
  });

  it("waits for no row of another send once its own send is paused", async () => {
    const { em, accountId } = await makeSender({ recipients: 1 });
    const shared = new InFlightLimit({ mostInFlight: 3 });
    const [mine, other] = [0, 1].map(() => new Allowance(em, accountId, { hourly: null, daily: null }, shared));
    assert.ok(mine && other);
    assert.ok(await other.takeRows(() => 3, new AbortController().signal));
    const paused = new AbortController();
    const taking = mine.takeRows(() => 1, paused.signal);
    paused.abort();
    assert.equal(await taking, 0, "the other send keeps its rows");
  });
});

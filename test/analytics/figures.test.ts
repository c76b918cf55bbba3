import assert from "node:assert/strict";
import fc from "fast-check";
import { sql } from "kysely";
import { ENGAGEMENT_KINDS, MAIL_REPORT_KINDS } from "../../db/entities/engagement.ts";
import { RECIPIENT_STATES } from "../../db/entities/send.ts";
import { type EntityManager, kysely } from "../../db/orm.ts";
import { transaction } from "../../db/transaction.ts";
import { foldChanges } from "../../domain/analytics/fold.ts";
import { recordHits } from "../../domain/tracking/record.ts";
import { settleAll } from "../public/tracking.ts";
import { api, type Json } from "../support/api.ts";
import { eventually } from "../support/eventually.ts";
import { makeTeam, type TestTeam } from "../support/factories.ts";
import { recountFigures } from "../support/recount.ts";
import {
  accept,
  engage,
  erase,
  makeLedger,
  optOut,
  report,
  setState,
  settle,
  type TestLedger,
  withdraw,
} from "./ledger.ts";

const RECIPIENTS = 6;
/** Around two midnights. */
const TIMES = [
  "2026-02-28T23:59:59.999Z",
  "2026-03-01T00:00:00.000Z",
  "2026-03-01T23:59:59.999Z",
  "2026-03-02T00:00:00.000Z",
  "2026-03-02T12:00:00.000+14:00",
] as const;
const RANGE = { from: "2026-02-01", to: "2026-03-31" };

type Work = (em: EntityManager, ledgers: readonly TestLedger[]) => Promise<unknown>;

/** A change of facts, or a fold, that may run beside others. */
function anyWork(): fc.Arbitrary<Work> {
  const ledger = fc.nat({ max: 1 });
  const seqs = fc.uniqueArray(fc.integer({ min: 1, max: RECIPIENTS }), { minLength: 1 });
  const at = fc.constantFrom(...TIMES);
  const on =
    (chosen: number, work: (em: EntityManager, ledger: TestLedger) => Promise<unknown>): Work =>
    (em, ledgers) =>
      work(em, ledgers[chosen] ?? assert.fail());
  const state = fc
    .tuple(ledger, seqs, fc.constantFrom(...RECIPIENT_STATES), at)
    .map(([chosen, ...given]) => on(chosen, (em, made) => setState(em, made, ...given)));
  // States that are passed through most.
  const step = fc
    .tuple(ledger, seqs, fc.constantFrom("SENDING", "SENT", "UNKNOWN", "QUEUED"), at)
    .map(([chosen, ...given]) => on(chosen, (em, made) => setState(em, made, ...given)));
  const reports = fc
    .tuple(ledger, seqs, fc.uniqueArray(fc.constantFrom(...MAIL_REPORT_KINDS), { minLength: 1 }), at)
    .map(([chosen, ...given]) => on(chosen, (em, made) => report(em, made, ...given)));
  const withdrawals = fc
    .tuple(ledger, seqs)
    .map(([chosen, ...given]) => on(chosen, (em, made) => withdraw(em, made, ...given)));
  const engagements = fc
    .tuple(ledger, seqs, fc.constantFrom(...ENGAGEMENT_KINDS), fc.integer({ min: 1, max: 3 }))
    .map(([chosen, ...given]) => on(chosen, (em, made) => engage(em, made, ...given)));
  const moment = fc
    .tuple(at, fc.constantFrom(-500, 500, 1_500, 4_000, 120_000, 3_600_000))
    .map(([accepted, after]) => Date.parse(accepted) + after);
  const hit = fc.record({
    seq: fc.integer({ min: 1, max: RECIPIENTS }),
    kind: fc.constantFrom(...ENGAGEMENT_KINDS),
    at: moment,
    url: fc.constantFrom("https://shop.example/1", "https://shop.example/2"),
    rule: fc.constantFrom(null, null, null, "head", "webkit", "provider"),
    early: fc.boolean(),
    source: fc.constantFrom("one", "other"),
  });
  const hits = fc.tuple(ledger, fc.array(hit, { minLength: 1, maxLength: 12 })).map(([chosen, made]) =>
    on(chosen, (em, { sendId }) =>
      recordHits(
        em,
        made.map((one) => ({ ...one, sendId, url: one.kind === "clicked" ? one.url : null })),
      ),
    ),
  );
  const settling = fc.constant<Work>((em, ledgers) => settle(em, ledgers));
  const erasures = fc
    .tuple(ledger, seqs)
    .map(([chosen, ...given]) => on(chosen, (em, made) => erase(em, made, ...given)));
  const optOuts = fc
    .tuple(ledger, seqs, at)
    .map(([chosen, ...given]) => on(chosen, (em, made) => optOut(em, made, ...given)));
  const fold = fc.constantFrom(1, 3, 10_000).map(
    (limit): Work =>
      (em) =>
        foldChanges(em, limit),
  );
  // As when the process dies before the commit.
  const killedFold = fc.constant<Work>((em) =>
    transaction(em, (tx) => foldChanges(tx, 10_000), { isRolledBack: true }),
  );
  return fc.oneof(
    { weight: 4, arbitrary: step },
    { weight: 2, arbitrary: state },
    { weight: 3, arbitrary: reports },
    { weight: 1, arbitrary: withdrawals },
    { weight: 3, arbitrary: engagements },
    { weight: 1, arbitrary: optOuts },
    { weight: 3, arbitrary: hits },
    { weight: 3, arbitrary: settling },
    { weight: 1, arbitrary: erasures },
    { weight: 1, arbitrary: fold },
    { weight: 1, arbitrary: killedFold },
  );
}

async function overviewOf(team: TestTeam, resourceId?: string): Promise<Json> {
  const answer = await api(team.keys.live).get("/analytics/overview", {
    query: { ...RANGE, ...(resourceId && { resource_id: resourceId }) },
  });
  assert.equal(answer.status, 200, answer.text);
  return answer.body.data;
}

const differences = (team: TestTeam, { tenant }: TestLedger) =>
  recountFigures(team.em.fork(), tenant, { repair: false });

/** The figures that are not 0, of each day that has one. */
const nonzero = ({ days }: Json): Record<string, Record<string, number>> =>
  Object.fromEntries(
    days.flatMap(({ date, ...counts }: Record<string, number>) => {
      const entries = Object.entries(counts).filter(([, count]) => count !== 0);
      return entries.length > 0 ? [[date, Object.fromEntries(entries)]] : [];
    }),
  );

describe("The figures of analytics", () => {
  it("are those of the facts, after any changes at once, around midnight, beside folds that die", async () => {
    const team = await makeTeam();
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.array(anyWork(), { minLength: 1, maxLength: 4 }), { maxLength: 25 }),
        async (rounds) => {
          const ledgers = [await makeLedger(team, RECIPIENTS, { tracked: true }), await makeLedger(team, RECIPIENTS)];
          const [first] = ledgers;
          assert.ok(first);
          for (const works of rounds) {
            await Promise.all(works.map((work) => transaction(team.em, (tx) => work(tx, ledgers))));
          }
          assert.deepEqual(await differences(team, first), []);
          await foldChanges(team.em.fork(), 10_000);
          assert.deepEqual(await differences(team, first), []);
        },
      ),
      { numRuns: 40, endOnFailure: true },
    );
  });

  it("are the sums of the engagements and marked hits of a send", async () => {
    const team = await makeTeam();
    const ledger = await makeLedger(team, 3);
    const { sendId } = ledger;
    const em = team.em.fork();
    await accept(em, ledger, [1, 2, 3], "2026-03-01T10:00:00Z");
    const at = (seconds: number) => Date.parse("2026-03-01T10:00:00Z") + seconds * 1_000;
    const one = { sendId, rule: null, early: false, source: "reader", url: null };
    const link = (n: number) => ({ kind: "clicked" as const, url: `https://shop.example/${n}` });
    await recordHits(em, [
      { ...one, seq: 1, kind: "opened", at: at(60) },
      { ...one, seq: 1, ...link(1), at: at(70) },
      { ...one, seq: 2, ...link(1), at: at(60) },
      ...[1, 2, 3, 4].map((n) => ({ ...one, seq: 3, ...link(n), source: "gateway", at: at(60 + n / 5) })),
      { ...one, seq: 3, kind: "opened", rule: "privacy_proxy", at: at(20) },
    ]);
    await settleAll(em, sendId);
    assert.deepEqual(nonzero(await overviewOf(team)), {
      "2026-03-01": {
        ...{ sent: 3, delivered: 3, opened: 2, opened_unique: 2, clicked: 1, clicked_unique: 1 },
        ...{ opened_unknown: 1, opened_machine: 1, clicked_unknown: 1, clicked_machine: 4 },
      },
    });
    assert.deepEqual(await differences(team, ledger), []);
  });

  it("move to the day of the true outcome, together with what followed from the mail", async () => {
    const team = await makeTeam();
    const ledger = await makeLedger(team, 4);
    const em = team.em.fork();
    await setState(em, ledger, [1, 2, 3, 4], "SENDING", "2026-03-01T10:00:00Z");
    await setState(em, ledger, [1, 2, 3, 4], "UNKNOWN", "2026-03-01T10:00:00Z");
    assert.deepEqual(nonzero(await overviewOf(team)), { "2026-03-01": { unknown: 4 } });

    // A bounce and an open prove that a server has accepted the mails.
    await report(em, ledger, [1], ["bounce:soft"], "2026-03-05T10:00:00Z");
    await engage(em, ledger, [2], "opened", 3);
    const accepted = { sent: 2, delivered: 1, unknown: 2, bounced_soft: 1, opened: 3, opened_unique: 1 };
    assert.deepEqual(nonzero(await overviewOf(team)), { "2026-03-01": accepted });

    // The hard bounce takes the place of the soft one.
    await report(em, ledger, [1], ["bounce:hard"], "2026-03-06T10:00:00Z");
    await report(em, ledger, [1], ["complaint"], "2026-03-07T10:00:00Z");
    const { bounced_soft: _, ...others } = accepted;
    assert.deepEqual(nonzero(await overviewOf(team)), {
      "2026-03-01": { ...others, bounced_hard: 1, complained: 1 },
    });

    // A worker that was presumed dead reports late; an operator has the others mailed again.
    await setState(em, ledger, [3], "SENT", "2026-03-02T00:00:00Z");
    await setState(em, ledger, [2, 4], "QUEUED", "2026-03-03T10:00:00Z");
    await accept(em, ledger, [2], "2026-03-03T23:59:59.999Z");
    await setState(em, ledger, [4], "SENDING", "2026-03-04T00:00:00Z");
    await setState(em, ledger, [4], "REJECTED", "2026-03-04T00:00:00Z");
    assert.deepEqual(nonzero(await overviewOf(team, ledger.newsletterId)), {
      "2026-03-01": { sent: 1, bounced_hard: 1, complained: 1 },
      "2026-03-02": { sent: 1, delivered: 1 },
      "2026-03-03": { sent: 1, delivered: 1, opened: 3, opened_unique: 1 },
      "2026-03-04": { rejected: 1 },
    });
    assert.deepEqual(await differences(team, ledger), []);
  });

  it("count an open that comes before the outcome of its mail", async () => {
    const team = await makeTeam();
    const ledger = await makeLedger(team, 1);
    const em = team.em.fork();
    await setState(em, ledger, [1], "SENDING", "2026-03-01T10:00:00Z");
    await engage(em, ledger, [1], "clicked", 1);
    assert.deepEqual(nonzero(await overviewOf(team)), {});
    await setState(em, ledger, [1], "SENT", "2026-03-01T10:00:01Z");
    assert.deepEqual(nonzero(await overviewOf(team)), {
      "2026-03-01": { sent: 1, delivered: 1, clicked: 1, clicked_unique: 1 },
    });
  });

  it("are counted without waiting for a transaction that counts in the same ones", async () => {
    const team = await makeTeam();
    const [one, other] = [await makeLedger(team, 1), await makeLedger(team, 1)];
    await transaction(team.em, async (open) => {
      await accept(open, one, [1], "2026-03-01T10:00:00Z");
      await transaction(team.em.fork({ clear: true }), async (tx) => {
        await sql`set local lock_timeout = '5s'`.execute(kysely(tx));
        await accept(tx, other, [1], "2026-03-01T10:00:00Z");
      });
      assert.equal((await overviewOf(team)).totals.sent, 1);
    });
    assert.equal((await overviewOf(team)).totals.sent, 2);
  });

  it("are added up by the maintenance pool, and stay when the ledger is deleted", async () => {
    const team = await makeTeam();
    const ledger = await makeLedger(team, 3);
    const em = team.em.fork();
    await accept(em, ledger, [1, 2, 3], "2026-03-01T10:00:00Z");
    const before = await overviewOf(team);
    await eventually(
      async () => {
        const { rows } = await sql`select 1 from analytics_changes where team_id = ${team.team.id}`.execute(kysely(em));
        return rows.length === 0;
      },
      { what: "an empty table of changes" },
    );
    await sql`delete from send_recipients where send_id = ${ledger.sendId}`.execute(kysely(em));
    assert.deepEqual(await overviewOf(team), before);
    assert.deepEqual(await differences(team, ledger), []);
  });

  it("are seen to differ from the facts by the count that these tests compare with", async () => {
    const team = await makeTeam();
    const ledger = await makeLedger(team, 3);
    const em = team.em.fork();
    await accept(em, ledger, [1, 2, 3], "2026-03-01T10:00:00Z");
    await sql`insert into analytics_changes (team_id, environment, resource_id, day, figure, count)
      values (${team.team.id}, 'LIVE', ${ledger.newsletterId}, '2026-03-01', 'sent', 5)`.execute(kysely(em));
    const { newsletterId: resourceId } = ledger;
    assert.deepEqual(await differences(team, ledger), [
      { resourceId, day: "2026-03-01", figure: "sent", kept: 8, counted: 3 },
    ]);
  });
});

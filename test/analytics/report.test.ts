import assert from "node:assert/strict";
import fc from "fast-check";
import { sql } from "kysely";
import { ENGAGEMENT_KINDS } from "../../db/entities/engagement.ts";
import { type EntityManager, kysely } from "../../db/orm.ts";
import type { Scope } from "../../domain/access/scopes.ts";
import { recordReports } from "../../domain/reports/record.ts";
import { LEDGERS } from "../../domain/retention/ledgers.ts";
import { ACTIVITIES } from "../../domain/sends/ledger/activity.ts";
import { recordHits, recordReported } from "../../domain/tracking/record.ts";
import { settleAll } from "../public/tracking.ts";
import { api, codeOf, type Json } from "../support/api.ts";
import { makeTeam, type TestTeam } from "../support/factories.ts";
import { recountFigures } from "../support/recount.ts";
import { SOFT_BOUNCE_POLICY } from "../support/reports.ts";
import { prune } from "../support/retention.ts";
import { SEED } from "../support/seed.ts";
import { accept, engage, erase, makeLedger, optOut, report, setState, type TestLedger, withdraw } from "./ledger.ts";

const ACCEPTED = "2026-03-01T10:00:00.000Z";
const at = (minutes: number) => Date.parse(ACCEPTED) + minutes * 60_000;
const SALE = "https://shop.example/sale?a=1&b=2";
/** As long as a tracked link may be, and longer than an index takes. */
const LONG = `https://shop.example/?q=${"é%F0%9F".repeat(3).padEnd(1_376, "x")}`.replaceAll("é", "e");

const click = ({ sendId }: TestLedger, seq: number, minutes: number, url: string, source = "reader") =>
  ({ sendId, seq, kind: "clicked", at: at(minutes), url, rule: null, early: false, source }) as const;

async function clicked(team: TestTeam): Promise<TestLedger> {
  const ledger = await makeLedger(team, 5);
  const em = team.em.fork();
  await accept(em, ledger, [1, 2, 3, 4, 5], ACCEPTED);
  const hit = click.bind(undefined, ledger);
  await recordHits(em, [
    ...[hit(1, 60, SALE), hit(1, 90, SALE), hit(1, 120, LONG), hit(2, 30, SALE)],
    // A lone click of the first minutes, and a gateway.
    hit(3, 1, SALE),
    ...[hit(4, 60, SALE, "gateway"), hit(4, 60.01, LONG, "gateway"), hit(4, 60.02, LONG, "gateway")],
    { ...hit(5, 60, SALE), kind: "opened", url: null },
  ]);
  await settleAll(em, ledger.sendId);
  // Clicked once more by a person who has clicked it, and by another one.
  await recordHits(em, [hit(1, 200, SALE), hit(5, 200, SALE)]);
  await settleAll(em, ledger.sendId);
  return ledger;
}

/** Lets the API show the recipients of a ledger. */
async function show({ em }: TestTeam, { sendId, newsletterId }: TestLedger): Promise<void> {
  const db = kysely(em.fork());
  await sql`update send_recipients set tracked = true where send_id = ${sendId}`.execute(db);
  await sql`update newsletters set send_id = ${sendId} where id = ${newsletterId}`.execute(db);
}

/** The places of the recipients with an activity, and how many there are of each. */
async function recipientsOf(team: TestTeam, { newsletterId }: TestLedger, query: Record<string, string>) {
  const path = `/newsletters/${newsletterId}/recipients`;
  const { body, text } = await api(team.keys.live).get(path, { query: { order: "asc", limit: "100", ...query } });
  assert.ok(body.data, text);
  return body.data.map(({ id }: Json) => Number.parseInt(id, 10)) as number[];
}

describe("GET /newsletters/{id}/links", () => {
  let team: TestTeam;
  let ledger: TestLedger;
  before(async () => {
    team = await makeTeam();
    ledger = await clicked(team);
  });
  const pathOf = ({ newsletterId }: TestLedger) => `/newsletters/${newsletterId}/links`;
  const list = async (query: Record<string, string> = {}, key = team.keys.live) =>
    api(key).get(pathOf(ledger), { query });

  it("shows each link's clicks by people, and those of others beside, which add up to the figures", async () => {
    const { data } = (await list()).body;
    const shown = data.map(({ id, ...rest }: Json) => {
      assert.match(id, /^lnk_0[0-9a-f]{25}$/);
      return rest;
    });
    const time = (minutes: number) => new Date(at(minutes)).toISOString();
    assert.deepEqual(shown, [
      {
        ...{ object: "link", url: SALE, clicks: 5, clickers: 3, clicks_unknown: 1, clicks_machine: 1 },
        ...{ first_at: time(30), last_at: time(200) },
      },
      {
        ...{ object: "link", url: LONG, clicks: 1, clickers: 1, clicks_unknown: 0, clicks_machine: 2 },
        ...{ first_at: time(120), last_at: time(120) },
      },
    ]);
    const range = { resource_id: ledger.newsletterId, from: "2026-03-01", to: "2026-03-01" };
    const { totals } = (await api(team.keys.live).get("/analytics/overview", { query: range })).body.data;
    const sum = (field: string) => data.reduce((total: number, link: Json) => total + link[field], 0);
    assert.deepEqual(
      [totals.clicked, totals.clicked_unknown, totals.clicked_machine],
      [sum("clicks"), sum("clicks_unknown"), sum("clicks_machine")],
    );
  });

  it("is paged by clickers in either order, and a cursor belongs to its list", async () => {
    const first = (await list({ limit: "1" })).body;
    assert.deepEqual([first.data[0].url, first.meta.has_more], [SALE, true]);
    const second = (await list({ limit: "1", cursor: first.meta.next_cursor })).body;
    assert.deepEqual([second.data[0].url, second.meta.has_more, second.meta.next_cursor], [LONG, false, null]);
    const rising = (await list({ order: "asc" })).body.data;
    assert.deepEqual(
      rising.map(({ url }: Json) => url),
      [LONG, SALE],
    );
    const other = await clicked(team);
    const foreign = await api(team.keys.live).get(pathOf(other), { query: { cursor: first.meta.next_cursor } });
    assert.equal(codeOf(foreign), "cursor_invalid");
  });

  it("is empty before a click, and answered to keys of its environment that read newsletters and analytics", async () => {
    const draft = await makeLedger(team, 1);
    assert.deepEqual((await api(team.keys.live).get(pathOf(draft))).body.data, []);
    assert.equal(codeOf(await list({}, team.keys.test)), "not_found");
    for (const scope of ["newsletters:read", "analytics:read"] as Scope[]) {
      const { key } = await team.mint({ scopes: [scope] });
      assert.equal(codeOf(await list({}, key)), "insufficient_scope");
    }
  });
});

describe("The recipients of a send by activity", () => {
  let team: TestTeam;
  let ledger: TestLedger;
  before(async () => {
    team = await makeTeam();
    ledger = await clicked(team);
    await show(team, ledger);
  });

  it("are those whom the figures count", async () => {
    const em = team.em.fork();
    await report(em, ledger, [2, 3], ["bounce:hard", "complaint"], ACCEPTED);
    await withdraw(em, ledger, [3]);
    await optOut(em, ledger, [1, 4], ACCEPTED);
    const found = Object.fromEntries(
      await Promise.all(ACTIVITIES.map(async (activity) => [activity, await recipientsOf(team, ledger, { activity })])),
    );
    const expected = {
      ...{ opened: [1, 2, 3, 5], not_opened: [4], clicked: [1, 2, 5] },
      ...{ bounced: [2, 3], unsubscribed: [1, 4], complained: [2] },
    };
    assert.deepEqual(found, expected);
    const range = { resource_id: ledger.newsletterId, from: "2026-03-01", to: "2026-03-01" };
    const { totals } = (await api(team.keys.live).get("/analytics/overview", { query: range })).body.data;
    assert.deepEqual(
      [totals.opened_unique, totals.clicked_unique, totals.bounced_hard, totals.unsubscribed, totals.complained],
      [4, 3, 2, 2, 1],
    );
  });

  it("can be those of one link, which no other activity takes, and none for an unknown link", async () => {
    const [sale, long] = (await api(team.keys.live).get(`/newsletters/${ledger.newsletterId}/links`)).body.data;
    const of = (link: string) => recipientsOf(team, ledger, { activity: "clicked", link });
    assert.deepEqual([await of(sale.id), await of(long.id), await of("lnk_x")], [[1, 2, 5], [1], []]);
    for (const query of [{ link: sale.id }, { activity: "opened", link: sale.id }] as Record<string, string>[]) {
      const answer = await api(team.keys.live).get(`/newsletters/${ledger.newsletterId}/recipients`, { query });
      assert.deepEqual([codeOf(answer), answer.body.error.param], ["validation_failed", "link"]);
    }
  });

  it("lack mails that no server took; those who did not open lack untracked mails", async () => {
    const other = await makeLedger(team, 3);
    await show(team, other);
    const em = team.em.fork();
    await accept(em, other, [1, 2], ACCEPTED);
    await engage(em, other, [1, 3], "opened", 1);
    assert.deepEqual(await recipientsOf(team, other, { activity: "opened" }), [1]);
    assert.deepEqual(await recipientsOf(team, other, { activity: "not_opened" }), [2]);
    await sql`update send_recipients set tracked = false where send_id = ${other.sendId}`.execute(kysely(em));
    assert.deepEqual(await recipientsOf(team, other, { activity: "not_opened" }), []);
  });
});

/** The sums of a report and the rows that they are of. */
async function sumsOf(em: EntityManager, { sendId, newsletterId }: TestLedger) {
  const { rows } = await sql<Record<"links" | "rows" | "perMail", number[]>>`
    select (select array[coalesce(sum(clicks), 0), coalesce(sum(clickers), 0), coalesce(sum(clicks_unknown), 0),
        coalesce(sum(clicks_machine), 0)]::int[] from tracked_links where resource_id = ${newsletterId}) as links,
      array[(select coalesce(sum(count), 0) from engagements where send_id = ${sendId} and kind = 'clicked'),
        (select count(*) from link_clicks where send_id = ${sendId}),
        (select coalesce(sum(count), 0) from marked_hits where send_id = ${sendId} and kind = 'clicked' and by = 'unknown'),
        (select coalesce(sum(count), 0) from marked_hits where send_id = ${sendId} and kind = 'clicked' and by = 'machine')
      ]::int[] as rows,
      (select coalesce(array_agg(seq), '{}') from (
        select seq, count from engagements where send_id = ${sendId} and kind = 'clicked'
        except select seq, sum(count) from link_clicks where send_id = ${sendId} group by seq) m) as "perMail"`.execute(
    kysely(em.fork()),
  );
  const [sums] = rows;
  assert.ok(sums);
  return sums;
}

describe("The sums of a report", () => {
  const PEOPLE = 8;
  const URLS = ["https://shop.example/1", "https://shop.example/2", "https://shop.example/3"];
  const hit = fc.record({
    seq: fc.integer({ min: 1, max: PEOPLE }),
    kind: fc.constantFrom("opened", "clicked", "clicked" as const),
    at: fc.constantFrom(-0.01, 0.005, 0.1, 1, 30, 30.01, 31, 300).map(at),
    url: fc.constantFrom(...URLS),
    rule: fc.constantFrom(null, null, null, "head", "webkit", "network"),
    early: fc.boolean(),
    source: fc.constantFrom("one", "other"),
  });
  const anyHits = fc.array(hit, { minLength: 1, maxLength: 15 });
  /** Reports of a provider, which make hits of that time a machine's. */
  const anyReports = fc.array(
    fc.record({
      seq: hit.map(({ seq }) => seq),
      machine: fc.constantFrom(...ENGAGEMENT_KINDS),
      at: hit.map((h) => h.at),
    }),
    { maxLength: 3 },
  );
  const anyRound = fc.record({
    hits: anyHits,
    reports: anyReports,
    erased: fc.option(fc.integer({ min: 1, max: PEOPLE })),
  });

  it(`equal the rows after any hits, reports and erasures, and stay when the rows are deleted (seed ${SEED})`, async () => {
    const team = await makeTeam();
    const em = team.em.fork();
    await fc.assert(
      fc.asyncProperty(fc.array(anyRound, { minLength: 1, maxLength: 4 }), async (rounds) => {
        const ledger = await makeLedger(team, PEOPLE);
        await show(team, ledger);
        const { tenant, sendId, newsletterId } = ledger;
        await accept(em, ledger, [1, 2, 3, 4, 5, 6, 7, 8], ACCEPTED);
        for (const { hits, reports, erased } of rounds) {
          await recordHits(
            em,
            hits.map((one) => ({ ...one, sendId, url: one.kind === "clicked" ? one.url : null })),
          );
          await recordReported(
            em,
            tenant,
            reports.map((one) => ({ ...one, sendId })),
          );
          if (erased !== null) await erase(em, ledger, [erased]);
          await settleAll(team.em, sendId);
          const { links, rows, perMail } = await sumsOf(em, ledger);
          assert.deepEqual(links, rows);
          assert.deepEqual(perMail, []);
        }
        assert.deepEqual(await recountFigures(team.em.fork(), tenant, { repair: false }), []);
        const { links } = await sumsOf(em, ledger);
        const range = { resource_id: newsletterId, from: "2026-03-01", to: "2026-03-01" };
        const { totals } = (await api(team.keys.live).get("/analytics/overview", { query: range })).body.data;
        assert.deepEqual([totals.clicked, totals.clicked_unknown, totals.clicked_machine], links.toSpliced(1, 1));
        const lists = await Promise.all(
          (["opened", "not_opened", "clicked"] as const).map((activity) => recipientsOf(team, ledger, { activity })),
        );
        assert.deepEqual(
          lists.map((seqs) => seqs.length),
          [totals.opened_unique, PEOPLE - totals.opened_unique, totals.clicked_unique],
        );

        await sql`update sends set completed_at = now() - interval '70 days' where id = ${sendId}`.execute(kysely(em));
        await prune({ LEDGER_DAYS: 60, LEDGER_NAMES_DAYS: 30 }, { prunings: LEDGERS });
        assert.deepEqual(await sumsOf(em, ledger), { links, rows: [0, 0, 0, 0], perMail: [] });
      }),
      { numRuns: 25, seed: SEED, endOnFailure: true },
    );
  });

  it("hold every hit and report where both are recorded at once", async () => {
    const team = await makeTeam();
    const em = team.em.fork();
    const ledger = await makeLedger(team, 40);
    const seqs = Array.from({ length: 40 }, (_, i) => i + 1);
    // Of these no outcome is known, so that a response changes the row.
    await setState(em, ledger, seqs, "SENDING", ACCEPTED);
    await setState(em, ledger, seqs, "UNKNOWN", ACCEPTED);
    await accept(em, ledger, seqs.slice(0, 20), ACCEPTED);
    for (let round = 0; round < 6; round++) {
      await recordHits(
        em,
        seqs.map((seq) => click(ledger, seq, 60 + round, `https://shop.example/${round}`)),
      );
      // In the other order, several in a transaction.
      const reports = seqs.filter((seq) => seq % 6 === round).toReversed();
      await Promise.all([
        settleAll(team.em, ledger.sendId),
        ...[0, 1].map((half) =>
          recordReports(
            team.em.fork(),
            reports
              .filter((_, i) => i % 2 === half)
              .map((seq) => ({ sendId: ledger.sendId, seq, kind: "bounce:soft" as const })),
            SOFT_BOUNCE_POLICY,
          ),
        ),
      ]);
    }
    const { links, rows } = await sumsOf(em, ledger);
    assert.deepEqual([links, rows], [[240, 240, 0, 0], links]);
    assert.deepEqual(await recountFigures(team.em.fork(), ledger.tenant, { repair: false }), []);
    const { rows: bounced } = await sql<{ count: number }>`
      select count(*)::int as count from mail_reports where send_id = ${ledger.sendId} and kind = 'bounce:soft'`.execute(
      kysely(em),
    );
    assert.equal(bounced[0]?.count, 40);
  });
});

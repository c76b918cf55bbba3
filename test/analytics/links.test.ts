import assert from "node:assert/strict";
import type { Scope } from "../../domain/access/scopes.ts";
import { recordHits } from "../../domain/tracking/record.ts";
import { settleAll } from "../public/tracking.ts";
import { api, codeOf, type Json } from "../support/api.ts";
import { makeTeam, type TestTeam } from "../support/factories.ts";
import { accept, makeLedger, type TestLedger } from "./ledger.ts";

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

import assert from "node:assert/strict";
import { sql } from "kysely";
import { kysely } from "../../db/orm.ts";
import { newId } from "../../domain/ids.ts";
import { unsubscribeUrl } from "../../domain/mail/links.ts";
import { api, type Json } from "../support/api.ts";
import { makeTeam } from "../support/factories.ts";
import {
  anotherNewsletter,
  makeSender,
  people,
  preview,
  setFaults,
  startSend,
  untilStatus,
} from "../support/sending.ts";
import { stack } from "../support/stack.ts";
import { accept, makeLedger, report } from "./ledger.ts";

const DAY_MS = 86_400_000;
/** A day in UTC, so many days from today. */
const day = (ahead: number): string => new Date(Date.now() + ahead * DAY_MS).toISOString().slice(0, 10);

const ZEROS = {
  sent: 0,
  tracked: 0,
  delivered: 0,
  rejected: 0,
  bounced_hard: 0,
  bounced_soft: 0,
  complained: 0,
  unsubscribed: 0,
  suppressed: 0,
  unknown: 0,
  opened: 0,
  opened_unique: 0,
  clicked: 0,
  clicked_unique: 0,
  opened_unknown: 0,
  opened_machine: 0,
  clicked_unknown: 0,
  clicked_machine: 0,
};
const NO_RATES = { delivered: 0, bounced: 0, rejected: 0, complained: 0, unsubscribed: 0, opened: null, clicked: null };

async function overview(key: string, query: Record<string, string> = {}): Promise<Json> {
  const answer = await api(key).get("/analytics/overview", { query });
  assert.equal(answer.status, 200, answer.text);
  return answer.body.data;
}

describe("GET /analytics/overview", () => {
  afterEach(() => setFaults([]));

  it("shows zeros for each of the last 30 days of a team without mails", async () => {
    const { keys } = await makeTeam();
    for (const key of [keys.live, keys.test]) {
      const { days, ...rest } = await overview(key);
      const [from, to] = [day(-29), day(0)];
      assert.deepEqual(rest, {
        object: "analytics_overview",
        id: `${from}_${to}`,
        from,
        to,
        totals: ZEROS,
        rates: NO_RATES,
      });
      assert.deepEqual(
        days,
        Array.from({ length: 30 }, (_, i) => ({ date: day(i - 29), ...ZEROS })),
      );
    }
  });

  it("shows what became of a newsletter, of the team and of that newsletter alone", async () => {
    const sender = await makeSender({
      recipients: [
        ...people(40, "fine.overview.example"),
        ...people(8, "gone.overview.example"),
        ...people(2, "cut.overview.example"),
      ],
    });
    await setFaults([
      { stage: "rcpt", match: "@gone.overview", code: 550, message: "5.1.1 No such user" },
      { stage: "data", match: "@cut.overview", drop: true },
    ]);
    const { data } = await startSend(sender);
    await untilStatus(sender, ["SENT"]);
    const { origin } = await stack();
    const optOut = await fetch(unsubscribeUrl(sender.vault, origin, { sendId: data.id, seq: 1 }), {
      method: "POST",
      body: new URLSearchParams({ "List-Unsubscribe": "One-Click" }),
    });
    assert.equal(optOut.status, 200);
    const other = await anotherNewsletter(sender);

    const counts = { ...ZEROS, sent: 40, delivered: 40, rejected: 8, unknown: 2, unsubscribed: 1 };
    for (const query of [{}, { resource_id: sender.newsletterId }] as Record<string, string>[]) {
      const { totals, rates, days } = await overview(sender.keys.live, query);
      assert.deepEqual(totals, counts);
      assert.deepEqual(rates, { ...NO_RATES, delivered: 1, rejected: 8 / 48, unsubscribed: 1 / 40 });
      // A send may run over midnight.
      const sum = days.reduce((total: number, { sent }: { sent: number }) => total + sent, 0);
      assert.equal(sum, 40);
    }
    assert.deepEqual((await overview(sender.keys.live, { resource_id: other.newsletterId })).totals, ZEROS);
  });

  it("answers rates of the totals", async () => {
    const team = await makeTeam();
    await sql`insert into analytics_days (team_id, environment, resource_id, day, sent, rejected, bounced_hard, bounced_soft,
        complained, unsubscribed, opened, opened_unique, clicked, clicked_unique, tracked)
      values (${team.team.id}, 'LIVE', '', '2026-03-01', 90, 10, 6, 4, 1, 4, 70, 40, 30, 20, 64),
        (${team.team.id}, 'LIVE', '', '2026-03-02', 10, 0, 0, 0, 0, 200, 0, 0, 0, 0, 0)`.execute(kysely(team.em));
    const range = { from: "2026-03-01", to: "2026-03-01" };
    assert.deepEqual((await overview(team.keys.live, range)).rates, {
      delivered: 80 / 90,
      bounced: 10 / 90,
      rejected: 10 / 100,
      complained: 1 / 80,
      unsubscribed: 4 / 80,
      opened: 40 / 64,
      clicked: 20 / 64,
    });
    // More opt-outs than mails: of mails before the range, too.
    assert.equal((await overview(team.keys.live, { ...range, to: "2026-03-02" })).rates.unsubscribed, 1);
  });

  it("takes a range of up to 366 days, in the future too", async () => {
    const { keys } = await makeTeam();
    const shown = async (query: Record<string, string>) => {
      const { from, to, id, days } = await overview(keys.live, query);
      assert.equal(id, `${from}_${to}`);
      return [from, to, days.length];
    };
    assert.deepEqual(await shown({ from: "2024-01-01", to: "2024-12-31" }), ["2024-01-01", "2024-12-31", 366]);
    assert.deepEqual(await shown({ to: "2026-03-01" }), ["2026-01-31", "2026-03-01", 30]);
    assert.deepEqual(await shown({ from: day(-3) }), [day(-3), day(0), 4]);
    assert.deepEqual(await shown({ from: day(1), to: day(2) }), [day(1), day(2), 2]);
    assert.deepEqual(await shown({ from: "9999-12-31", to: "9999-12-31" }), ["9999-12-31", "9999-12-31", 1]);
  });

  for (const { name, query, param, message } of [
    {
      name: "that is no date",
      query: { from: "yesterday" },
      param: "from",
      message: /date, such as 2026-11-21.*yesterday/,
    },
    { name: "that the calendar lacks", query: { to: "2026-02-29" }, param: "to", message: /2026-02-29/ },
    { name: "with a time", query: { to: "2026-02-01T00:00:00Z" }, param: "to", message: /must be a date/ },
    { name: "of a year without mail", query: { from: "0000-01-01" }, param: "from", message: /1970-01-01 or later/ },
    {
      name: "in the wrong order",
      query: { from: "2026-03-02", to: "2026-03-01" },
      param: "from",
      message: /not be after to/,
    },
    {
      name: "that begins after today, without an end",
      query: { from: "9999-01-01" },
      param: "from",
      message: /after today/,
    },
    {
      name: "of 367 days",
      query: { from: "2024-01-01", to: "2025-01-01" },
      param: "from",
      message: /at most 366 days.*has 367/,
    },
  ] as { name: string; query: Record<string, string>; param: string; message: RegExp }[]) {
    it(`refuses a range ${name}`, async () => {
      const { keys } = await makeTeam();
      const { status, body } = await api(keys.live).get("/analytics/overview", { query });
      assert.equal(status, 400);
      assert.equal(body.error.code, "validation_failed");
      assert.equal(body.error.param, param);
      assert.match(body.error.message, message);
    });
  }

  it("answers 404 for a resource that the tenant does not have, with the same answer for another team's", async () => {
    const [team, otherTeam] = [await makeTeam(), await makeTeam()];
    const made = async (key: string, path: string): Promise<string> =>
      (await api(key).post(path, { name: "x" })).body.data.id;
    const own = await made(team.keys.live, "/newsletters");
    const answers = [];
    for (const id of [
      newId("newsletter"),
      await made(otherTeam.keys.live, "/newsletters"),
      await made(team.keys.live, "/lists"),
      "nonsense",
    ]) {
      answers.push(await api(team.keys.live).get("/analytics/overview", { query: { resource_id: id } }));
    }
    answers.push(await api(team.keys.test).get("/analytics/overview", { query: { resource_id: own } }));
    for (const { status, body } of answers) {
      assert.equal(status, 404);
      const { request_id: _, ...error } = body.error;
      const { request_id: __, ...expected } = answers[0]?.body.error ?? {};
      assert.deepEqual(error, expected);
      assert.equal(error.param, "resource_id");
    }
    assert.deepEqual((await overview(team.keys.live, { resource_id: own })).totals, ZEROS);
  });
});

describe("The complaint gate", () => {
  it("divides the complaints that came in its window by the mail delivered in it", async () => {
    const sender = await makeSender();
    const ledger = await makeLedger(sender, 1_010);
    const em = sender.em.fork();
    const at = (ahead: number) => `${day(ahead)}T12:00:00Z`;
    const rate = async () => (await preview(sender)).body.data?.complaint_rate.rate;
    const seqs = Array.from({ length: 1_000 }, (_, i) => i + 1);
    await accept(em, ledger, seqs, at(-29));
    await accept(em, ledger, [1_001, 1_002, 1_003], at(-40));
    assert.equal(await rate(), 0);

    // About an old mail, today; it came before the window; about a new one.
    await report(em, ledger, [1_001], ["complaint"], at(0));
    assert.equal(await rate(), 1 / 1_000);
    await report(em, ledger, [1_002], ["complaint"], at(-30));
    assert.equal(await rate(), 1 / 1_000);
    await report(em, ledger, seqs.slice(0, 400), ["bounce:hard"], at(0));
    assert.equal(await rate(), 1 / 600);
    await report(em, ledger, [1], ["complaint"], at(-29));
    const refused = await preview(sender);
    assert.equal(refused.body.error?.code, "complaint_rate_exceeded", refused.text);
  });
});

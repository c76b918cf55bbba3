import assert from "node:assert/strict";
import { sql } from "kysely";
import { pino } from "pino";
import { HitBuffer } from "../../api/public/hit-buffer.ts";
import { router } from "../../api/rest/route.ts";
import { Progress } from "../../config/progress.ts";
import { kysely } from "../../db/orm.ts";
import { type Hit, recordHits } from "../../domain/tracking/record.ts";
import { settleHits } from "../../domain/tracking/settle.ts";
import { makeLedger } from "../analytics/ledger.ts";
import { serveRoutes } from "../support/app.ts";
import { eventually } from "../support/eventually.ts";
import { makeTeam, type TestTeam } from "../support/factories.ts";
import { startApi } from "../support/own-database.ts";
import { ImpatientProgress } from "../support/progress.ts";
import { makeSender, type Sender, sendAndWait } from "../support/sending.ts";
import { openDatabaseProxy } from "../support/tcp-proxy.ts";
import { endWait, engagementsOf, hit, letTimePass, mailsOf, settleAll } from "./tracking.ts";

const someHit = (seq: number): Hit => ({
  kind: "opened",
  sendId: "send_01m7yvgfyse4as6zbe8bmrhp5h",
  seq,
  at: Date.now(),
  rule: null,
  early: false,
  source: "source",
  url: null,
});
const seqs = (hits: readonly Hit[]) => hits.map(({ seq }) => seq).sort((a, b) => a - b);
/** An error as of a Postgres that cannot be reached. */
const away = () => Object.assign(new Error("away"), { code: "ECONNREFUSED" });
const range = (from: number, to: number) => Array.from({ length: to - from }, (_, i) => from + i);

/** A buffer over a record of hits that a test reads and interrupts. */
function openBuffer(progress = new Progress()) {
  const recorded: Hit[][] = [];
  const state = {
    isAway: false,
    failures: 0,
    refused: -1,
    dropped: 0,
    ignored: 0,
    waiting: 0,
  };
  const buffer = new HitBuffer({
    record: async (hits) => {
      if (state.isAway || state.failures-- > 0) throw away();
      if (hits.some(({ seq }) => seq === state.refused)) {
        throw Object.assign(new Error("invalid input"), { code: "22P02" });
      }
      recorded.push([...hits]);
      return [];
    },
    metrics: {
      recorded: () => {},
      dropped: (hits) => {
        state.dropped += hits;
      },
      ignored: () => {
        state.ignored++;
      },
      waiting: (hits) => {
        state.waiting = hits;
      },
    },
    progress,
    log: pino({ level: "silent" }),
  });
  return { buffer, state, all: () => seqs(recorded.flat()), batches: () => recorded.length };
}

describe("Hits on their way to Postgres", () => {
  it("are named as stalled when none is recorded for long, until they are", async () => {
    const progress = new ImpatientProgress();
    const { buffer, state, all } = openBuffer(progress);
    state.isAway = true;
    buffer.add(someHit(1));
    await eventually(() => progress.stalled().length > 0, { what: "the stalled buffer" });
    assert.deepEqual(progress.stalled(), ["tracking"]);
    const app = await serveRoutes(router({}), { with: { progress } });
    try {
      const answer = await fetch(`${app.origin}/readyz`);
      assert.deepEqual(
        [answer.status, await answer.json()],
        [503, { status: "unavailable", postgres: "ok", temporal: "ok", stalled: ["tracking"] }],
      );
      state.isAway = false;
      await eventually(() => progress.stalled().length === 0, { what: "the record" });
      assert.equal((await fetch(`${app.origin}/readyz`)).status, 200);
      assert.deepEqual(all(), [1]);
    } finally {
      await app.close();
      await buffer.close();
    }
  });

  it("are recorded together, also those that a stopping process has left", async () => {
    const { buffer, all, batches, state } = openBuffer();
    for (const seq of range(0, 500)) buffer.add(someHit(seq));
    await eventually(() => all().length === 500, { what: "the hits" });
    assert.ok(batches() <= 2, String(batches()));
    for (const seq of range(500, 5_500)) buffer.add(someHit(seq));
    await buffer.close();
    assert.deepEqual(all(), range(0, 5_500));
    assert.equal(state.waiting, 0);
  });

  it("wait while Postgres is away, as many as come in a minute", async () => {
    const { buffer, all, state } = openBuffer();
    state.isAway = true;
    for (const seq of range(0, 120_010)) buffer.add(someHit(seq));
    assert.equal(state.dropped, 10);
    assert.equal(state.waiting, 120_000);
    state.isAway = false;
    await buffer.close();
    assert.deepEqual(all(), range(0, 120_000));
  });

  it("of a stopping process are tried again when the record of some fails", async () => {
    const { buffer, all, state } = openBuffer();
    state.failures = 3;
    for (const seq of range(0, 4_500)) buffer.add(someHit(seq));
    await buffer.close();
    assert.deepEqual(all(), range(0, 4_500));
    assert.equal(state.dropped, 0);
  });

  it("are dropped with their batch when Postgres refuses it, and delay no others", async () => {
    const progress = new ImpatientProgress();
    const { buffer, all, state } = openBuffer(progress);
    buffer.add(someHit(0));
    state.refused = 1;
    for (const seq of range(1, 2_500)) buffer.add(someHit(seq));
    await eventually(() => state.waiting === 0, { what: "an empty buffer" });
    assert.deepEqual(all(), [0, ...range(2_001, 2_500)]);
    assert.equal(state.dropped, 2_000);
    assert.deepEqual(progress.stalled(), []);
  });

  it("on one mail are recorded up to a number in a minute, and leave room for those on other mails", async () => {
    const { buffer, all, state } = openBuffer();
    for (let n = 0; n < 5_000; n++) buffer.add(someHit(1));
    buffer.add({ ...someHit(1), kind: "clicked" });
    buffer.add(someHit(2));
    await buffer.close();
    assert.deepEqual(all(), [...Array<number>(31).fill(1), 2]);
    assert.equal(state.ignored, 5_000 - 30);
  });

  describe("with Postgres", () => {
    /** The kinds of counted hits of a send's mails, with how often each mail had them. */
    async function countsOf({ em }: TestTeam, sendId: string): Promise<string[]> {
      const { rows } = await sql<{ text: string }>`
        select distinct kind || ' ' || count as text from engagements where send_id = ${sendId} order by text`.execute(
        kysely(em.fork()),
      );
      return rows.map(({ text }) => text);
    }

    async function sentTracked(recipients: number): Promise<Sender> {
      const sender = await makeSender({ body: '<a href="https://shop.example/">shop</a>', recipients });
      await sender.em.fork().execute("update teams set tracking = 'ALL' where id = ?", [sender.team.id]);
      await sendAndWait(sender);
      await letTimePass(sender);
      return sender;
    }

    it("are answered while it is away, and counted once it is back and by a stop", async () => {
      const sender = await sentTracked(30);
      const mails = await mailsOf(sender);
      const proxy = await openDatabaseProxy();
      const api = await startApi({ DATABASE_URL: proxy.url });
      const at = (url = "") => api.origin + new URL(url).pathname;
      try {
        proxy.cut();
        for (const { pixel, links } of mails) {
          assert.equal((await hit(at(pixel))).status, 200);
          assert.equal((await hit(at(links[0]))).headers.get("location"), "https://shop.example/");
        }
        const waiting = async () => {
          const metrics = await (await fetch(`${api.health}/metrics`)).text();
          return /^mailkeel_tracking_hits_waiting\{[^}]*\} (\d+)$/m.exec(metrics)?.[1];
        };
        await eventually(async () => (await waiting()) === "60", { what: "hits that wait" });
        assert.deepEqual(await engagementsOf(sender), []);
        proxy.heal();
        await eventually(async () => (await waiting()) === "0", { what: "their record" });
        // A part of these waits when the process is asked to stop.
        for (const { links } of mails) await hit(at(links[0]));
        process.kill(api.pid ?? Number.NaN, "SIGTERM");
        await api.ended;
      } finally {
        await api.stop();
        proxy.close();
      }
      await eventually(async () => (await engagementsOf(sender)).length === 2 * mails.length, { what: "the counts" });
      const found = (await engagementsOf(sender)).map(({ email, kind, count }) => `${email} ${kind} ${count}`);
      const expected = mails.flatMap(({ email }) => [`${email} opened 1`, `${email} clicked 2`]);
      assert.deepEqual(found.sort(), expected.sort());
    });

    it("count by mail and kind, and not on a mail that is unknown", async () => {
      const team = await makeTeam();
      const { sendId } = await makeLedger(team, 2);
      const hits = range(0, 100).map((i): Hit => ({ ...someHit((i % 2) + 1), sendId }));
      await recordHits(team.em.fork(), hits);
      const unknown = { ...someHit(77), sendId };
      assert.deepEqual(await recordHits(team.em.fork(), [unknown, { ...unknown, rule: "head" }]), [
        { kind: "opened", rule: null, count: 1 },
        { kind: "opened", rule: "head", count: 1 },
      ]);
      await settleAll(team.em, sendId);
      assert.deepEqual(await countsOf(team, sendId), ["opened 50"]);
    });

    it("count once when processes record and settle them at once", async () => {
      const team = await makeTeam();
      const { sendId } = await makeLedger(team, 40);
      // A click on a mail that was never accepted would come too soon.
      await kysely(team.em.fork())
        .updateTable("send_recipients")
        .set({ state: "UNKNOWN" })
        .where("send_id", "=", sendId)
        .execute();
      const order = range(1, 41);
      await Promise.all(
        range(0, 8).map(async (process) => {
          for (const round of range(0, 5)) {
            const kind = round % 2 ? "opened" : "clicked";
            const hits = (process % 2 ? order : order.toReversed()).map(
              (seq): Hit => ({ ...someHit(seq), sendId, kind, at: Date.now() + 3_600_000 }),
            );
            await recordHits(team.em.fork(), hits);
          }
        }),
      );
      await endWait(team.em, sql`s.id = ${sendId}`);
      await Promise.all(range(0, 4).map(() => settleHits(team.em.fork(), 100)));
      await settleAll(team.em, sendId);
      assert.deepEqual(await countsOf(team, sendId), ["clicked 24", "opened 16"]);
    });
  });
});

import assert from "node:assert/strict";
import {
  appendFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  rmSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { sql } from "kysely";
import { pino } from "pino";
import { HitSpool } from "../../api/public/hit-spool.ts";
import { router } from "../../api/rest/route.ts";
import { Progress } from "../../config/progress.ts";
import { kysely } from "../../db/orm.ts";
import { transaction } from "../../db/transaction.ts";
import { type Hit, recordHits } from "../../domain/tracking/record.ts";
import { makeLedger } from "../analytics/ledger.ts";
import { serveRoutes } from "../support/app.ts";
import { openDatabaseProxy } from "../support/database-proxy.ts";
import { eventually } from "../support/eventually.ts";
import { makeTeam, unique } from "../support/factories.ts";
import { startApi } from "../support/own-database.ts";
import { ImpatientProgress } from "../support/progress.ts";
import { makeSender, type Sender, sendAndWait } from "../support/sending.ts";
import { engagementsOf, hit, letTimePass, mailsOf } from "./tracking.ts";

const folders: string[] = [];
const newFolder = (): string => {
  const folder = mkdtempSync(`${tmpdir()}/mailkeel-hits-`);
  folders.push(folder);
  return folder;
};

const someHit = (seq: number): Hit => ({
  kind: "opened",
  sendId: "send_01m7yvgfyse4as6zbe8bmrhp5h",
  seq,
  at: Date.now(),
  cause: null,
  url: null,
});
const seqs = (hits: readonly Hit[]) => hits.map(({ seq }) => seq).sort((a, b) => a - b);
const range = (from: number, to: number) => Array.from({ length: to - from }, (_, i) => from + i);

/** A spool over a record of hits that a test reads and interrupts. */
function openSpool({
  folder,
  maxBytes = 1_000_000,
  progress = new Progress(),
}: {
  folder?: string;
  maxBytes?: number;
  progress?: Progress;
}) {
  const recorded = new Map<string, Hit[]>();
  const state = { isAway: false, dropped: 0, ignored: 0, waiting: { hits: 0, bytes: 0 } };
  const spool = new HitSpool({
    folder,
    maxBytes,
    record: async (id, hits) => {
      if (state.isAway) throw new Error("away");
      recorded.set(id, [...hits]);
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
      waiting: (waiting) => {
        state.waiting = waiting;
      },
    },
    progress,
    log: pino({ level: "silent" }),
  });
  return { spool, state, all: () => seqs([...recorded.values()].flat()), batches: () => recorded.size };
}

const filesIn = (folder: string) =>
  readdirSync(folder, { recursive: true, encoding: "utf8" }).filter((name) => name.endsWith(".hits"));

describe("Hits on their way to Postgres", () => {
  after(() => {
    for (const folder of folders) rmSync(folder, { recursive: true, force: true });
  });

  it("are named as stalled when none is recorded for long, until they are", async () => {
    const progress = new ImpatientProgress();
    const { spool, state, all } = openSpool({ progress });
    state.isAway = true;
    await spool.add(someHit(1));
    await eventually(() => progress.stalled().length > 0, { what: "the stalled spool" });
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
      await spool.close();
    }
  });

  it("are recorded together, and leave no file behind", async () => {
    const folder = newFolder();
    const { spool, all, batches, state } = openSpool({ folder });
    await Promise.all(range(0, 500).map((seq) => spool.add(someHit(seq))));
    assert.equal(filesIn(folder).length, 1);
    await eventually(() => all().length === 500, { what: "the hits" });
    assert.equal(batches(), 1);
    await spool.close();
    assert.deepEqual(readdirSync(folder), []);
    assert.deepEqual(state.waiting, { hits: 0, bytes: 0 });
  });

  it("wait in files while they cannot be recorded, also more than memory holds, and are taken over from a process that died", async () => {
    const folder = newFolder();
    const dead = openSpool({ folder, maxBytes: 100_000_000 });
    dead.state.isAway = true;
    const count = 60_000;
    for (let seq = 0; seq < count; seq += 10_000) {
      await Promise.all(range(seq, seq + 10_000).map((each) => dead.spool.add(someHit(each))));
    }
    assert.equal(dead.state.dropped, 0);
    await eventually(() => dead.state.waiting.hits === count, { what: "all hits in files" });
    const [own = ""] = readdirSync(folder);
    const [file = ""] = filesIn(folder);
    // A crash may leave a part of a line.
    appendFileSync(`${folder}/${file}`, '["opened","send_');
    const next = openSpool({ folder });
    next.spool.start();
    // Without a sign of its process for long, a folder is taken over.
    utimesSync(`${folder}/${own}`, new Date(0), new Date(0));
    await eventually(() => next.all().length === count, { what: "the hits" });
    assert.deepEqual(next.all(), range(0, count));
    await eventually(() => readdirSync(folder).length === 0, { what: "no file" });
    await next.spool.close();
    // It finds nothing to record twice.
    dead.state.isAway = false;
    await dead.spool.close();
  });

  it("leaves the folder of a process that lives to it", async () => {
    const folder = newFolder();
    const [one, two] = [openSpool({ folder }), openSpool({ folder })];
    one.state.isAway = true;
    await one.spool.add(someHit(1));
    mkdirSync(`${folder}/empty-and-old`);
    utimesSync(`${folder}/empty-and-old`, new Date(0), new Date(0));
    two.spool.start();
    await eventually(() => !existsSync(`${folder}/empty-and-old`), { what: "a look at the folders" });
    assert.deepEqual(two.all(), []);
    await two.spool.close();
    one.state.isAway = false;
    await one.spool.close();
    assert.deepEqual(one.all(), [1]);
  });

  it("are dropped and counted beyond the size that files may have", async () => {
    const { spool, state, all } = openSpool({ folder: newFolder(), maxBytes: 1_000 });
    state.isAway = true;
    for (const seq of range(0, 50)) await spool.add(someHit(seq));
    assert.ok(state.dropped > 30 && state.dropped < 50, String(state.dropped));
    state.isAway = false;
    await spool.close();
    assert.equal(all().length + state.dropped, 50);
  });

  it("on one mail are recorded up to a number in a minute, and leave room for those on other mails", async () => {
    const folder = newFolder();
    const { spool, all, state } = openSpool({ folder });
    await Promise.all(range(0, 5_000).map(() => spool.add(someHit(1))));
    await spool.add({ ...someHit(1), kind: "clicked" });
    await spool.add(someHit(2));
    await spool.close();
    assert.deepEqual(all(), [...Array<number>(31).fill(1), 2]);
    assert.equal(state.ignored, 5_000 - 30);
  });

  it("are kept in memory, as many as it holds, where there is no folder", async () => {
    for (const folder of [undefined, `${newFolder()}/file/folder`]) {
      if (folder) writeFileSync(folder.slice(0, -"/folder".length), "");
      const { spool, state, all } = openSpool(folder ? { folder } : {});
      state.isAway = true;
      await Promise.all(range(0, 50_010).map((seq) => spool.add(someHit(seq))));
      assert.equal(state.dropped, 10);
      state.isAway = false;
      await spool.close();
      assert.deepEqual(all(), range(0, 50_000));
    }
  });

  describe("with Postgres", () => {
    async function sentTracked(recipients: number): Promise<Sender> {
      const sender = await makeSender({ body: '<a href="https://shop.example/">shop</a>', recipients });
      await sender.em.fork().execute("update teams set tracking = true where id = ?", [sender.team.id]);
      await sendAndWait(sender);
      await letTimePass(sender);
      return sender;
    }

    it("are answered while it is away and while no process lives to record them, and counted once afterwards", async () => {
      const sender = await sentTracked(30);
      const mails = await mailsOf(sender);
      const proxy = await openDatabaseProxy();
      const folder = newFolder();
      const settings = { DATABASE_URL: proxy.url, TRACKING_SPOOL_DIR: folder };
      const first = await startApi(settings);
      const at = (url: string, { origin }: { origin: string }) => origin + new URL(url).pathname;
      try {
        proxy.cut();
        for (const { pixel = "", links } of mails) {
          assert.equal((await hit(at(pixel, first))).status, 200);
          assert.equal((await hit(at(links[0] ?? "", first))).headers.get("location"), "https://shop.example/");
        }
        const waiting = async () => {
          const metrics = await (await fetch(`${first.health}/metrics`)).text();
          return /^mailkeel_tracking_hits_waiting\{[^}]*\} (\d+)$/m.exec(metrics)?.[1];
        };
        await eventually(async () => (await waiting()) === "60", { what: "hits that wait" });
      } finally {
        await first.stop();
      }
      assert.ok(filesIn(folder).length > 0);
      assert.deepEqual(await engagementsOf(sender), []);
      // It starts while Postgres is away, too.
      const second = await startApi(settings);
      try {
        for (const { links } of mails) await hit(at(links[0] ?? "", second));
        proxy.heal();
        const expected = mails.flatMap(({ email }) => [`${email} opened 1`, `${email} clicked 2`]);
        const found = async () =>
          (await engagementsOf(sender)).map(({ email, kind, count }) => `${email} ${kind} ${count}`);
        await eventually(async () => assert.deepEqual((await found()).sort(), expected.sort()) ?? true, {
          what: "the counts",
        });
        await eventually(() => filesIn(folder).length === 0, { what: "no file" });
      } finally {
        await second.stop();
        proxy.close();
      }
    });

    it("count once, however often and by however many processes they are recorded", async () => {
      const sender = await sentTracked(2);
      const [{ id: sendId }] = await sender.em
        .fork()
        .execute<[{ id: string }]>("select id from sends where resource_id = ?", [sender.newsletterId]);
      const hits = range(0, 100).map((i): Hit => ({ ...someHit((i % 2) + 1), sendId }));
      const batch = unique("batch");
      const em = () => sender.em.fork();
      await Promise.all([1, 2, 3].map(() => recordHits(em(), batch, hits.slice(0, 60))));
      // A process took the file over while its owner still wrote.
      await Promise.all([1, 2, 3].map(() => recordHits(em(), batch, hits)));
      assert.deepEqual(await recordHits(em(), batch, hits), []);
      assert.deepEqual(
        (await engagementsOf(sender)).map(({ count }) => count),
        [50, 50],
      );
      const unknown = [{ ...someHit(77), sendId }, someHit(1)];
      assert.deepEqual(await recordHits(em(), unique("batch"), unknown), []);
    });

    it("do not lock each other out when processes record them at once", async () => {
      const sender = await sentTracked(40);
      const [{ id: sendId }] = await sender.em
        .fork()
        .execute<[{ id: string }]>("select id from sends where resource_id = ?", [sender.newsletterId]);
      const order = range(1, 41);
      await Promise.all(
        range(0, 8).map(async (process) => {
          for (const round of range(0, 5)) {
            const seqs = process % 2 ? order : order.toReversed();
            const hits = seqs.map((seq): Hit => ({ ...someHit(seq), sendId, kind: round % 2 ? "opened" : "clicked" }));
            await recordHits(sender.em.fork(), unique("batch"), hits);
          }
        }),
      );
      const counts = new Set((await engagementsOf(sender)).map(({ kind, count }) => `${kind} ${count}`));
      assert.deepEqual([...counts].sort(), ["clicked 24", "opened 16"]);
    });

    it("do not lock each other out where each has the first hit on another mail", async () => {
      const team = await makeTeam();
      const { sendId } = await makeLedger(team, 2);
      const db = kysely(team.em.fork());
      await sql`update send_recipients set state = 'UNKNOWN' where send_id = ${sendId}`.execute(db);
      const mailHit = (kind: Hit["kind"], seq: number): Hit => ({
        ...someHit(seq),
        sendId,
        kind,
        at: Date.now() + 60_000,
      });
      const record = (hits: Hit[]) =>
        transaction(team.em.fork(), (em) => recordHits(em, unique("batch"), hits), { attempts: 1 });
      await record([mailHit("opened", 2), mailHit("clicked", 1)]);

      const both = await team.em.fork().transactional(async (tx) => {
        await sql`select from send_recipients where send_id = ${sendId} for update`.execute(kysely(tx));
        const { rows } = await sql<{ pid: number }>`select pg_backend_pid() as pid`.execute(kysely(tx));
        const recorded = Promise.all([
          record([mailHit("opened", 1), mailHit("opened", 2)]),
          record([mailHit("clicked", 1), mailHit("clicked", 2)]),
        ]);
        recorded.catch(() => {});
        await eventually(
          async () => {
            // One may wait behind the other.
            const waiting = await sql`
              with first as (
                select pid from pg_stat_activity where pg_blocking_pids(pid) && ${rows.map(({ pid }) => pid)}::int[]
              )
              select pid from first
              union select a.pid from pg_stat_activity a join first f on f.pid = any(pg_blocking_pids(a.pid))`.execute(
              db,
            );
            return waiting.rows.length === 2;
          },
          { what: "both at the locks" },
        );
        // In a box: the transaction must not wait for it.
        return { recorded };
      });
      await both.recorded;
      const counts = await sql<{ count: number }>`
        select count from engagements where send_id = ${sendId} order by kind, seq`.execute(db);
      assert.deepEqual(
        counts.rows.map(({ count }) => count),
        [2, 1, 1, 2],
      );
    });
  });
});

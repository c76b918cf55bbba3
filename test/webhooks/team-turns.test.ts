import assert from "node:assert/strict";
import { sql } from "kysely";
import { kysely } from "../../db/orm.ts";
import { transaction } from "../../db/transaction.ts";
import { newId } from "../../domain/ids.ts";
import { fanOut } from "../../domain/webhooks/fan-out.ts";
import { unstartedGroups } from "../../domain/webhooks/grouping.ts";
import { eventually } from "../support/eventually.ts";
import type { TestTeam } from "../support/factories.ts";
import { testsOf } from "../support/long.ts";
import { makeDatabase, type OwnDatabase } from "../support/own-database.ts";
import { openOwnRelay } from "../support/own-relay.ts";
import { makeEndpoint, makeTeam, PUBLIC_URL } from "../support/webhooks.ts";

const { it, longIt } = testsOf();

/** Events of one row at most. */
const ROW_EVENTS = 500;
const MEBIBYTE = 1024 * 1024;

describe("Changes of several teams in the outbox", () => {
  let own: OwnDatabase;
  let vault: TestTeam["vault"];
  before(async () => {
    own = await makeDatabase({ poolMax: 4 });
    ({ vault } = await makeTeam());
  });
  after(() => own.drop());
  afterEach(async () => {
    for (const table of [
      "webhook_outbox",
      "webhook_endpoints",
      "webhook_deliveries",
      "webhook_groups",
      "webhook_events",
    ]) {
      await sql`delete from ${sql.table(table)}`.execute(kysely(own.orm.em.fork()));
    }
  });

  async function makeListening(endpoints = 1): Promise<string> {
    const team = { id: newId("team") };
    const em = own.orm.em.fork();
    await sql`insert into teams (id, name, plan) values (${team.id}, 'Team', 'BUSINESS')`.execute(kysely(em));
    for (let n = 0; n < endpoints; n++) await makeEndpoint({ team, em, vault }, { url: PUBLIC_URL });
    return team.id;
  }

  /** Puts rows of a team into the outbox, each with so many events, and so many bytes more. */
  async function queue(teamId: string, rows: number, { events = 1, bytes = 0 } = {}): Promise<void> {
    await sql`insert into webhook_outbox (team_id, environment, type, objects)
      select ${teamId}, 'LIVE', 'newsletter.started', '[' || string_agg(
        '{"object":"newsletter","id":"nl_' || r || '_' || e || '","padding":"' || repeat('x', ${bytes}::int) || '"}', ',' order by e) || ']'
      from generate_series(1, ${rows}::int) r, generate_series(1, ${events}::int) e group by r order by r`.execute(
      kysely(own.orm.em.fork()),
    );
  }

  /** Events by team, and the rows that are left. */
  async function counts(...teams: string[]): Promise<[events: number, left: number][]> {
    const { rows } = await sql<{ events: number; left: number }>`
      select (select count(*)::int from webhook_events where team_id = t) as events,
        (select count(*)::int from webhook_outbox where team_id = t) as left
      from unnest(${teams}::text[]) with ordinality as u (t, n) order by n`.execute(kysely(own.orm.em.fork()));
    return rows.map(({ events, left }) => [events, left]);
  }

  /** Adds groups like the oldest one, with ids of their own, as if they had been formed earlier. */
  const copyGroup = (prefix: string, count: number, secondsAgo: number) =>
    sql`insert into webhook_groups select (jsonb_populate_record(g, jsonb_build_object('id', ${prefix}::text || n,
      'created_at', now() - make_interval(secs => ${secondsAgo}::int)))).*
      from webhook_groups g, generate_series(1, ${count}::int) n where g.id = (select min(id) from webhook_groups)`.execute(
      kysely(own.orm.em.fork()),
    );

  const takeBatch = (after?: string, leftOut?: string[]) => fanOut(own.orm.em.fork(), after, leftOut);

  /** Takes batches until nothing is left. */
  async function takeAll(from = ""): Promise<void> {
    for (let [batches, nextAfter, callAgain] = [1, from, true]; callAgain; batches++) {
      ({ nextAfter, callAgain } = await takeBatch(nextAfter));
      assert.ok(batches < 100, "it has no end");
    }
  }

  it("are taken in turns, each team's in order", async () => {
    const [many, few] = [await makeListening(), await makeListening()];
    await queue(many, 600);
    await queue(few, 2);
    assert.equal((await takeBatch()).callAgain, true);
    const [[taken, left] = [], ofFew] = await counts(many, few);
    assert.deepEqual(ofFew, [2, 0]);
    assert.deepEqual([taken, left], [498, 102]);
    await takeAll();
    assert.deepEqual(await counts(many), [[600, 0]]);
    const { rows } = await sql<{ object: string }>`
      select object from webhook_events where team_id = ${many} order by id`.execute(kysely(own.orm.em.fork()));
    assert.deepEqual(
      rows.map(({ object }) => JSON.parse(object).id),
      Array.from({ length: 600 }, (_, n) => `nl_${n + 1}_1`),
    );
  });

  it("are taken in larger numbers from a team with fewer endpoints", async () => {
    const [many, few] = [await makeListening(20), await makeListening()];
    await queue(many, 300);
    await queue(few, 300);
    await takeBatch();
    const [[ofMany = 0] = [], [ofFew = 0] = []] = await counts(many, few);
    // Each team has half of the 500 rows that a batch reads. Only the team with 20 endpoints is limited by the deliveries.
    assert.equal(ofFew, 250);
    assert.ok(ofMany >= 180 && ofMany < 200, `${ofMany} of the team with 20 endpoints`);
    await takeAll();
    assert.deepEqual(await counts(many, few), [
      [300, 0],
      [300, 0],
    ]);
  });

  it("get a turn although each row of other teams fills a batch", async () => {
    const teams = [await makeListening(20), await makeListening(20), await makeListening(), await makeListening()];
    const [, , ...small] = teams.toSorted();
    for (const team of teams)
      await queue(team, small.includes(team) ? 1 : 3, { events: small.includes(team) ? 1 : ROW_EVENTS });
    let nextAfter = "";
    for (let batches = 1; batches <= 3; batches++) ({ nextAfter } = await takeBatch(nextAfter));
    assert.deepEqual(await counts(...small), [
      [1, 0],
      [1, 0],
    ]);
    await takeAll();
    assert.deepEqual(
      (await counts(...teams)).map(([, left]) => left),
      [0, 0, 0, 0],
    );
  });

  it("are all taken from more than 50 teams, also when an earlier team makes another change", async () => {
    const teams = await Promise.all(Array.from({ length: 105 }, () => makeListening()));
    for (const team of teams) await queue(team, 1);
    const { nextAfter } = await takeBatch();
    const [first = ""] = teams.toSorted();
    assert.deepEqual(await counts(first), [[1, 0]]);
    await queue(first, 1);
    await takeAll(nextAfter);
    const expected = teams.map((team) => [team === first ? 2 : 1, 0]);
    assert.deepEqual(await counts(...teams), expected);
  });

  it("are taken up to 4 MiB a batch, and at least one", async () => {
    const [large, small] = [await makeListening(), await makeListening()];
    await queue(large, 10, { bytes: MEBIBYTE });
    await queue(large, 1, { bytes: 5 * MEBIBYTE });
    await queue(small, 1);
    const { taken, callAgain } = await takeBatch();
    assert.deepEqual([taken, callAgain], [4, true]);
    assert.deepEqual(await counts(small), [[1, 0]]);
    await takeAll();
    assert.deepEqual(await counts(large), [[11, 0]]);
  });

  it("do not wait for those that another transaction has locked", async () => {
    const [held, other] = [await makeListening(), await makeListening()];
    await queue(held, 600);
    await queue(other, 1);
    await transaction(own.orm.em.fork(), async (tx) => {
      await sql`select from webhook_outbox where team_id = ${held} order by seq limit 500 for update`.execute(
        kysely(tx),
      );
      await takeBatch();
      assert.deepEqual(await counts(held, other), [
        [100, 500],
        [1, 0],
      ]);
    });
  });

  it("wait while an endpoint of their team is deleted, and those of other teams do not", async () => {
    const [deleting, other] = [await makeListening(2), await makeListening()];
    await queue(deleting, 2);
    await queue(other, 1);
    await transaction(own.orm.em.fork(), async (tx) => {
      await sql`delete from webhook_endpoints where team_id = ${deleting} and id = (
        select min(id) from webhook_endpoints where team_id = ${deleting})`.execute(kysely(tx));
      const { taken, callAgain } = await takeBatch();
      assert.deepEqual([taken, callAgain], [1, false]);
      assert.deepEqual(await counts(deleting, other), [
        [0, 2],
        [1, 0],
      ]);
    });
    await takeAll();
    assert.deepEqual(await counts(deleting), [[2, 0]]);
    const { rows } = await sql<{ deliveries: number }>`
      select count(*)::int as deliveries from webhook_deliveries where team_id = ${deleting}`.execute(
      kysely(own.orm.em.fork()),
    );
    assert.deepEqual(rows, [{ deliveries: 2 }]);
  });

  it("wait behind one of their team that is no JSON array, and those of other teams do not", async () => {
    const [held, other] = [await makeListening(), await makeListening()];
    await queue(held, 1);
    const { rows } = await sql<{ seq: string }>`insert into webhook_outbox (team_id, environment, type, objects)
      select ${held}, 'LIVE', 'newsletter.started', o from unnest(array['[{"broken', '{}']) o returning seq`.execute(
      kysely(own.orm.em.fork()),
    );
    await queue(held, 2);
    await queue(other, 1);
    const relay = await openOwnRelay(own, { vault, workerId: "malformed", start: async () => undefined });
    await eventually(async () => (await counts(other))[0]?.[0] === 1, { what: "the other team's event" });
    await relay.close();
    assert.deepEqual(await counts(held), [[1, 4]]);
    for (const { seq } of rows) {
      assert.deepEqual([...(await takeBatch()).malformed], [[held, seq]]);
      await sql`delete from webhook_outbox where seq = ${seq}`.execute(kysely(own.orm.em.fork()));
    }
    await takeAll();
    assert.deepEqual(await counts(held), [[3, 0]]);
  });

  it("are left out for a while when one of their team is malformed", async () => {
    const [held, other] = [await makeListening(), await makeListening()];
    await sql`insert into webhook_outbox (team_id, environment, type, objects)
      values (${held}, 'LIVE', 'newsletter.started', '{}')`.execute(kysely(own.orm.em.fork()));
    await queue(held, 600);
    let failures = 0;
    const beganAt = performance.now();
    const relay = await openOwnRelay(own, {
      ...{ vault, workerId: "leaves out", countRelayFailure: () => failures++ },
      start: async () => undefined,
    });
    try {
      for (let n = 1; n <= 10; n++) {
        await queue(other, 1);
        relay.relay.wake();
        await eventually(async () => (await counts(other))[0]?.[0] === n, { what: `event ${n} of the other team` });
      }
    } finally {
      await relay.close();
    }
    const tries = 1 + (performance.now() - beganAt) / 10_000;
    assert.ok(failures >= 1 && failures <= tries, `${failures} times`);
    assert.deepEqual(await counts(held), [[0, 601]]);
    const { rows } = await sql<{ team_id: string }>`select team_id from webhook_outbox`.execute(
      kysely(own.orm.em.fork()),
    );
    assert.equal(rows.length, 601);
    await queue(other, 1);
    assert.deepEqual((await takeBatch("", [held, other])).taken, 0);
    assert.deepEqual(await takeBatch("", [held]).then(({ taken, callAgain }) => [taken, callAgain]), [1, false]);
  });

  it("are taken beyond 50 teams whose rows another transaction has locked", async () => {
    const teams = await Promise.all(Array.from({ length: 60 }, () => makeListening()));
    for (const team of teams) await queue(team, 1);
    const last = teams.toSorted().at(-1) ?? assert.fail();
    await transaction(own.orm.em.fork(), async (tx) => {
      await sql`select from webhook_outbox where team_id <> ${last} for update`.execute(kysely(tx));
      const { nextAfter, callAgain } = await takeBatch();
      assert.equal(callAgain, true);
      await takeBatch(nextAfter);
      assert.deepEqual(await counts(last), [[1, 0]]);
    });
  });

  for (const [when, isAnalyzed] of [
    ["once they are analyzed", true],
    ["before they are analyzed", false],
  ] as const) {
    it(`are read and deleted by an index, also those of a team that has few beside one with 10,000, ${when}`, async () => {
      const [many, few, leftOut] = [await makeListening(), await makeListening(), await makeListening()];
      await sql`vacuum webhook_outbox`.execute(kysely(own.orm.em.fork()));
      await own.orm.em.fork().transactional(async (tx) => {
        const insert = (team: string, rows: number) => sql`
          insert into webhook_outbox (team_id, environment, type, objects)
          select ${team}, 'LIVE', 'newsletter.started', '[{"object":"newsletter"}]' from generate_series(1, ${rows}::int)`;
        // The plans of a nearly empty outbox must not stay.
        for (let n = 0; n < 8; n++) {
          await insert(few, 1).execute(kysely(tx));
          assert.equal((await fanOut(tx)).taken, 1);
        }
        for (const team of [many, leftOut]) await insert(team, 10_000).execute(kysely(tx));
        if (isAnalyzed) await sql`analyze webhook_outbox`.execute(kysely(tx));
        await insert(few, 3).execute(kysely(tx));
        const readRows = async () => {
          const { rows } = await sql<{ read: number }>`select (seq_tup_read + idx_tup_fetch)::int as read
            from pg_stat_xact_user_tables where relname = 'webhook_outbox'`.execute(kysely(tx));
          return rows[0]?.read ?? 0;
        };
        const before = await readRows();
        assert.equal((await fanOut(tx, "", [leftOut])).taken, 500);
        const read = (await readRows()) - before;
        assert.ok(read >= 500 && read < 5_000, `${read} rows were read`);
        const { rows } = await sql`select from webhook_outbox where team_id = ${few}`.execute(kysely(tx));
        assert.equal(rows.length, 0);
      });
    });
  }

  it("are taken in turns by a relay too", async () => {
    const teams = [await makeListening(20), await makeListening(20), await makeListening(20)];
    const [first = "", second = "", last = ""] = teams.toSorted();
    for (const team of [first, second]) await queue(team, 3, { events: ROW_EVENTS });
    await queue(last, 1);
    const relay = await openOwnRelay(own, { vault, workerId: "turns", start: async () => undefined });
    try {
      await eventually(async () => (await counts(...teams)).every(([, left]) => left === 0), {
        what: "an empty outbox",
      });
    } finally {
      await relay.close();
    }
    const { rows } = await sql<{ earlier: boolean }>`
      select (select id from webhook_events where team_id = ${last}) < (select max(id) from webhook_events where team_id = ${first})
        as earlier`.execute(kysely(own.orm.em.fork()));
    assert.deepEqual(rows, [{ earlier: true }]);
  });

  longIt(
    "get their workflow from a sweep though hundreds of other groups were started and have not begun",
    async () => {
      const team = await makeListening();
      const started = new Set<string>();
      const relay = await openOwnRelay(own, {
        ...{ vault, workerId: "pages" },
        start: async (_workflow, { workflowId }) => started.add(workflowId),
      });
      try {
        await queue(team, 1);
        await eventually(() => started.size === 1, { what: "the start of a group" });
        await copyGroup("earlier", 450, 20);
        await eventually(() => started.size === 451, { what: "the start of the earlier ones" });
        await copyGroup("later", 1, 10);
        await eventually(() => started.size === 452, { what: "the start of the later one" });
      } finally {
        await relay.close();
      }
    },
  );

  longIt("get their workflow from the leader's sweep, and not from those of other relays too", async () => {
    const starts: string[] = [];
    const openOne = (workerId: string) =>
      openOwnRelay(own, {
        ...{ vault, workerId },
        start: async (_workflow, { workflowId }) => starts.push(`${workerId} ${workflowId}`),
      });
    const leader = await openOne("leader");
    await eventually(() => leader.relay.isLeader, { what: "the leader" });
    const follower = await openOne("follower");
    try {
      await queue(await makeListening(), 1);
      await eventually(() => starts.length === 1, { what: "the start of a group" });
      // The follower sweeps as often, so at least once meanwhile.
      for (let n = 1; n <= 3; n++) {
        await copyGroup(`sweep ${n} `, 1, 20);
        await eventually(() => starts.some((start) => start.includes(`sweep ${n} `)), { what: `sweep ${n}` });
      }
    } finally {
      await follower.close();
      await leader.close();
    }
    assert.deepEqual(
      starts.filter((start) => !start.startsWith("leader ")),
      [],
    );
  });

  it("are swept after the deliveries of tests", async () => {
    await queue(await makeListening(), 1);
    await takeAll();
    for (const prefix of ["first", "test", "last"]) await copyGroup(prefix, 201, 20);
    const em = own.orm.em.fork();
    await sql`update webhook_groups set lane = 'TEST' where id like 'test%'`.execute(kysely(em));
    const ids: string[] = [];
    for await (const { id } of unstartedGroups(em)) ids.push(id);
    assert.equal(new Set(ids).size, 603);
    assert.ok(ids.slice(0, 201).every((id) => id.startsWith("test")));
  });

  it("are taken while the workflows of another team's groups are being started", async () => {
    const [starting, other] = [await makeListening(20), await makeListening()];
    const answer = Promise.withResolvers<undefined>();
    let starts = 0;
    const relay = await openOwnRelay(own, {
      ...{ vault, workerId: "continues" },
      start: () => {
        starts++;
        return answer.promise;
      },
    });
    try {
      await queue(starting, 1);
      await eventually(() => starts >= 16, { what: "as many starts as are made at once" });
      await queue(other, 1);
      relay.relay.wake();
      await eventually(async () => (await counts(other))[0]?.[0] === 1, { what: "the other team's event" });
    } finally {
      answer.resolve(undefined);
      await relay.close();
    }
  });

  longIt("get one start of their workflow when a sweep and a pass both come to their group", async () => {
    const team = await makeListening(20);
    const started: string[] = [];
    const replays: string[] = [];
    const answer = Promise.withResolvers<undefined>();
    const relay = await openOwnRelay(own, {
      ...{ vault, workerId: "once" },
      start: (workflow, { workflowId }) => {
        if (workflow === "webhookReplayWorkflow") return Promise.resolve(replays.push(workflowId));
        started.push(workflowId);
        return answer.promise;
      },
    });
    try {
      await queue(team, 1);
      await eventually(() => started.length >= 16, { what: "as many starts as are made at once" });
      await sql`update webhook_groups set created_at = now() - interval '10 seconds'`.execute(
        kysely(own.orm.em.fork()),
      );
      // A sweep comes to groups before replays. The one that starts replay 1 may have read the groups before they aged. The one that
      // starts replay 2 began later, so it has looked at them.
      for (const id of ["replay 1", "replay 2"]) {
        await sql`insert into webhook_replays (id, statuses, since, until, per_second, total)
          values (${id}, '{FAILED}', now(), now(), 1, 0)`.execute(kysely(own.orm.em.fork()));
        await eventually(() => replays.some((workflowId) => workflowId.includes(id)), { what: `the start of ${id}` });
      }
      answer.resolve(undefined);
      await eventually(() => new Set(started).size === 20, { what: "the other starts" });
    } finally {
      answer.resolve(undefined);
      await relay.close();
      await sql`delete from webhook_replays`.execute(kysely(own.orm.em.fork()));
    }
    assert.equal(started.length, 20, started.join(", "));
  });

  it("get their workflow from a sweep only if it was not started", async () => {
    const team = await makeListening();
    const started: string[] = [];
    const relay = await openOwnRelay(own, {
      ...{ vault, workerId: "sweeps" },
      start: async (_workflow, { workflowId }) => started.push(workflowId),
    });
    try {
      await queue(team, 1);
      await eventually(() => started.length === 1, { what: "the start of a group" });
      // A sweep looks at the one that was started before it comes to the other one.
      await sql`update webhook_groups set created_at = now() - interval '20 seconds'`.execute(
        kysely(own.orm.em.fork()),
      );
      await copyGroup("other", 1, 10);
      await eventually(() => started.some((id) => id.endsWith("other1")), { what: "the start of the other one" });
      assert.equal(started.length, 2, started.join(", "));
    } finally {
      await relay.close();
    }
  });
});

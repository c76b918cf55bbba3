import assert from "node:assert/strict";
import { sql } from "kysely";
import { kysely } from "../../db/orm.ts";
import { transaction } from "../../db/transaction.ts";
import { newId } from "../../domain/ids.ts";
import { fanOut } from "../../domain/webhooks/fan-out.ts";
import { eventually } from "../support/eventually.ts";
import type { TestTeam } from "../support/factories.ts";
import { makeDatabase, type OwnDatabase } from "../support/own-database.ts";
import { openOwnRelay } from "../support/own-relay.ts";
import { makeEndpoint, makeTeam, PUBLIC_URL } from "../support/webhooks.ts";

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
    for (const table of ["webhook_outbox", "webhook_endpoints", "webhook_deliveries", "webhook_events"]) {
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

  async function counts(...teams: string[]): Promise<[events: number, left: number][]> {
    const { rows } = await sql<{ events: number; left: number }>`
      select (select count(*)::int from webhook_events where team_id = t) as events,
        (select count(*)::int from webhook_outbox where team_id = t) as left
      from unnest(${teams}::text[]) with ordinality as u (t, n) order by n`.execute(kysely(own.orm.em.fork()));
    return rows.map(({ events, left }) => [events, left]);
  }

  const takeBatch = (after = "") => fanOut(own.orm.em.fork(), after);

  async function takeAll(after = ""): Promise<void> {
    for (let batches = 1; ; batches++) {
      const { taken, lastTeam } = await takeBatch(after);
      if (taken === 0 && after === "") return;
      after = lastTeam;
      assert.ok(batches < 100, "it has no end");
    }
  }

  it("are written in time that grows with their number: a batch of 8,000 must not hold up other teams", async () => {
    const team = await makeListening();
    await queue(team, 16, { events: ROW_EVENTS, bytes: 60 });
    const beganAt = performance.now();
    assert.equal((await takeBatch()).taken, 16);
    // It takes half a second, or 10 when each row is read once for each of its events.
    assert.ok(performance.now() - beganAt < 5_000);
    assert.deepEqual(await counts(team), [[16 * ROW_EVENTS, 0]]);
  });

  it("are taken in turns, each team's in order", async () => {
    const [many, few] = [await makeListening(), await makeListening()];
    await queue(many, 600);
    await queue(few, 2);
    await takeBatch();
    const [ofMany, ofFew] = await counts(many, few);
    assert.deepEqual(ofFew, [2, 0]);
    assert.deepEqual(ofMany, [250, 350], "an equal share of a batch");
    await takeAll();
    assert.deepEqual(await counts(many), [[600, 0]]);
    const { rows } = await sql<{ object: string }>`
      select object from webhook_events where team_id = ${many} order by id`.execute(kysely(own.orm.em.fork()));
    assert.deepEqual(
      rows.map(({ object }) => JSON.parse(object).id),
      Array.from({ length: 600 }, (_, n) => `nl_${n + 1}_1`),
    );
  });

  it("get a turn although each row of other teams fills a batch", async () => {
    const teams = [await makeListening(20), await makeListening(20), await makeListening(), await makeListening()];
    const [, , ...small] = teams.toSorted();
    for (const team of teams)
      await queue(team, small.includes(team) ? 1 : 3, { events: small.includes(team) ? 1 : ROW_EVENTS, bytes: 200 });
    let after = "";
    for (let batches = 1; batches <= 3; batches++) after = (await takeBatch(after)).lastTeam;
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
    const { lastTeam } = await takeBatch();
    const [first = ""] = teams.toSorted();
    assert.deepEqual(await counts(first), [[1, 0]]);
    await queue(first, 1);
    await takeAll(lastTeam);
    const expected = teams.map((team) => [team === first ? 2 : 1, 0]);
    assert.deepEqual(await counts(...teams), expected);
  });

  it("are taken up to 2 MiB a batch, and at least one", async () => {
    const [large, small] = [await makeListening(), await makeListening()];
    await queue(large, 10, { bytes: MEBIBYTE });
    await queue(large, 1, { bytes: 5 * MEBIBYTE });
    await queue(small, 1);
    assert.equal((await takeBatch()).taken, 2);
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

  it("are taken while the workflows of another team's endpoints are being started", async () => {
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
      await eventually(async () => (await counts(other))[0]?.[0] === 1, { what: "the other team's event" });
    } finally {
      answer.resolve(undefined);
      await relay.close();
    }
  });

  it("have the workflow of their endpoint started once, by a sweep too only after a while", async () => {
    const started: string[] = [];
    const relay = await openOwnRelay(own, {
      ...{ vault, workerId: "sweeps" },
      start: async (_workflow, { workflowId }) => started.push(workflowId),
    });
    const [lost, mine] = [await makeListening(), await makeListening()];
    try {
      await queue(mine, 1);
      await eventually(() => started.length === 1, { what: "the start of an endpoint" });
      // As if a relay had died between its commit and the start.
      await queue(lost, 1);
      await takeBatch();
      await sql`update webhook_deliveries set next_attempt_at = now() - interval '10 seconds'`.execute(
        kysely(own.orm.em.fork()),
      );
      await eventually(() => new Set(started).size === 2, { what: "the start of the other one" });
      assert.equal(started.length, 2, started.join(", "));
    } finally {
      await relay.close();
    }
  });
});

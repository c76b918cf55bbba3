import assert from "node:assert/strict";
import type { Client } from "@temporalio/client";
import { sql } from "kysely";
import { type EntityManager, kysely } from "../../db/orm.ts";
import { transaction } from "../../db/transaction.ts";
import { LEASE_SECONDS, releaseRelayLease, takeRelayLease } from "../../domain/webhooks/relay-lease.ts";
import { MOST_FAILED_STARTS } from "../../workers/outbox-relay.ts";
import { eventually } from "../support/eventually.ts";
import type { TestTeam } from "../support/factories.ts";
import { testsOf } from "../support/long.ts";
import { makeDatabase, type OwnDatabase } from "../support/own-database.ts";
import { openOwnRelay } from "../support/own-relay.ts";
import { startWorker, type TestWorker } from "../support/processes.ts";
import { RECEIVER_HOSTS, type Receiver } from "../support/receiver.ts";
import { emitSome, makeEndpoint, makeTeam, PUBLIC_URL } from "../support/webhooks.ts";
import { receivingBesideTemporal, setHealth, workflowOf } from "./observing.ts";

const { it, longIt } = testsOf();

/** The holder of a lease that has not expired, and the seconds that are left of it. */
async function readLeader(em: EntityManager) {
  const { rows } = await sql<{ holder: string; seconds: number }>`
    select holder, extract(epoch from expires_at - now())::float8 as seconds from webhook_relay_lease
    where expires_at > now()`.execute(kysely(em.fork()));
  return rows[0];
}

describe("The lease of the relays' work", () => {
  let own: OwnDatabase;
  before(async () => {
    own = await makeDatabase({ poolMax: 4 });
  });
  after(() => own.drop());
  beforeEach(() => sql`delete from webhook_relay_lease`.execute(kysely(own.orm.em)));

  const take = (holder: string) => takeRelayLease(own.orm.em.fork(), holder);
  const setExpiry = (seconds: number) =>
    sql`update webhook_relay_lease set expires_at = now() + make_interval(secs => ${seconds}::float8)`.execute(
      kysely(own.orm.em),
    );

  it("goes to one relay, which keeps it until it releases it", async () => {
    const taken = await Promise.all(["a", "b", "c"].map(take));
    const holder = ["a", "b", "c"][taken.indexOf(true)] ?? assert.fail("no relay took it");
    const other = holder === "a" ? "b" : "a";
    assert.equal(taken.filter(Boolean).length, 1);
    const leader = (await readLeader(own.orm.em)) ?? assert.fail("it has expired");
    assert.equal(leader.holder, holder);
    const { seconds } = leader;
    assert.ok(seconds > LEASE_SECONDS / 2 && seconds <= LEASE_SECONDS, `${seconds} s`);
    assert.equal(await take(other), false);
    await setExpiry(LEASE_SECONDS / 4);
    assert.equal(await take(holder), true);
    assert.ok(((await readLeader(own.orm.em))?.seconds ?? 0) > LEASE_SECONDS / 2, "it is renewed");
    await releaseRelayLease(own.orm.em.fork(), other);
    assert.equal(await take(other), false, "another one's lease is not released");
    await releaseRelayLease(own.orm.em.fork(), holder);
    assert.equal(await take(other), true);
    assert.equal(await take(holder), false);
  });

  for (const [name, seconds] of [
    ["it has expired", -0.001],
    ["its expiry is far ahead, as after a failover from a server whose clock was ahead", LEASE_SECONDS * 100],
  ] as const) {
    it(`goes to another relay when ${name}`, async () => {
      await take("a");
      await setExpiry(seconds);
      assert.equal(await take("b"), true);
      assert.equal(await take("a"), false);
    });
  }

  it("is held in the moment in which it is taken, and free in the one in which it is released", async () => {
    for (let n = 0; n < 50; n++) {
      const [holder, other] = [`holder ${n}`, `other ${n}`];
      await sql`delete from webhook_relay_lease`.execute(kysely(own.orm.em));
      // A transaction is one moment, by its clock; the column rounds it up or down.
      await transaction(own.orm.em, async (tx) => {
        assert.equal(await takeRelayLease(tx, holder), true);
        assert.equal(await takeRelayLease(tx, other), false);
        await releaseRelayLease(tx, holder);
        assert.equal(await takeRelayLease(tx, other), true);
      });
    }
  });

  it("is not written by a relay that asks in vain", async () => {
    await take("a");
    const { rows: before } = await sql`select xmin::text, xmax::text from webhook_relay_lease`.execute(
      kysely(own.orm.em),
    );
    assert.equal(await take("b"), false);
    const { rows } = await sql`select xmin::text, xmax::text from webhook_relay_lease`.execute(kysely(own.orm.em));
    assert.deepEqual(rows, before);
  });

  longIt(
    "stays through single failed starts, and moves when no workflow can be started, and when the leader stops",
    async () => {
      const { team, vault } = await makeTeam();
      const em = own.orm.em.fork();
      await sql`insert into teams (id, name, plan) values (${team.id}, 'Team', 'BUSINESS')`.execute(kysely(em));
      const makeOne = () => makeEndpoint({ team, em, vault }, { url: PUBLIC_URL });
      for (let n = 1; n < MOST_FAILED_STARTS; n++) await makeOne();
      const untilLeader = (holder: string) =>
        eventually(async () => (await readLeader(em))?.holder === holder, { what: `${holder} to lead` });

      let [tried, started] = [0, 0];
      const broken = await openOwnRelay(own, {
        ...{ vault, workerId: "broken" },
        start: () => {
          tried++;
          return Promise.reject(new Error("no cluster"));
        },
      });
      await untilLeader("broken");
      const working = await openOwnRelay(own, { vault, workerId: "working", start: async () => started++ });
      try {
        await emitSome({ team, em }, 1);
        broken.relay.wake();
        await eventually(() => tried === MOST_FAILED_STARTS - 1, { what: "single starts to fail" });
        assert.deepEqual([broken.relay.isLeader, working.relay.isLeader], [true, false]);
        await makeOne();
        await emitSome({ team, em }, 1);
        broken.relay.wake();
        await eventually(() => working.relay.isLeader, { what: "the working relay to lead" });
        assert.equal(broken.relay.isLeader, false);
        assert.equal((await readLeader(em))?.holder, "working");
        await eventually(() => started >= MOST_FAILED_STARTS, { what: "the groups to be started" });
        await working.close();
        assert.notEqual((await readLeader(em))?.holder, "working", "a relay that stops releases it");
        await untilLeader("broken");
      } finally {
        await Promise.all([broken.close(), working.close()]);
      }
    },
  );

  longIt("moves when the starts of workflows hang, and the next leader starts them", async () => {
    const { team, vault } = await makeTeam();
    const em = own.orm.em.fork();
    await sql`insert into teams (id, name, plan) values (${team.id}, 'Team', 'BUSINESS')`.execute(kysely(em));
    for (let n = 0; n < 20; n++) await makeEndpoint({ team, em, vault }, { url: PUBLIC_URL });
    // A sweep would find those of the test before.
    for (const table of ["webhook_deliveries", "webhook_groups"])
      await sql`delete from ${sql.table(table)}`.execute(kysely(em));
    const answer = Promise.withResolvers<undefined>();
    let tried = 0;
    const started = new Set<string>();
    const silent = await openOwnRelay(own, {
      ...{ vault, workerId: "silent" },
      start: () => {
        tried++;
        return answer.promise;
      },
    });
    await eventually(() => silent.relay.isLeader, { what: "the silent relay to lead" });
    const working = await openOwnRelay(own, {
      ...{ vault, workerId: "working" },
      start: async (_workflow, { workflowId }) => started.add(workflowId),
    });
    try {
      await emitSome({ team, em }, 1);
      silent.relay.wake();
      await eventually(() => tried === 16, { what: "as many starts as are made at once" });
      await eventually(() => working.relay.isLeader, { what: "the working relay to lead" });
      await eventually(() => started.size === 20, { what: "the starts by the working relay" });
      assert.equal(tried, 16, "the silent relay starts none of those that waited");
    } finally {
      answer.resolve(undefined);
      await Promise.all([silent.close(), working.close()]);
    }
  });
});

describe("Two webhooks processes", () => {
  let receiver: Receiver;
  let temporal: Client;
  let team: TestTeam;
  let second: TestWorker;
  receivingBesideTemporal((givenReceiver, client) => {
    receiver = givenReceiver;
    temporal = client;
  });
  before(async () => {
    team = await makeTeam();
    second = await startWorker("webhooks", { WEBHOOK_ALLOWED_HOSTS: RECEIVER_HOSTS.join(",") });
  });
  after(() => second?.stop());

  it("begin new groups in the leader's process, while it has a processor to spare", async () => {
    const endpoints = await Promise.all(Array.from({ length: 10 }, () => makeEndpoint(team, { url: receiver.origin })));
    await Promise.all(endpoints.map(({ id }) => setHealth(team, id, { last_success_at: new Date() })));
    let [leader, rounds]: [string | undefined, number] = [undefined, 0];
    let holder = (await readLeader(team.em))?.holder;
    // On a machine that stands still for seconds the lease moves to the other process: then another round is needed.
    while (leader === undefined) {
      assert.ok(rounds < 10, "no round had one leader");
      await emitSome(team, 1);
      rounds++;
      const arrived = () => receiver.received.length === rounds * endpoints.length;
      await eventually(arrived, { what: "the deliveries" });
      const [before, after] = [holder, (await readLeader(team.em))?.holder];
      if (before === after) leader = after;
      holder = after;
    }
    const { rows } = await sql<{ group_id: string }>`
      select group_id from webhook_deliveries where team_id = ${team.team.id}
      order by id desc limit ${endpoints.length}`.execute(kysely(team.em));
    assert.equal(rows.length, endpoints.length);
    for (const row of rows) {
      const { events } = await workflowOf(temporal, row).fetchHistory();
      const [identity] = (events ?? []).flatMap(({ workflowTaskStartedEventAttributes: task }) => task?.identity ?? []);
      assert.equal(identity, leader);
    }
  });
});

import assert from "node:assert/strict";
import { sql } from "kysely";
import { kysely } from "../../db/orm.ts";
import { MOST_TAKEN } from "../../domain/webhooks/take-more.ts";
import { eventually } from "../support/eventually.ts";
import { kill, pidOf, startWorker, type TestWorker } from "../support/processes.ts";
import { openReceiver, RECEIVER_HOSTS, type Receiver } from "../support/receiver.ts";
import { SEED } from "../support/seed.ts";
import { emitSome } from "../support/webhooks.ts";
import {
  emitMany,
  giveUpRequests,
  inTheMiddle,
  LONG_MS,
  openScene,
  type Scene,
  somewhere,
  tally,
  underWay,
  untilArrived,
  untilOver,
  working,
} from "./kills.ts";

const ENDPOINTS = 5;
/** Deliveries of one group without an outcome, and groups at their first attempt of an endpoint: a kill makes no more unknown. */
const MOST_IN_FLIGHT = ENDPOINTS * 6 * MOST_TAKEN;
const AMOUNT = { events: 2_000, throughApi: 300 };

/** A second worker beside the stack's, that may deliver where the stack's may. */
const anotherWorker = (): Promise<TestWorker> =>
  startWorker("webhooks", {
    WEBHOOK_ALLOWED_HOSTS: RECEIVER_HOSTS.join(","),
    WEBHOOK_LADDER_SECONDS: "0,1,1,2",
    WEBHOOK_TIMEOUT_MS: "3000",
    SHUTDOWN_GRACE_MS: "15000",
  });

/** Makes the relay of a worker the leader: the relay of the other worker loses its lease. */
async function makeLeader({ team }: Scene, { pid }: TestWorker): Promise<void> {
  const isLeader = async () => {
    const db = kysely(team.em.fork());
    await sql`update webhook_relay_lease set expires_at = now() where holder not like ${`%-${pid}-%`}`.execute(db);
    const lease = await db.selectFrom("webhook_relay_lease").select("holder").executeTakeFirst();
    return lease?.holder.includes(`-${pid}-`);
  };
  await eventually(isLeader, { what: "the second worker's relay to lead" });
}

/** Stops a worker at a moment at which it holds locks. */
async function freezeInTransaction({ team }: Scene, worker: TestWorker): Promise<void> {
  const idle = async () => {
    const { rows } = await sql<{ began: string }>`select pid || ' ' || xact_start as began from pg_stat_activity
      where datname = current_database() and state = 'idle in transaction'`.execute(kysely(team.em.fork()));
    return rows.map(({ began }) => began);
  };
  const held = async () => {
    worker.signal("SIGSTOP");
    let same = await idle();
    // A process that is not frozen ends its transaction within a few looks.
    for (let look = 0; look < 40 && same.length > 0; look++) {
      const now = new Set(await idle());
      same = same.filter((one) => now.has(one));
    }
    if (same.length === 0) worker.signal("SIGCONT");
    return same.length > 0;
  };
  await eventually(held, { withinMs: LONG_MS, what: "a transaction of the worker that is to freeze" });
}

describe(`2,000 events to 5 endpoints (SEED=${SEED})`, function () {
  this.timeout(2 * LONG_MS);
  let receiver: Receiver;
  let scene: Scene;
  let worker: TestWorker | undefined;
  beforeEach(async () => {
    receiver = await openReceiver();
    scene = await openScene(receiver, working(ENDPOINTS));
  });
  afterEach(async () => {
    await worker?.stop();
    worker = undefined;
    await receiver.close();
  });

  it("all arrive when the worker is killed in the middle; only events in flight come twice", async () => {
    const { unknown } = await inTheMiddle(scene, { ...AMOUNT, purpose: 1 }, () => kill("webhooks").again);
    assert.ok(unknown <= MOST_IN_FLIGHT, `${unknown} unknown`);
  });

  it("all arrive when the relay is killed after its claims and before their workflows were started", async () => {
    // More groups than a relay starts at once: it has not started some of them before the kill.
    const held = 600;
    // One that is known to answer gets several groups.
    await sql`update webhook_health set last_success_at = now() where webhook_id in (
      select id from webhook_endpoints where team_id = ${scene.team.team.id})`.execute(kysely(scene.team.em.fork()));
    const temporal = pidOf("temporal");
    process.kill(temporal, "SIGSTOP");
    let again: Promise<unknown>;
    try {
      await emitSome({ team: scene.team.team, em: scene.team.em.fork() }, held);
      await eventually(async () => (await underWay(scene)).groups > 16, { what: "the claims" });
      assert.equal(scene.pairs(), 0);
      ({ again } = kill("webhooks"));
    } finally {
      process.kill(temporal, "SIGCONT");
    }
    await again;
    const { events, unknown } = await tally(scene);
    assert.equal(events.length, held);
    assert.ok(unknown <= MOST_IN_FLIGHT, `${unknown} unknown`);
  });

  for (const [name, how, signal, purpose] of [
    ["temporal", "killed", "SIGKILL", 2],
    ["postgres", "killed", "SIGKILL", 3],
    ["postgres", "restarted", "SIGINT", 4],
  ] as const) {
    it(`all arrive when ${name === "temporal" ? "Temporal" : "Postgres"} is ${how} in the middle`, async () => {
      const before = pidOf("webhooks");
      const { unknown } = await inTheMiddle(scene, { ...AMOUNT, purpose }, async () => {
        await kill(name, signal).again;
        await giveUpRequests(scene);
      });
      assert.ok(unknown <= MOST_IN_FLIGHT, `${unknown} unknown`);
      assert.equal(pidOf("webhooks"), before, "the worker outlives it");
    });
  }

  it("come once each from two workers when none is killed", async () => {
    worker = await anotherWorker();
    const { duplicates, unknown, tooSlow } = await inTheMiddle(scene, { ...AMOUNT, purpose: 5 }, () => undefined);
    assert.equal(unknown, 0);
    assert.ok(duplicates <= tooSlow, `${duplicates} duplicates`);
  });

  it("all arrive when one of two workers is killed in the middle", async () => {
    const doomed = await anotherWorker();
    worker = doomed;
    await makeLeader(scene, doomed);
    const { unknown } = await inTheMiddle(scene, { ...AMOUNT, purpose: 6 }, () => doomed.signal("SIGKILL"));
    assert.ok(unknown <= MOST_IN_FLIGHT, `${unknown} unknown`);
  });

  it("all arrive while one of two workers is frozen in a transaction, which then continues", async () => {
    const frozen = await anotherWorker();
    worker = frozen;
    await makeLeader(scene, frozen);
    const { unknown } = await inTheMiddle(scene, { ...AMOUNT, purpose: 10 }, async () => {
      await freezeInTransaction(scene, frozen);
      await untilOver(scene);
      frozen.signal("SIGCONT");
    });
    assert.ok(unknown <= MOST_IN_FLIGHT, `${unknown} unknown`);
  });

  it("come once each when the worker is asked to stop in the middle", async () => {
    const { duplicates, unknown, tooSlow } = await inTheMiddle(
      scene,
      { ...AMOUNT, purpose: 7 },
      () => kill("webhooks", "SIGTERM").again,
    );
    assert.equal(unknown, 0);
    assert.ok(duplicates <= tooSlow, `${duplicates} duplicates`);
  });
});

describe(`An endpoint that hangs (SEED=${SEED})`, function () {
  this.timeout(2 * LONG_MS);
  let receiver: Receiver;
  before(async () => {
    receiver = await openReceiver();
  });
  after(() => receiver.close());

  it("does not delay the others, while the worker is killed", async () => {
    const scene = await openScene(receiver, ["hangs", ...working(4)]);
    const others = scene.endpoints.slice(1);
    const events = 500;
    const emitting = emitMany(scene, events, 8);
    emitting.catch(() => undefined);
    await untilArrived(scene, somewhere(events * others.length, 8));
    await kill("webhooks").again;
    await emitting;
    const { unknown } = await tally(scene, others);
    assert.ok(unknown <= MOST_IN_FLIGHT, `${unknown} unknown`);
  });
});

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import fc from "fast-check";
import { sql } from "kysely";
import { kysely } from "../../db/orm.ts";
import type { EventName } from "../../domain/webhooks/catalogue.ts";
import { type ApiAnswer, type ApiClient, api } from "../support/api.ts";
import { eventually } from "../support/eventually.ts";
import { unique } from "../support/factories.ts";
import { isLong } from "../support/long.ts";
import { kill } from "../support/processes.ts";
import { type Behaviour, openReceiver, type Receiver } from "../support/receiver.ts";
import { SEED } from "../support/seed.ts";
import { emitSome, makeEndpoint, makeTeam } from "../support/webhooks.ts";

/** Events of a scene, those of them through the API, its endpoints, and changes while an API is killed. */
const SIZE = isLong()
  ? { events: 2_000, throughApi: 300, endpoints: 5, changes: 300 }
  : { events: 200, throughApi: 20, endpoints: 3, changes: 60 };
/** Deliveries of an endpoint that are in flight or claimed to be sent next: a kill makes no more unknown. */
const MOST_IN_FLIGHT = SIZE.endpoints * 2 * 128;

/** Shared machines are slow at times; nothing here measures. */
const LONG_MS = 240_000;

/** Requests that create subscribers at once. */
const CLIENTS_AT_ONCE = 16;

const LISTENED = ["newsletter.started", "subscriber.created"] satisfies EventName[];

/** Why a row is closed that no endpoint refused: the service was cut off, or a busy machine was too slow to answer. */
const UNKNOWN = /outcome is unknown/;
const TOO_SLOW = /within \d+ s/;

interface Endpoint {
  id: string;
  path: string;
}

type TestTeam = Awaited<ReturnType<typeof makeTeam>>;

/** A team with endpoints at one receiver, and the arrivals there. */
interface Scene {
  team: TestTeam;
  client: ApiClient;
  endpoints: Endpoint[];
  /** By path, then by event: the delivery ids it came under. */
  arrived: Map<string, Map<string, string[]>>;
  /** Pairs of event and endpoint that arrived. */
  pairs(): number;
  /** Leaves requests without an answer, once so many pairs have arrived. @returns answers them and all that follow */
  holdAnswers(fromPairs: number): () => void;
}

const answered: Behaviour = (_, response) => void response.writeHead(204).end();

async function openScene(receiver: Receiver, paths: readonly string[]): Promise<Scene> {
  const team = await makeTeam();
  const endpoints: Endpoint[] = [];
  const arrived: Scene["arrived"] = new Map();
  for (const name of paths) {
    const path = `/${unique(name)}`;
    const { id } = await makeEndpoint(team, { url: `${receiver.origin}${path}`, events: LISTENED });
    endpoints.push({ id, path });
    arrived.set(path, new Map());
  }
  let held = { fromPairs: Number.POSITIVE_INFINITY, until: Promise.resolve() };
  receiver.behave = async (received, response, request) => {
    const events = arrived.get(received.path);
    const event = String(received.headers["x-service-event-id"]);
    const delivery = String(received.headers["x-service-delivery-id"]);
    events?.set(event, [...(events.get(event) ?? []), delivery]);
    if (pairs() >= held.fromPairs) await held.until;
    answered(received, response, request);
  };
  const pairs = () => [...arrived.values()].reduce((sum, events) => sum + events.size, 0);
  const holdAnswers = (fromPairs: number) => {
    const { promise, resolve } = Promise.withResolvers<void>();
    held = { fromPairs, until: promise };
    return resolve;
  };
  return { team, client: api(team.keys.live), endpoints, arrived, pairs, holdAnswers };
}

const working = (count: number) => Array.from({ length: count }, (_, i) => `working${i}`);

/** Random numbers that SEED decides, one row of them for each purpose. */
function chance<T>(arbitrary: fc.Arbitrary<T>, count: number, purpose: number): T[] {
  return fc.sample(arbitrary, { seed: SEED + purpose, numRuns: count });
}

/** Between a fifth and four fifths of the deliveries. */
const somewhere = (deliveries: number, purpose: number): number =>
  Math.round((deliveries * (chance(fc.integer({ min: 20, max: 80 }), 1, purpose)[0] ?? 50)) / 100);

/** Changes in many small transactions; one that failed, perhaps at its commit, may have taken place. */
async function emitMany({ team }: Scene, events: number, purpose: number): Promise<{ unanswered: Set<number> }> {
  const unanswered = new Set<number>();
  const sizes = chance(fc.integer({ min: 1, max: 20 }), events, purpose);
  for (let from = 0, i = 0; from < events; i++) {
    const count = Math.min(sizes[i] ?? 1, events - from);
    await emitSome({ team: team.team, em: team.em.fork() }, count, "newsletter.started", from).catch(async () => {
      for (let n = from; n < from + count; n++) unanswered.add(n);
      await eventually(() => sql`select`.execute(kysely(team.em.fork())), { withinMs: LONG_MS, what: "Postgres" });
    });
    from += count;
  }
  return { unanswered };
}

/** Answers that say "again". */
const isPassing = ({ status, body }: ApiAnswer): boolean =>
  status >= 500 || status === 429 || body?.error?.code === "request_in_flight";

interface Created {
  id: string;
  email: string;
  /** The request was sent more than once, under its one key. */
  retried: boolean;
}

/** Subscribers through the API, 16 requests in flight, each tried under its Idempotency-Key until it has its 201. */
async function createMany({ client }: Scene, count: number, onCreated?: (done: number) => void): Promise<Created[]> {
  const audience = `${unique("people")}.example`;
  const created: Created[] = [];
  const numbers = Array.from({ length: count }, (_, n) => n)[Symbol.iterator]();
  const lane = async () => {
    for (const n of numbers) {
      const email = `person${n}@${audience}`;
      const idempotencyKey = randomUUID();
      let tries = 0;
      const id = await eventually(
        async () => {
          tries++;
          const answer = await client.post("/subscribers", { email }, { idempotencyKey });
          if (isPassing(answer)) throw new Error(answer.text);
          assert.equal(answer.status, 201, answer.text);
          return answer.body.data.id as string;
        },
        { withinMs: LONG_MS, what: `the 201 of ${email}` },
      );
      created.push({ id, email, retried: tries > 1 });
      onCreated?.(created.length);
    }
  };
  await Promise.all(Array.from({ length: CLIENTS_AT_ONCE }, lane));
  return created;
}

/** Ages the locks of requests that died: the API takes them over after 90 s, which no test waits for. */
const giveUpRequests = ({ team }: Scene) =>
  eventually(
    () =>
      sql`update idempotency_records set locked_at = locked_at - interval '90 seconds'
        where team_id = ${team.team.id} and status is null`.execute(kysely(team.em.fork())),
    { withinMs: LONG_MS, what: "the locks of requests that died" },
  );

interface LogRow {
  id: string;
  webhook_id: string;
  event_id: string;
  attempt: number;
  status: string;
  error_message: string | null;
}

const readLog = async ({ team }: Scene): Promise<LogRow[]> => {
  const { rows } = await sql<LogRow>`select id, webhook_id, event_id, attempt, status, error_message
    from webhook_deliveries where team_id = ${team.team.id} order by webhook_id, event_id, attempt`.execute(
    kysely(team.em.fork()),
  );
  return rows;
};

const readEvents = async ({ team }: Scene): Promise<{ id: string; type: string; object: { id: string } }[]> => {
  const { rows } = await sql<{ id: string; type: string; object: { id: string } }>`
    select id, type, object::json as object from webhook_events where team_id = ${team.team.id}`.execute(
    kysely(team.em.fork()),
  );
  return rows;
};

/** How much of a team is on its way: rows of the outbox, and deliveries. */
async function underWay({ team, endpoints }: Scene, among: readonly Endpoint[] = endpoints) {
  const ids = among.map(({ id }) => id);
  const { rows } = await sql<{ outbox: number; waiting: number }>`select
    (select count(*)::int from webhook_outbox where team_id = ${team.team.id}) as outbox,
    (select count(*)::int from webhook_deliveries where webhook_id = any(${ids}::text[]) and next_attempt_at is not null)
      as waiting`.execute(kysely(team.em.fork()));
  const [row] = rows;
  assert.ok(row);
  return row;
}

const untilArrived = (scene: Scene, pairs: number, withinMs = LONG_MS) =>
  eventually(
    () => {
      if (scene.pairs() >= pairs) return true;
      throw new Error(`${scene.pairs()} of ${pairs}`);
    },
    { withinMs, what: `${pairs} deliveries` },
  );

const untilOver = (scene: Scene, among?: readonly Endpoint[]) =>
  eventually(
    async () => {
      const left = await underWay(scene, among);
      if (left.outbox + left.waiting === 0) return true;
      throw new Error(JSON.stringify(left));
    },
    { withinMs: LONG_MS, what: "the end of every delivery" },
  );

interface Tally {
  events: Awaited<ReturnType<typeof readEvents>>;
  /** Arrivals of events that had arrived before. */
  duplicates: number;
  /** Attempts that are closed as unknown. */
  unknown: number;
  /** Attempts that took the receiver longer than it has. */
  tooSlow: number;
}

/** For every arrival a row of its own, so that an event that came twice has the reason beside it. */
async function tally(scene: Scene, among: readonly Endpoint[] = scene.endpoints): Promise<Tally> {
  await untilOver(scene, among);
  const events = await readEvents(scene);
  const log = await readLog(scene);
  let [duplicates, unknown, tooSlow] = [0, 0, 0];
  for (const { id, path } of among) {
    const arrived = scene.arrived.get(path) ?? new Map<string, string[]>();
    const rows = Map.groupBy(
      log.filter(({ webhook_id }) => webhook_id === id),
      ({ event_id }) => event_id,
    );
    assert.deepEqual([...arrived.keys()].sort(), events.map((event) => event.id).sort(), `what arrived at ${path}`);
    assert.equal(rows.size, events.length, `events in the log of ${path}`);
    for (const [eventId, attempts] of rows) {
      const told = JSON.stringify({ attempts, arrived: arrived.get(eventId) });
      assert.deepEqual(
        attempts.map(({ attempt }) => attempt),
        attempts.map((_, i) => i + 1),
        told,
      );
      const last = attempts.at(-1);
      // A machine may be too slow at every attempt; then only the arrival counts.
      const final = last?.status === "FAILED" && TOO_SLOW.test(last.error_message ?? "") ? "FAILED" : "SUCCEEDED";
      assert.equal(last?.status, final, told);
      const deliveries = arrived.get(eventId) ?? [];
      assert.equal(new Set(deliveries).size, deliveries.length, `no delivery id came twice: ${told}`);
      assert.ok(final === "FAILED" || deliveries.includes(last?.id ?? ""), `the last of them arrived: ${told}`);
      const ids = new Set(attempts.map((row) => row.id));
      assert.ok(
        deliveries.every((delivery) => ids.has(delivery)),
        `every arrival is in the log: ${told}`,
      );
      for (const { status, error_message } of attempts.slice(0, -1)) {
        assert.equal(status, "FAILED", told);
        if (UNKNOWN.test(error_message ?? "")) unknown++;
        else if (TOO_SLOW.test(error_message ?? "")) tooSlow++;
        else assert.fail(told);
      }
      duplicates += deliveries.length - 1;
    }
  }
  assert.ok(duplicates <= unknown + tooSlow, `${duplicates} duplicates of ${unknown} unknown and ${tooSlow} slow`);
  return { events, duplicates, unknown, tooSlow };
}

/** Every change that was answered has its event, and one alone; one that was not has at most one. */
function assertEach({ events }: Tally, ids: readonly string[], unanswered: readonly string[] = []): void {
  const counts = new Map<string, number>();
  for (const { object } of events) counts.set(object.id, (counts.get(object.id) ?? 0) + 1);
  assert.deepEqual(
    ids.filter((id) => counts.get(id) !== 1),
    [],
    "changes without their one event",
  );
  const known = new Set([...ids, ...unanswered]);
  assert.deepEqual(
    [...counts.keys()].filter((id) => !known.has(id)),
    [],
    "events of no change",
  );
  assert.deepEqual(
    [...counts].filter(([, count]) => count > 1),
    [],
    "events that were made twice",
  );
}

/** Makes events of both kinds, and strikes with requests in flight, once a random share of the deliveries has arrived. */
async function inTheMiddle(scene: Scene, purpose: number, strike: () => unknown): Promise<Tally> {
  const { events, throughApi } = SIZE;
  const at = somewhere(events * scene.endpoints.length, purpose);
  const answerAll = scene.holdAnswers(at);
  const emitting = Promise.all([emitMany(scene, events - throughApi, purpose), createMany(scene, throughApi)]);
  // Waited for below.
  emitting.catch(() => undefined);
  await untilArrived(scene, at);
  const struck = strike();
  answerAll();
  await struck;
  const [{ unanswered }, created] = await emitting;
  const result = await tally(scene);
  const numbers = Array.from({ length: events - throughApi }, (_, n) => n);
  const id = (n: number) => `nl_${n}`;
  assertEach(
    result,
    [...numbers.filter((n) => !unanswered.has(n)).map(id), ...created.map((person) => person.id)],
    [...unanswered].map(id),
  );
  return result;
}

describe(`An API killed in the middle of ${SIZE.changes} changes (SEED=${SEED})`, function () {
  this.timeout(2 * LONG_MS);
  let receiver: Receiver;
  before(async () => {
    receiver = await openReceiver();
  });
  after(() => receiver.close());

  it("has accepted none without its event, and made one change and one event of each retried request", async () => {
    const scene = await openScene(receiver, working(2));
    const { changes } = SIZE;
    // Before the last requests have begun: at least one must find no API.
    const at = Math.min(somewhere(changes, 9), changes - CLIENTS_AT_ONCE - 1);
    let strike: Promise<unknown> | undefined;
    const created = await createMany(scene, changes, (done) => {
      if (done < at || strike) return;
      const { again } = kill("api");
      strike = again.then(() => giveUpRequests(scene));
    });
    await strike;
    assert.ok(created.some(({ retried }) => retried));
    const { rows } = await sql<{
      id: string;
    }>`select id from subscribers where team_id = ${scene.team.team.id}`.execute(kysely(scene.team.em.fork()));
    assert.deepEqual(rows.map(({ id }) => id).sort(), created.map(({ id }) => id).sort());
    const result = await tally(scene);
    assert.equal(result.unknown, 0);
    assertEach(
      result,
      created.map(({ id }) => id),
    );
  });
});

describe(`${SIZE.events} events to ${SIZE.endpoints} endpoints (SEED=${SEED})`, function () {
  this.timeout(2 * LONG_MS);
  let receiver: Receiver;
  let scene: Scene;
  beforeEach(async () => {
    receiver = await openReceiver();
    scene = await openScene(receiver, working(SIZE.endpoints));
  });
  afterEach(async () => {
    await receiver.close();
  });

  it("all arrive when the worker is killed in the middle; only events in flight come twice", async () => {
    const { unknown } = await inTheMiddle(scene, 1, () => kill("webhooks").again);
    assert.ok(unknown > 0 && unknown <= MOST_IN_FLIGHT, `${unknown} unknown`);
  });

  it("come once each when the worker is asked to stop in the middle", async () => {
    const { duplicates, unknown, tooSlow } = await inTheMiddle(scene, 7, () => kill("webhooks", "SIGTERM").again);
    assert.equal(unknown, 0);
    assert.ok(duplicates <= tooSlow, `${duplicates} duplicates`);
  });
});

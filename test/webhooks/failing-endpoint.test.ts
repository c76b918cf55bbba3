import assert from "node:assert/strict";
import { sql } from "kysely";
import { kysely } from "../../db/orm.ts";
import { notifyDue } from "../../domain/webhooks/emit.ts";
import { endpointWorkflowId } from "../../temporal/ids.ts";
import { api } from "../support/api.ts";
import { app } from "../support/command.ts";
import { eventually } from "../support/eventually.ts";
import type { TestTeam } from "../support/factories.ts";
import { testsOf } from "../support/long.ts";
import { type Behaviour, openReceiver, type Received, type Receiver } from "../support/receiver.ts";
import { together } from "../support/together.ts";
import { emitSome, logOf, makeEndpoint, makeTeam } from "../support/webhooks.ts";
import { answerWith, askToWait, eventIdOf, setEndpoint, setHealth, states, untilLog, untilOver } from "./observing.ts";

const EVENTS = 120;
/** What comes after the repair. */
const LATER = 20;
/** From the repair to the last of the deliveries that waited. */
const ALL_WITHIN_MS = 90_000;

/** Opens a receiver where another one was closed. */
async function reopened(origin: string): Promise<Receiver> {
  const others: Receiver[] = [];
  for (;;) {
    const receiver = await openReceiver();
    if (receiver.origin === origin) {
      for (const other of others) await other.close();
      return receiver;
    }
    others.push(receiver);
  }
}

const healthOf = async (team: Pick<TestTeam, "em">, webhookId: string) =>
  kysely(team.em.fork())
    .selectFrom("webhook_health")
    .selectAll()
    .where("webhook_id", "=", webhookId)
    .executeTakeFirstOrThrow();

const untilHealth = (
  team: Pick<TestTeam, "em">,
  webhookId: string,
  wanted: (health: Awaited<ReturnType<typeof healthOf>>) => boolean,
) =>
  eventually(
    async () => {
      const health = await healthOf(team, webhookId);
      if (!wanted(health)) throw new Error(JSON.stringify(health));
      return health;
    },
    { what: "the health" },
  );

const numberOf = ({ body }: Received): number => JSON.parse(body).data.object.n;

const WITHIN_AN_HOUR = sql`now() + interval '1 hour'`;

describe("A failing endpoint", () => {
  const { it, longIt } = testsOf(together());
  let receiver: Receiver;
  before(async () => {
    receiver = await openReceiver(answerWith(500));
  });
  after(() => receiver.close());

  /** An endpoint that failed five times; its next probe comes when the test says so. */
  async function failing(name: string) {
    const team = await makeTeam();
    const endpoint = await makeEndpoint(team, { url: `${receiver.origin}/${name}` });
    await setHealth(team, endpoint.id, {
      consecutive_failures: 5,
      failing_since: sql`now()`,
      probe_at: WITHIN_AN_HOUR,
    });
    const answer = (behaviour: Behaviour) => receiver.behaveAt(`/${name}`, behaviour);
    const at = () => receiver.received.filter(({ path }) => path === `/${name}`);
    const waitingFor = (count: number) =>
      untilLog(
        team,
        endpoint.id,
        (log) => log.filter(({ next_attempt_at }) => next_attempt_at !== null).length === count,
      );
    const emitWaiting = async (count: number) => {
      await emitSome(team, count);
      return waitingFor(count);
    };
    /** Makes the probe due, and waits for its end, a failure. */
    const probe = async () => {
      const { consecutive_failures: before } = await healthOf(team, endpoint.id);
      await setHealth(team, endpoint.id, { probe_at: sql`now()` });
      await notifyDue(team.em.fork(), [endpoint.id]);
      return untilHealth(team, endpoint.id, (health) => health.consecutive_failures > before && !health.lease_until);
    };
    return { team, endpoint, answer, at, waitingFor, emitWaiting, probe };
  }

  it(`has ${EVENTS} deliveries wait in Postgres, and gets all of them within 90 s of its repair, beside new ones`, async () => {
    const gone = await openReceiver();
    const { origin } = gone;
    await gone.close();
    const team = await makeTeam();
    const endpoint = await makeEndpoint(team, { url: `${origin}/repaired` });
    const client = api(team.keys.live);
    const shownHealth = async () => {
      const { health, next_probe_at } = (await client.get(`/webhooks/${endpoint.id}`)).body.data;
      return [health, next_probe_at !== null];
    };
    assert.deepEqual(await shownHealth(), ["unproven", false]);
    for (let from = 0; from < EVENTS; from += 10) {
      await emitSome(team, 10, "newsletter.started", from);
      await untilLog(team, endpoint.id, (log) => new Set(log.map(({ event_id }) => event_id)).size >= from + 10);
    }
    await untilHealth(team, endpoint.id, ({ consecutive_failures }) => consecutive_failures >= 5);
    await setHealth(team, endpoint.id, { probe_at: sql`now()` });
    await untilHealth(team, endpoint.id, ({ probe_wait_seconds }) => (probe_wait_seconds ?? 0) >= 10);
    const log = await logOf({ em: team.em.fork() }, endpoint.id);
    const never = log.filter(({ status, attempt }) => status === "PENDING" && attempt === 1);
    assert.ok(never.length > EVENTS / 2, `${never.length} were never attempted`);
    assert.ok(log.every(({ attempts_used }) => attempts_used <= 2));

    assert.deepEqual(await shownHealth(), ["failing", true]);
    const shown = await client.get(`/webhooks/${endpoint.id}/deliveries?status=PENDING&limit=100`);
    const { probe_at } = await healthOf(team, endpoint.id);
    assert.ok(shown.body.data.length > 50);
    assert.ok(probe_at);
    for (const { next_attempt_at } of shown.body.data) assert.ok(next_attempt_at, "the next probe is shown");

    const repaired = await reopened(origin);
    try {
      const repairedAt = performance.now();
      await emitSome(team, LATER, "newsletter.started", EVENTS);
      await setHealth(team, endpoint.id, { probe_at: sql`now()` });
      const arrived = await repaired.until("/repaired", EVENTS + LATER, ALL_WITHIN_MS);
      assert.ok(performance.now() - repairedAt < ALL_WITHIN_MS);
      assert.equal(new Set(arrived.map(eventIdOf)).size, EVENTS + LATER, "each once");
      const over = await untilOver(team, endpoint.id, EVENTS + LATER);
      assert.equal(over.filter(({ status }) => status === "SUCCEEDED").length, EVENTS + LATER);
      assert.deepEqual(await shownHealth(), ["working", false]);
    } finally {
      await repaired.close();
    }
  });

  it("is probed with the next delivery in turn, so one that it cannot digest blocks nothing", async () => {
    const { team, endpoint, answer, at, emitWaiting, probe } = await failing("poison");
    answer((received, response) => void response.writeHead(numberOf(received) === 0 ? 500 : 204).end());
    const [first] = await emitWaiting(3);
    await probe();
    assert.deepEqual(at().map(numberOf), [0]);
    const [waits] = (await logOf({ em: team.em.fork() }, endpoint.id)).filter(({ id }) => id === first?.id);
    assert.equal(waits?.status, "RETRYING");

    await setHealth(team, endpoint.id, { probe_at: sql`now()` });
    const log = await untilOver(team, endpoint.id, 3);
    assert.equal(at().map(numberOf)[1], 1, "the second probe took the second delivery");
    const ofEvent = (event: unknown) => states(log.filter(({ event_id }) => event_id === event));
    assert.deepEqual(
      ofEvent(first?.event_id),
      [1, 2, 3, 4].map((attempt) => [attempt, "FAILED"]),
      "a probe is one of its attempts",
    );
    assert.equal(log.filter(({ status }) => status === "SUCCEEDED").length, 2);
  });

  longIt("is probed after 5 s, doubling to a minute in the first hour and to 15 minutes later", async () => {
    const { team, endpoint, emitWaiting, probe } = await failing("backoff");
    await emitWaiting(8);
    const waits: (number | null)[] = [];
    const next = async () => {
      const { probe_wait_seconds: seconds, probe_at } = await probe();
      waits.push(seconds);
      const { rows } = await sql<{
        ahead: number;
      }>`select extract(epoch from probe_at - last_failure_at)::float8 as ahead
        from webhook_health where webhook_id = ${endpoint.id}`.execute(kysely(team.em.fork()));
      assert.ok(probe_at);
      assert.equal(Math.round(rows[0]?.ahead ?? 0), seconds);
    };
    for (let count = 0; count < 6; count++) await next();
    await setHealth(team, endpoint.id, { failing_since: sql`now() - interval '61 minutes'` });
    for (let count = 0; count < 5; count++) await next();
    assert.deepEqual(waits, [5, 10, 20, 40, 60, 60, 120, 240, 480, 900, 900]);
  });

  it("is not probed before the time that its answer asked for", async () => {
    const { endpoint, team, answer, emitWaiting, probe } = await failing("asked");
    answer(askToWait(600));
    await emitWaiting(2);
    await probe();
    const { rows } = await sql<{ ahead: number }>`select extract(epoch from probe_at - last_failure_at)::float8 as ahead
      from webhook_health where webhook_id = ${endpoint.id}`.execute(kysely(team.em.fork()));
    assert.equal(Math.round(rows[0]?.ahead ?? 0), 600);
  });

  it("is none when a delivery fails between two that succeed at once", async () => {
    const team = await makeTeam();
    const { id } = await makeEndpoint(team, { url: `${receiver.origin}/mixed` });
    const answers = [answerWith(200), askToWait(600), answerWith(200)];
    receiver.behaveAt("/mixed", (...request) => answers.shift()?.(...request));
    await emitSome(team, 3);
    await notifyDue(team.em, [id]);
    const statuses = async () => (await logOf({ em: team.em.fork() }, id)).map(({ status }) => status).sort();
    await eventually(async () => `${await statuses()}` === "RETRYING,SUCCEEDED,SUCCEEDED", { what: "three outcomes" });
    const { consecutive_failures, last_failure_at } = await healthOf(team, id);
    assert.deepEqual([consecutive_failures, last_failure_at === null], [0, false]);
  });

  it("costs no delivery its last attempt by probes before the ladder would have ended", async () => {
    const { team, endpoint, emitWaiting, probe } = await failing("young");
    await emitWaiting(1);
    const setAge = (age: string) =>
      sql`update webhook_deliveries set created_at = now() - ${age}::interval where webhook_id = ${endpoint.id}`.execute(
        kysely(team.em.fork()),
      );
    await setAge("-1 hour");
    // The ladder of the tests has four attempts.
    for (let count = 0; count < 6; count++) await probe();
    const log = await logOf({ em: team.em.fork() }, endpoint.id);
    const open = log.filter(({ superseded_by_id }) => superseded_by_id === null);
    assert.deepEqual(
      open.map(({ status, attempt, attempts_used }) => [status, attempt, attempts_used]),
      [["RETRYING", 6, 3]],
    );
    await setAge("1 hour");
    await probe();
    assert.equal((await untilOver(team, endpoint.id)).length, 7);
  });

  it("is probed at once by an edit of its URL, and by webhook:probe", async () => {
    const { team, endpoint, answer, at, emitWaiting } = await failing("edited");
    await emitWaiting(3);
    const client = api(team.keys.live);
    const patched = await client.patch(`/webhooks/${endpoint.id}`, { headers: { "X-Mine": "new" } });
    assert.equal(patched.status, 200, patched.text);
    await untilHealth(team, endpoint.id, ({ consecutive_failures }) => consecutive_failures === 6);
    assert.equal(at().length, 1);
    await setHealth(team, endpoint.id, { probe_at: WITHIN_AN_HOUR });

    answer(answerWith(204));
    const probed = await app("webhook:probe", endpoint.id, "--json");
    assert.equal(probed.json.probed, true, probed.stderr);
    await untilLog(team, endpoint.id, (log) => log.filter(({ status }) => status === "SUCCEEDED").length === 3);
    const working = await app("webhook:probe", endpoint.id, "--json");
    assert.equal(working.json.probed, false, working.stderr);

    await setEndpoint(team, endpoint.id, { active: false, disabled_reason: "manual" });
    const off = await app("webhook:probe", endpoint.id);
    assert.notEqual(off.code, 0);
    assert.match(off.stderr, /is off: nothing is sent to it/);
  });

  it("shows operators its state, its next probe and what waits", async () => {
    const { team, endpoint, emitWaiting } = await failing("shown");
    const [first] = await emitWaiting(4);
    const [shown, text, where] = await Promise.all([
      app("webhook:show", endpoint.id, "--json"),
      app("webhook:show", endpoint.id),
      app("delivery:show", first?.id ?? "", "--json"),
    ]);
    const { probe_at, failing_since } = await healthOf(team, endpoint.id);
    const iso = (instant: string | null) => new Date(instant ?? 0).toISOString();
    const { origin, ...rest } = shown.json;
    assert.deepEqual(rest, {
      last_failure: null,
      webhook: endpoint.id,
      active: true,
      health: "failing",
      paused: false,
      consecutive_failures: 5,
      failing_since: iso(failing_since),
      next_attempt_at: iso(probe_at),
      waiting: 4,
      workflow: endpointWorkflowId(endpoint.id),
    });
    assert.match(
      text.stdout.replace(`${origin}\n`, ""),
      /^failing since 20\S+; 5 failures in a row\n4 deliveries wait, the next attempt is at 20\S+: webhook-endpoint/,
    );
    assert.deepEqual(
      [where.json.workflow, where.json.next_attempt_at],
      [endpointWorkflowId(endpoint.id), iso(probe_at)],
    );
  });

  it("has what waits BLOCKED when it is switched off, and FAILED what was attempted", async () => {
    const { team, endpoint, emitWaiting, probe } = await failing("off");
    await emitWaiting(3);
    await probe();
    await setEndpoint(team, endpoint.id, { active: false, disabled_reason: "delivery_failures" });
    const log = await untilOver(team, endpoint.id, 3);
    // Which of the three the probe attempted is open: they fell due at the same instant.
    assert.deepEqual(log.map(({ status }) => status).sort(), ["BLOCKED", "BLOCKED", "FAILED"]);
    for (const { error_message } of log) assert.match(error_message ?? "", /switched off; replay/);
  });
});

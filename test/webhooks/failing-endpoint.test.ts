import assert from "node:assert/strict";
import type { Client } from "@temporalio/client";
import { sql } from "kysely";
import { kysely } from "../../db/orm.ts";
import { giveUpWaiting } from "../../domain/webhooks/backlog.ts";
import { api } from "../support/api.ts";
import { app } from "../support/command.ts";
import { eventually } from "../support/eventually.ts";
import type { TestTeam } from "../support/factories.ts";
import { testsOf } from "../support/long.ts";
import { openReceiver, type Received, type Receiver } from "../support/receiver.ts";
import { emitSome, logOf, makeEndpoint, makeTeam } from "../support/webhooks.ts";
import {
  askToWait,
  eventIdOf,
  groupsOf,
  receivingBesideTemporal,
  setEndpoint,
  setHealth,
  states,
  untilLog,
  untilOver,
} from "./observing.ts";

const { it, longIt } = testsOf();

const EVENTS = 120;
/** What comes after the repair. */
const LATER = 20;
const MOST_WORKFLOWS = 10;
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
  let temporal: Client;
  let receiver: Receiver;
  receivingBesideTemporal((...opened) => {
    [receiver, temporal] = opened;
  });
  beforeEach(() => {
    receiver.behave = (_, response) => void response.writeHead(500).end();
  });

  const workflowsOf = async (webhookId: string) => (await temporal.workflow.count(`WebhookId = '${webhookId}'`)).count;

  /** An endpoint that failed five times; its next probe comes when the test says so. */
  async function failing(name: string) {
    const team = await makeTeam();
    const endpoint = await makeEndpoint(team, { url: `${receiver.origin}/${name}` });
    await setHealth(team, endpoint.id, {
      consecutive_failures: 5,
      failing_since: sql`now()`,
      probe_at: WITHIN_AN_HOUR,
    });
    const at = () => receiver.received.filter(({ path }) => path === `/${name}`);
    const waitingFor = (count: number) =>
      untilLog(
        team,
        endpoint.id,
        (log) => log.filter(({ group_id, ended_ungrouped }) => !group_id && !ended_ungrouped).length === count,
      );
    const emitWaiting = async (count: number) => {
      await emitSome(team, count);
      return waitingFor(count);
    };
    /** Makes the probe due, and waits for its end, a failure. */
    const probe = async () => {
      const { consecutive_failures: before } = await healthOf(team, endpoint.id);
      await setHealth(team, endpoint.id, { probe_at: sql`now()` });
      const after = await untilHealth(team, endpoint.id, (health) => health.consecutive_failures > before);
      await eventually(async () => (await groupsOf(team, endpoint.id)).length === 0, { what: "the end of the probe" });
      return after;
    };
    return { team, endpoint, at, waitingFor, emitWaiting, probe };
  }

  it(`has ${EVENTS} deliveries wait in Postgres, and gets all of them within 90 s of its repair, beside new ones`, async () => {
    const gone = await openReceiver();
    const { origin } = gone;
    await gone.close();
    const team = await makeTeam();
    const endpoint = await makeEndpoint(team, { url: `${origin}/repaired` });
    for (let from = 0; from < EVENTS; from += 10) {
      await emitSome(team, 10, "newsletter.started", from);
      await untilLog(team, endpoint.id, (log) => new Set(log.map(({ event_id }) => event_id)).size >= from + 10);
    }
    await untilHealth(team, endpoint.id, ({ consecutive_failures }) => consecutive_failures >= 5);
    await setHealth(team, endpoint.id, { probe_at: sql`now()` });
    await untilHealth(team, endpoint.id, ({ probe_wait_seconds }) => (probe_wait_seconds ?? 0) >= 10);
    const log = await logOf({ em: team.em.fork() }, endpoint.id);
    const never = log.filter(({ status, attempt, group_id }) => status === "PENDING" && attempt === 1 && !group_id);
    assert.ok(never.length > EVENTS / 2, `${never.length} were never attempted`);
    assert.ok(log.every(({ attempts_used }) => attempts_used <= 2));
    const before = Number(await workflowsOf(endpoint.id));
    assert.ok(before <= MOST_WORKFLOWS, `${before} workflows`);

    const client = api(team.keys.live);
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
      // The repair itself takes as many as full groups need, and one for those that came since.
      const workflows = Number(await workflowsOf(endpoint.id));
      assert.ok(workflows <= MOST_WORKFLOWS + 6, `${workflows} workflows`);
      assert.deepEqual(await groupsOf(team, endpoint.id), []);
    } finally {
      await repaired.close();
    }
  });

  it("stops its groups after a few failures when it was working, and leaves the rest of them unattempted", async () => {
    const team = await makeTeam();
    const endpoint = await makeEndpoint(team, { url: `${receiver.origin}/died` });
    await setHealth(team, endpoint.id, { last_success_at: sql`now()` });
    const events = 400;
    await emitSome(team, events);
    await untilLog(
      team,
      endpoint.id,
      (log) =>
        log.length >= events &&
        log.every(({ group_id }) => group_id === null) &&
        log.some(({ status }) => status === "RETRYING"),
    );
    const log = await logOf({ em: team.em.fork() }, endpoint.id);
    const attempted = log.filter(({ attempts_used }) => attempts_used > 0).length;
    // Four groups of a hundred were at their first attempt, each with 16 requests in flight.
    assert.ok(attempted >= 5 && attempted < 200, `${attempted} were attempted`);
    const workflows = Number(await workflowsOf(endpoint.id));
    assert.ok(workflows <= MOST_WORKFLOWS, `${workflows} workflows`);
    receiver.behave = (_, response) => void response.writeHead(204).end();
    await setHealth(team, endpoint.id, { probe_at: sql`now()` });
    await untilLog(team, endpoint.id, (rows) => rows.filter(({ status }) => status === "SUCCEEDED").length === events);
  });

  it("gets deliveries back from the workflows that were retrying when it began to fail", async () => {
    const team = await makeTeam();
    const endpoint = await makeEndpoint(team, { url: `${receiver.origin}/began` });
    const events = 8;
    for (let from = 0; from < events; from++) {
      await emitSome(team, 1, "newsletter.started", from);
      await untilLog(team, endpoint.id, (log) => new Set(log.map(({ event_id }) => event_id)).size > from);
    }
    await untilHealth(team, endpoint.id, ({ probe_at }) => probe_at !== null);
    await eventually(async () => (await groupsOf(team, endpoint.id)).length === 0, {
      what: "the end of the workflows",
    });
    const log = await logOf({ em: team.em.fork() }, endpoint.id);
    const open = log.filter(({ status }) => status === "PENDING" || status === "RETRYING");
    assert.equal(open.length, events);
    for (const row of open) assert.equal(row.group_id, null);
    for (const row of open) assert.equal(row.attempts_used, row.status === "RETRYING" ? row.attempt : 0);
    receiver.behave = (_, response) => void response.writeHead(204).end();
    await setHealth(team, endpoint.id, { probe_at: sql`now()` });
    await untilLog(team, endpoint.id, (rows) => rows.filter(({ status }) => status === "SUCCEEDED").length === events);
  });

  it("is probed with the next delivery in turn, so one that it cannot digest blocks nothing", async () => {
    const { team, endpoint, at, emitWaiting, probe } = await failing("poison");
    receiver.behave = ({ body }, response) => {
      response.writeHead(JSON.parse(body).data.object.n === 0 ? 500 : 204).end();
    };
    const [first] = await emitWaiting(3);
    await probe();
    assert.deepEqual(at().map(numberOf), [0]);
    const [waits] = (await logOf({ em: team.em.fork() }, endpoint.id)).filter(({ id }) => id === first?.id);
    assert.deepEqual([waits?.status, waits?.group_id, waits?.attempts_used], ["RETRYING", null, 1]);

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
    assert.equal(await workflowsOf(endpoint.id).then(Number), 11, "a workflow for each probe and no other");
  });

  it("is not probed before the time that its answer asked for", async () => {
    const { endpoint, team, emitWaiting, probe } = await failing("asked");
    receiver.behave = askToWait(600);
    await emitWaiting(2);
    await probe();
    const { rows } = await sql<{ ahead: number }>`select extract(epoch from probe_at - last_failure_at)::float8 as ahead
      from webhook_health where webhook_id = ${endpoint.id}`.execute(kysely(team.em.fork()));
    assert.equal(Math.round(rows[0]?.ahead ?? 0), 600);
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
    const open = log.filter(({ retried }) => !retried);
    assert.deepEqual(
      open.map(({ status, attempt, attempts_used }) => [status, attempt, attempts_used]),
      [["RETRYING", 6, 3]],
    );
    await setAge("1 hour");
    await probe();
    assert.equal((await untilOver(team, endpoint.id)).length, 7);
  });

  it("is probed at once by an edit of its URL, and by webhook:probe", async () => {
    const { team, endpoint, at, emitWaiting } = await failing("edited");
    await emitWaiting(3);
    const client = api(team.keys.live);
    const patched = await client.patch(`/webhooks/${endpoint.id}`, { headers: { "X-Mine": "new" } });
    assert.equal(patched.status, 200, patched.text);
    await untilHealth(team, endpoint.id, ({ consecutive_failures }) => consecutive_failures === 6);
    assert.equal(at().length, 1);
    await setHealth(team, endpoint.id, { probe_at: WITHIN_AN_HOUR });

    receiver.behave = (_, response) => void response.writeHead(204).end();
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

  // The probe under way made the next one due a quarter of an hour later.
  longIt("is probed soon by an edit during a probe that fails", async () => {
    const { team, endpoint, at, emitWaiting } = await failing("edited-during");
    const since = new Date(Date.now() - 2 * 3_600_000);
    await setHealth(team, endpoint.id, { probe_wait_seconds: 900, failing_since: since });
    await emitWaiting(2);
    receiver.behave = async (_, response) => {
      receiver.behave = (_again, answer) => void answer.writeHead(204).end();
      const patched = await api(team.keys.live).patch(`/webhooks/${endpoint.id}`, { headers: { "X-Mine": "new" } });
      assert.equal(patched.status, 200, patched.text);
      response.writeHead(500).end();
    };
    await setHealth(team, endpoint.id, { probe_at: sql`now()` });
    const { failing_since, probe_wait_seconds } = await untilHealth(
      team,
      endpoint.id,
      ({ consecutive_failures }) => consecutive_failures === 6,
    );
    assert.deepEqual([new Date(failing_since ?? 0), probe_wait_seconds], [since, 5]);
    await untilOver(team, endpoint.id, 2);
    assert.equal(at().length, 3);
  });

  it("shows operators its state, its next probe and what waits, and lets them give that up", async () => {
    const { team, endpoint, at, emitWaiting } = await failing("shown");
    const [first] = await emitWaiting(4);
    const [shown, text, where] = await Promise.all([
      app("webhook:show", endpoint.id, "--json"),
      app("webhook:show", endpoint.id),
      app("delivery:where", first?.id ?? "", "--json"),
    ]);
    const { probe_at, failing_since } = await healthOf(team, endpoint.id);
    const iso = (instant: string | null) => new Date(instant ?? 0).toISOString();
    assert.deepEqual(shown.json, {
      webhook: endpoint.id,
      active: true,
      health: "failing",
      consecutive_failures: 5,
      failing_since: iso(failing_since),
      next_probe_at: iso(probe_at),
      waiting: 4,
      workflows: 0,
    });
    assert.match(text.stdout, /^failing since 20\S+, next probe at 20\S+; 5 failures in a row\n4 deliveries wait/);
    assert.deepEqual([where.json.workflow, where.json.next_attempt_at], [null, iso(probe_at)]);

    const given = await app("webhook:give-up", endpoint.id, "--json");
    assert.equal(given.json.given_up, 4, given.stderr);
    for (const row of await untilOver(team, endpoint.id, 4)) {
      assert.equal(row.status, "FAILED");
      assert.match(row.error_message ?? "", /An operator gave it up/);
    }
    assert.equal(at().length, 0);
    const replayed = await app("webhook:replay", "--json", "--since", "2020-01-01T00:00:00Z", "--webhook", endpoint.id);
    assert.equal(replayed.json.replayed, 4, replayed.stderr);
    receiver.behave = (_, response) => void response.writeHead(204).end();
    await setHealth(team, endpoint.id, { probe_at: sql`now()` });
    await untilLog(team, endpoint.id, (log) => log.filter(({ status }) => status === "SUCCEEDED").length === 4);
  });

  // It took a statement that ended fewer than it could for the last one.
  longIt("has all that waits given up, also while another process takes some of it", async () => {
    const { team, endpoint } = await failing("taken");
    await sql`insert into webhook_deliveries (id, team_id, environment, webhook_id, event_id, event_type)
      select ${endpoint.id} || '/' || n, ${team.team.id}, 'LIVE', ${endpoint.id}, 'event', 'newsletter.started'
      from generate_series(1, 1500) n`.execute(kysely(team.em.fork()));
    const { given } = await team.em.fork().transactional(async (tx) => {
      const { rows } = await sql<{ pid: number }>`update webhook_deliveries set group_id = 'another'
        where id = ${`${endpoint.id}/1`} returning pg_backend_pid() as pid`.execute(kysely(tx));
      const given = giveUpWaiting(team.em.fork(), endpoint.id);
      await eventually(
        async () => {
          const { rows: blocked } = await sql`select from pg_stat_activity
            where pg_blocking_pids(pid) @> array[${rows[0]?.pid}::int]`.execute(kysely(team.em.fork()));
          return blocked.length > 0;
        },
        { what: "a statement that waits for the row" },
      );
      return { given };
    });
    assert.equal(await given, 1_499);
    await sql`delete from webhook_deliveries where webhook_id = ${endpoint.id}`.execute(kysely(team.em.fork()));
  });

  it("has what waits BLOCKED without a workflow when it is switched off, FAILED what was attempted", async () => {
    const { team, endpoint, emitWaiting, probe } = await failing("off");
    await emitWaiting(3);
    await probe();
    await setEndpoint(team, endpoint.id, { active: false, disabled_reason: "delivery_failures" });
    const log = await untilOver(team, endpoint.id, 3);
    assert.deepEqual(
      log.map(({ status, group_id }) => [status, group_id]),
      [
        ["FAILED", null],
        ["BLOCKED", null],
        ["BLOCKED", null],
      ],
    );
    for (const { error_message } of log) assert.match(error_message ?? "", /switched off; replay/);
    assert.equal(Number(await workflowsOf(endpoint.id)), 1, "that of the probe");
  });
});

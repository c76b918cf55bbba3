import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import type { Client, WorkflowHandle } from "@temporalio/client";
import { type RawBuilder, sql } from "kysely";
import { pino } from "pino";
import { Registry } from "prom-client";
import { parse } from "yaml";
import { Progress } from "../../config/progress.ts";
import type { SendStatus } from "../../db/entities/send.ts";
import { type EntityManager, kysely, type MikroORM, openDatabase } from "../../db/orm.ts";
import { transaction } from "../../db/transaction.ts";
import { newId } from "../../domain/ids.ts";
import { openVault } from "../../domain/secrets/crypto.ts";
import { grantCredits } from "../../domain/teams/credits.ts";
import { MOST_WAITING } from "../../domain/webhooks/webhooks-overview.ts";
import { POOLS } from "../../stack/stack.ts";
import { sendWorkflowId, TASK_QUEUES } from "../../temporal/ids.ts";
import { addDatabaseMetrics } from "../../workers/database-metrics.ts";
import { openIntakeMetrics } from "../../workers/intake-metrics.ts";
import { createMetrics } from "../../workers/metrics.ts";
import { startWebhooks } from "../../workers/webhooks.ts";
import type { Json } from "../support/api.ts";
import { eventually } from "../support/eventually.ts";
import { backdoor, makeTeam, unique } from "../support/factories.ts";
import { outcomesOf } from "../support/outcomes.ts";
import { openReceiver } from "../support/receiver.ts";
import {
  ledgerStates,
  makeSender,
  type Sender,
  setFaults,
  slowAfter,
  startSend,
  untilStatus,
} from "../support/sending.ts";
import { stack } from "../support/stack.ts";
import { temporalClient } from "../support/temporal.ts";
import { emitSome, logOf, makeEndpoint, PUBLIC_URL, untilSettled } from "../support/webhooks.ts";

const DEPLOY = `${import.meta.dirname}/../../deploy`;
const NEVER_KEPT = { sends: 0, webhooks: 0, credits: 0, counts: 0 };
const KEPT = { sends: 60_000, webhooks: 60_000, counts: 60_000, credits: 60_000 };
const [MAILS, ATTEMPTS] = ["mailkeel_mails_total", "mailkeel_webhook_attempts_total"];
const log = pino({ level: "silent" });

interface Sample {
  name: string;
  labels: Record<string, string>;
  value: number;
}

function samples(text: string): Sample[] {
  return text
    .split("\n")
    .filter((line) => line !== "" && !line.startsWith("#"))
    .map((line) => {
      const [, name, inner, value] = /^(\w+)(?:\{(.*)\})? (\S+)$/.exec(line) ?? assert.fail(`no sample: ${line}`);
      const pairs = [...(inner ?? "").matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)].map(([, key, text]) => [key, text]);
      return { name: name ?? "", labels: Object.fromEntries(pairs), value: Number(value) };
    });
}

async function scrape(pool: string): Promise<string> {
  const answer = await fetch(`${(await stack()).health[pool]}/metrics`);
  assert.equal(answer.status, 200);
  assert.match(answer.headers.get("content-type") ?? "", /^text\/plain; version=0\.0\.4/);
  return answer.text();
}

const PROCESSES = ["api", ...POOLS];
const scrapeAll = () => Promise.all(PROCESSES.map(scrape));

async function totals(metric: string): Promise<Record<string, number>> {
  const counts: Record<string, number> = {};
  for (const { name, labels, value } of (await scrapeAll()).flatMap(samples)) {
    const { outcome } = labels;
    if (name === metric && outcome) counts[outcome] = (counts[outcome] ?? 0) + value;
  }
  return counts;
}

/** By how much a counter has risen since, by outcome; outcomes for which it has not are left out. */
async function risenSince(before: Record<string, number>, metric: string): Promise<Record<string, number>> {
  const risen = Object.entries(await totals(metric)).map(([key, value]) => [key, value - (before[key] ?? 0)] as const);
  return Object.fromEntries(risen.filter(([, count]) => count !== 0));
}

/** Waits until no pool runs an activity: what it mails is counted then. */
async function untilIdle(): Promise<void> {
  const isBusy = ({ name, labels, value }: Sample) =>
    name === "temporal_worker_task_slots_used" && labels["worker_type"] === "ActivityWorker" && value > 0;
  await eventually(async () => !(await scrapeAll()).flatMap(samples).some(isBusy), {
    what: "the end of all activities",
  });
}

/** One that waits for an hour or its day would be mailed during a later test, and a gauge would show its wait. */
async function endLeftSends(temporal: Client): Promise<void> {
  const query = "WorkflowType = 'sendWorkflow' AND ExecutionStatus = 'Running'";
  await eventually(
    async () => {
      let found = 0;
      for await (const { workflowId } of temporal.workflow.list({ query })) {
        found++;
        await temporal.workflow.getHandle(workflowId).terminate("left by another test");
      }
      return found === 0;
    },
    { what: "the end of the sends of other tests" },
  );
  await untilIdle();
  const { orm } = await backdoor();
  await sql`update sends set status = 'CANCELLED' where status in ('SCHEDULED', 'SENDING', 'PAUSED')`.execute(
    kysely(orm.em.fork()),
  );
  await sql`update sends set settled_at = now() where settled_at is null`.execute(kysely(orm.em.fork()));
}

/** Ends the deliveries that other tests left: their endpoints are switched off, and deleted once nothing is in flight. */
async function endLeftDeliveries(): Promise<void> {
  const { orm } = await backdoor();
  const db = kysely(orm.em.fork());
  await sql`update webhook_endpoints set active = false, disabled_reason = 'manual'`.execute(db);
  const inFlight = sql`select from webhook_health h join webhook_deliveries d on d.id = any(h.claimed) where d.status = 'PENDING'`;
  await eventually(async () => (await inFlight.execute(db)).rows.length === 0, {
    what: "the attempts of other tests to end",
  });
  await sql`delete from webhook_endpoints`.execute(db);
}

/** By how much the mails of each outcome rise meanwhile. */
async function counted(work: () => Promise<unknown>): Promise<Record<string, number>> {
  await untilIdle();
  const before = await totals(MAILS);
  await work();
  await untilIdle();
  return risenSince(before, MAILS);
}

/** The only value of a gauge; undefined when the answer has none. */
async function gauge(registry: Registry, wanted: string, labels: Record<string, string> = {}) {
  const found = samples(await registry.metrics()).filter(
    ({ name, labels: has }) => name === wanted && Object.entries(labels).every(([key, value]) => has[key] === value),
  );
  assert.ok(found.length <= 1, `${wanted} is there once`);
  return found[0]?.value;
}

const KEYWORDS = new Set(["and", "or", "unless", "bool", "offset", "inf", "nan"]);

function metricsIn(expression: string): string[] {
  const bare = expression
    .replaceAll(/"[^"]*"/g, "")
    .replaceAll(/\{[^}]*\}|\[[^\]]*\]/g, "")
    .replaceAll(/\b(by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)/g, "");
  return [...bare.matchAll(/(?<![\w.])[a-zA-Z_:][\w:]*(?!\w|\s*\()/g)]
    .map(([name]) => name)
    .filter((name) => !KEYWORDS.has(name));
}

function expressions(): { where: string; expression: string }[] {
  const alerts: Json = parse(readFileSync(`${DEPLOY}/prometheus/alerts.yml`, "utf8"));
  const dashboard: Json = JSON.parse(readFileSync(`${DEPLOY}/grafana/mailkeel.json`, "utf8"));
  return [
    ...alerts.groups.flatMap(({ rules }: Json) =>
      rules.map((rule: Json) => ({ where: rule.alert, expression: rule.expr })),
    ),
    ...dashboard.panels.flatMap(({ title, targets }: Json) =>
      targets.map((target: Json) => ({ where: title, expression: target.expr })),
    ),
  ];
}

describe("Metrics of the API and of the worker pools", () => {
  let temporal: Client;
  let close: () => Promise<void>;
  /** A send that ended, by how much it raised the counters, and the metrics of all processes after it. */
  let sender: Sender;
  let risen: Record<string, number>;
  let texts: string[];

  before(async () => {
    ({ client: temporal, close } = await temporalClient());
    await endLeftSends(temporal);
    sender = await makeSender({ recipients: 7 });
    await setFaults([
      { stage: "rcpt", match: `person1@${sender.audience}`, code: 450, message: "4.2.0 greylisted", times: 1 },
      { stage: "rcpt", match: tooLate(), code: 450, message: "4.2.0 later" },
      { stage: "rcpt", match: `person3@${sender.audience}`, code: 550, message: "5.1.1 no such user" },
    ]);
    risen = await counted(async () => {
      await startSend(sender);
      // Makes the deferred mail older than a day, which is the longest that one is tried.
      await eventually(async () => {
        const aged = await sql`update send_recipients set first_deferred_at = now() - interval '2 days'
          where email = ${tooLate()} and first_deferred_at is not null`.execute(kysely(sender.em));
        return aged.numAffectedRows;
      });
      await untilStatus(sender, ["SENT"]);
    });
    await failWorkflowTask();
    texts = await scrapeAll();
  });
  after(() => close());
  afterEach(() => setFaults([]));

  const tooLate = () => `person2@${sender.audience}`;

  /** Makes the sends pool fail a workflow task: the counter of failures is there from the first one on. */
  async function failWorkflowTask(): Promise<void> {
    const handle = await temporal.workflow.start("no such workflow", {
      taskQueue: TASK_QUEUES.sends,
      workflowId: unique("fails"),
    });
    await eventually(async () => (await scrape("sends")).includes("workflow_task_execution_failed"), {
      what: "a failed workflow task",
    });
    await handle.terminate();
  }

  /** Pauses the sender's send when some of its mails are out and most are not. */
  async function pausedHalfway(sender: Sender): Promise<{ sendId: string; workflow: WorkflowHandle }> {
    const { data } = await startSend(sender);
    const workflow = temporal.workflow.getHandle(sendWorkflowId(data.id));
    await eventually(async () => (await ledgerStates(sender)).SENT, { what: "the first mail" });
    assert.equal(await workflow.executeUpdate("pause"), "PAUSED");
    return { sendId: data.id, workflow };
  }

  async function lastQueued({ em }: Sender, sendId: string, count: number): Promise<string[]> {
    const { rows } = await sql<{ email: string }>`select email from send_recipients
      where send_id = ${sendId} and state = 'QUEUED' order by seq desc limit ${count}`.execute(kysely(em));
    assert.equal(rows.length, count);
    return rows.map(({ email }) => email);
  }

  /** Leaves a recipient SENDING without a worker, as a worker that dies does. */
  async function lose({ em }: Sender, sendId: string, email: string): Promise<void> {
    const db = kysely(em);
    await sql`update send_recipients set state = 'SENDING' where send_id = ${sendId} and email = ${email}`.execute(db);
    await sql`update send_lanes set dispatching = true where send_id = ${sendId}`.execute(db);
  }

  it("have every metric that an alert or a panel asks for, after a send", async () => {
    const present = new Set(texts.flatMap(samples).map(({ name }) => name));
    // The metrics of an intake worker; the stack of the tests runs none.
    const ofIntake = new Registry();
    openIntakeMetrics(ofIntake, { connections: () => 0, reportsWaiting: () => 0 });
    for (const { name } of samples(await ofIntake.metrics())) present.add(name);
    const asked = expressions();
    assert.ok(asked.length > 20, "alerts and panels are read");
    for (const { where, expression } of asked) {
      const names = metricsIn(expression);
      assert.ok(names.length > 0, `${where} asks for something`);
      for (const name of names) assert.ok(present.has(name), `${where} asks for ${name}, which is nowhere`);
    }
  });

  it("are described once each, carry their pool, and name no team, account, newsletter or address", () => {
    const { team, accountId, newsletterId, domain, audience } = sender;
    for (const [i, text] of texts.entries()) {
      const described = [...text.matchAll(/^# (HELP|TYPE) (\w+)/gm)].map(([line]) => line);
      assert.equal(new Set(described).size, described.length, "nothing is described twice");
      for (const { name, labels } of samples(text)) assert.equal(labels["pool"], PROCESSES[i], name);
      for (const secret of [team.id, accountId, newsletterId, domain, audience, "@"]) {
        assert.ok(!text.includes(secret), `${secret} is in the metrics`);
      }
    }
  });

  it("end in _total if they are counters, and only then", () => {
    for (const text of texts) {
      const types = [...text.matchAll(/^# TYPE (\w+) (\w+)$/gm)].map(([, name = "", type]) => [name, type] as const);
      assert.ok(types.length > 20);
      const wrong = types.filter(([name, type]) => name.endsWith("_total") !== (type === "counter"));
      assert.deepEqual(wrong, []);
    }
  });

  it("count each deferral, and each recipient of a send once, by outcome", async () => {
    const tries = (await outcomesOf(sender)).find(({ email }) => email === tooLate())?.attempts ?? assert.fail();
    assert.deepEqual(risen, { SENT: 5, REJECTED: 1, DEFERRED: 1 + (tries - 1), EXPIRED: 1 });
  });

  it("count recipients once whose outcome is unknown or who were suppressed before they were mailed", async () => {
    const sender = await makeSender({ recipients: 40, account: { maxConnections: 1 } });
    await slowAfter(5, sender, [{ stage: "data", match: sender.audience, drop: true, times: 1 }]);
    const risen = await counted(async () => {
      const { sendId, workflow } = await pausedHalfway(sender);
      await setFaults([]);
      const [first = "", second = "", ...suppressed] = await lastQueued(sender, sendId, 4);
      assert.equal((await sender.client.post("/suppressions", { emails: suppressed })).status, 200);
      // One is found by the pause, the other by the slice that follows.
      await lose(sender, sendId, first);
      await workflow.executeUpdate("pause");
      await lose(sender, sendId, second);
      await workflow.executeUpdate("resume");
      await untilStatus(sender, ["SENT"]);
    });
    assert.deepEqual(risen, { SENT: 35, UNKNOWN: 3, SUPPRESSED: 2 });
  });

  it("count each attempt to deliver a webhook once, by outcome", async () => {
    const receiver = await openReceiver();
    try {
      const team = await makeTeam();
      // Their attempts would be counted too.
      await endLeftDeliveries();
      const answers = [500, 500, 204, 410];
      receiver.behave = (_, response) => void response.writeHead(answers.shift() ?? 204).end();
      const { id } = await makeEndpoint(team, { url: `${receiver.origin}/counted` });
      const before = await totals(ATTEMPTS);
      await emitSome(team, 1);
      await receiver.until("/counted", 3);
      await untilSettled(team, id);
      await emitSome(team, 1);
      await receiver.until("/counted", 4);
      await untilSettled(team, id);
      // A private address: the delivery is BLOCKED and never leaves.
      await sql`update webhook_endpoints set url = 'http://10.0.0.1/' where id = ${id}`.execute(kysely(team.em));
      await emitSome(team, 1);
      await eventually(async () => (await logOf(team, id)).some(({ status }) => status === "BLOCKED"));
      // It is counted once it is written.
      const risen = () => risenSince(before, ATTEMPTS);
      await eventually(async () => (await risen())["BLOCKED"], { what: "the last attempt in the counter" });
      assert.deepEqual(await risen(), { SUCCEEDED: 1, FAILED: 1, RETRYING: 2, BLOCKED: 1 });
    } finally {
      await receiver.close();
    }
  });
});

describe("Metrics from Postgres", () => {
  before(async () => {
    const { client, close } = await temporalClient();
    await endLeftSends(client).finally(close);
    await endLeftDeliveries();
  });

  async function registryOver(kept = NEVER_KEPT): Promise<Registry> {
    const registry = new Registry();
    addDatabaseMetrics(registry, { orm: (await backdoor()).orm, log, env: (await stack()).env }, kept);
    return registry;
  }

  it("show a balance that differs from its ledger until it is put right, also to scrapes that read Postgres later", async () => {
    const { team, em } = await makeTeam();
    await transaction(em, (tx) => grantCredits(tx, { teamId: team.id, environment: "LIVE" }, 100, unique("grant")));
    const [registry, keeping] = [await registryOver(), await registryOver(KEPT)];
    const mismatches = async (of = registry) => (await gauge(of, "mailkeel_credit_mismatches")) ?? Number.NaN;
    const add = (credits: number) =>
      sql`update credit_balances set available = available + ${credits} where team_id = ${team.id}`.execute(kysely(em));
    // Other tests set balances by hand.
    const before = await mismatches();
    assert.equal(await mismatches(keeping), before);
    await add(1);
    try {
      assert.equal(await mismatches(), before + 1);
      assert.equal(await mismatches(keeping), before, "it is read once and then kept");
    } finally {
      await add(-1);
    }
    assert.equal(await mismatches(), before);
  });

  /** The writes and reads of a test, in a transaction that is rolled back. */
  interface Measured {
    run(statement: RawBuilder<unknown>): Promise<unknown>;
    value(name: string, labels?: Record<string, string>): Promise<number>;
    hours(name: string, labels?: Record<string, string>): Promise<number>;
  }

  async function measured(em: EntityManager, work: (measured: Measured) => Promise<void>): Promise<void> {
    const { env } = await stack();
    const measure = async (tx: EntityManager) => {
      const registry = new Registry();
      const orm = { em: { fork: () => tx } } as unknown as MikroORM;
      addDatabaseMetrics(registry, { orm, log, env }, NEVER_KEPT);
      const value: Measured["value"] = async (name, labels) => (await gauge(registry, `mailkeel_${name}`, labels)) ?? 0;
      const hours: Measured["hours"] = async (...named) => Math.floor((await value(...named)) / 3_600);
      await work({ run: (statement) => statement.execute(kysely(tx)), value, hours });
    };
    await transaction(em, measure, { isRolledBack: true });
  }

  describe("of a send that is older than all others", () => {
    const longAgo = sql`now() - interval '60 hours'`;

    const sendId = newId("send");

    /** Writes its row anew: an update would set updated_at. */
    const place = async (
      { run }: Measured,
      { team }: Sender,
      status: SendStatus,
      { sendAt = longAgo, settledAt = sql`null`, reviewUntil = sql`null` } = {},
    ) => {
      await run(sql`delete from sends where id = ${sendId}`);
      await run(sql`insert into sends (id, team_id, environment, resource_type, resource_id, api_key_id, status, recipients,
          send_at, started_at, updated_at, settled_at, review_until)
        values (${sendId}, ${team.id}, 'TEST', 'newsletter', 'none', 'none', ${status}, 1,
          ${sendAt}, ${longAgo}, ${longAgo}, ${settledAt}, ${reviewUntil})`);
    };
    /** With a recipient that is queued, and one that was sent. @returns changes the first one */
    async function placeSending(measured: Measured, sender: Sender) {
      const { run } = measured;
      await place(measured, sender, "SENDING");
      await run(
        sql`insert into send_lanes (send_id, account_id, after_seq) values (${sendId}, ${sender.accountId}, 1)`,
      );
      await run(sql`insert into send_recipients (send_id, seq, member_id, email, state, updated_at)
        values (${sendId}, 1, 'none', 'a@example.com', 'SENT', ${longAgo}),
          (${sendId}, 2, 'none', 'b@example.com', 'QUEUED', ${longAgo})`);
      return (change: RawBuilder<unknown>) =>
        run(sql`update send_recipients set ${change} where send_id = ${sendId} and seq = 2`);
    }

    it("show how long a queued or a due recipient has waited, and how many sends need an operator", async () => {
      const sender = await makeSender({ recipients: 0 });
      await measured(sender.em, async (measured) => {
        const { run, value, hours } = measured;
        const sending = await value("sends", { status: "SENDING" });
        const recipient = await placeSending(measured, sender);
        assert.equal(await hours("queue_age_seconds"), 60);
        assert.equal(await value("sends", { status: "SENDING" }), sending + 1);
        await recipient(sql`state = 'DEFERRED', retry_at = now() - interval '20 hours'`);
        assert.equal(await hours("queue_age_seconds"), 20);
        await recipient(sql`retry_at = now() + interval '1 hour'`);
        assert.equal(await hours("queue_age_seconds"), 0, "a recipient that is not due does not count as waiting");
        for (const [cause, reason] of [
          ["login_refused", "login_refused"],
          ["complaint_rate_exceeded", "complaint_rate_exceeded"],
          // No label holds an id.
          ["acct_1 login_refused, acct_2 timeout", "several_accounts"],
        ] as const) {
          const before = await value("sends_needing_operator", { reason });
          await run(sql`update sends set status = 'PAUSED', pause_reason = ${cause} where id = ${sendId}`);
          assert.equal(await value("sends_needing_operator", { reason }), before + 1);
        }
        await recipient(sql`state = 'QUEUED', retry_at = null`);
        assert.equal(await hours("queue_age_seconds"), 0, "nothing of a paused send could be mailed");
        const paused = () =>
          Promise.all(["client", "failure", "operator"].map((cause) => hours("send_paused_seconds", { cause })));
        await place(measured, sender, "PAUSED");
        assert.equal((await paused())[2], 60, "an operator paused it");
        // The test's transaction has one time.
        await run(sql`update sends set status = 'SENDING' where id = ${sendId}`);
        assert.equal(await hours("queue_age_seconds"), 0, "its age does not jump when it is resumed");
        const open = await value("ended_sends_open_recipients");
        await run(sql`update sends set status = 'SENT' where id = ${sendId}`);
        assert.equal(await value("ended_sends_open_recipients"), open + 1);
        await recipient(sql`state = 'EXPIRED', retry_at = null`);
        assert.equal(await value("ended_sends_open_recipients"), open);
      });
    });

    it("show how long it stands still, by cause, and the reviews that are open", async () => {
      const sender = await makeSender({ recipients: 0, account: { hourlyLimit: 1 } });
      await measured(sender.em, async (measured) => {
        const { run, hours } = measured;
        const still = () =>
          Promise.all(["account", "limit", "other"].map((cause) => hours("send_standstill_seconds", { cause })));
        const recipient = await placeSending(measured, sender);
        const [account = 0, limit = 0, unknown = 0] = await still();
        assert.ok(account < 60 && limit < 60);
        assert.equal(unknown, 60, "a recipient waits, and no one knows why");
        await recipient(sql`state = 'SENDING'`);
        assert.equal((await still())[2], 60, "mails in flight that no worker ends");
        await run(sql`insert into account_usage (account_id, "window", starts_at, used)
          values (${sender.accountId}, 'HOUR', date_trunc('hour', now(), 'UTC'), 1)
          on conflict (account_id, "window", starts_at) do update set used = 1`);
        assert.equal((await still())[1], 60, "its account's limit is used up");
        await run(sql`update email_accounts set status = 'ERROR' where id = ${sender.accountId}`);
        assert.equal((await still())[0], 60, "its account fails");
        await run(sql`update send_recipients set updated_at = now() where send_id = ${sendId} and seq = 1`);
        const ended = await still();
        assert.deepEqual(ended.slice(0, 2), [account, limit], "a slice has mailed");
        assert.ok((ended[2] ?? 60) < 60);
        const due = sql`state = 'DEFERRED', retry_at = now() - interval '59 hours', updated_at = ${longAgo}`;
        await run(sql`update send_recipients set ${due} where send_id = ${sendId}`);
        assert.equal((await still())[0], 59, "a recipient is due");
        await run(sql`update send_recipients set retry_at = now() + interval '1 hour' where send_id = ${sendId}`);
        assert.equal((await still())[0], account, "none is due");
        await place(measured, sender, "SCHEDULED", { sendAt: sql`now() - interval '58 hours'` });
        assert.equal((await still())[0], 58, "its day has come, and it has not begun");
        await place(measured, sender, "CANCELLED");
        assert.equal((await still())[0], 60, "its credits are not settled");
        const reviews = await measured.value("sends_in_review");
        await place(measured, sender, "SENT", { settledAt: sql`now()`, reviewUntil: sql`now() + interval '1 hour'` });
        assert.equal((await still())[0], account, "it has ended");
        assert.equal(await measured.value("sends_in_review"), reviews + 1);
      });
    });
  });

  it("show how long webhooks wait, by the state of their endpoint", async () => {
    const team = await makeTeam();
    const endpoints = await Promise.all([1, 2, 3].map(() => makeEndpoint(team, { url: PUBLIC_URL })));
    // Endpoints are counted in the order of their ids: what waits for a failing one hides no others.
    const [failing = "", working = "", off = ""] = endpoints.map(({ id }) => id).sort();
    await measured(team.em, async ({ run, value: of, hours: hoursOf }) => {
      const value = (name: string, labels?: Record<string, string>) => of(`webhook_${name}`, labels);
      const hours = (name: string, labels?: Record<string, string>) => hoursOf(`webhook_${name}`, labels);
      const wait = (endpoint: string) => hours("waiting_age_seconds", { endpoint });

      await run(sql`insert into webhook_outbox (seq, team_id, environment, type, objects, created_at)
        values (-1, ${team.team.id}, 'LIVE', 'none', '[]', now() - interval '50 hours')`);
      assert.equal(await hours("outbox_age_seconds"), 50);

      const before = await value("endpoints_failing");
      await run(sql`update webhook_health set consecutive_failures = 5 where webhook_id in (${failing}, ${off})`);
      assert.equal(await value("endpoints_failing"), before + 2);
      const queue = (id: string, count: number, hoursAgo: number) =>
        run(sql`insert into webhook_deliveries
            (id, team_id, environment, webhook_id, event_id, event_type, created_at, next_attempt_at)
          select ${id} || '/' || ${hoursAgo} || '/' || n, ${team.team.id}, 'LIVE', ${id}, 'event', 'newsletter.started',
            now() - interval '50 hours', now() - make_interval(hours => ${hoursAgo})
          from generate_series(1, ${count}) n`);
      await queue(failing, 1, -1);
      assert.ok((await wait("failing")) < 30, "a delivery that is not due does not count as waiting");
      await queue(failing, 1, 30);
      assert.equal(await wait("failing"), 30);
      assert.ok((await wait("working")) < 30);

      const switchedOff = await value("endpoints_switched_off");
      const switchOff = (reason: string) =>
        run(sql`update webhook_endpoints set active = false, disabled_reason = ${reason} where id = ${off}`);
      await switchOff("manual");
      assert.equal(await value("endpoints_switched_off"), switchedOff, "who stopped theirs by hand knows");
      await switchOff("delivery_failures");
      assert.equal(await value("endpoints_switched_off"), switchedOff + 1);
      for (const [id, count] of Object.entries({ [failing]: MOST_WAITING + 1, [working]: 3, [off]: 2 })) {
        await queue(id, count, 40);
      }
      assert.equal(await value("deliveries_waiting", { endpoint: "failing" }), MOST_WAITING);
      assert.ok((await value("deliveries_waiting", { endpoint: "working" })) >= 3);
      assert.ok((await value("deliveries_waiting", { endpoint: "off" })) >= 2);
      for (const endpoint of ["failing", "working", "off"]) assert.equal(await wait(endpoint), 40, endpoint);
    });
  });

  it("show how long the service's own mails have waited for their server, by kind, while they are of use", async () => {
    const team = await makeTeam();
    const { id } = await makeEndpoint(team, { url: "https://hooks.example/" });
    const link = newId("signInLink");
    await measured(team.em, async ({ run, hours }) => {
      const waits = () =>
        Promise.all(["notice", "invite", "sign_in_link"].map((kind) => hours("system_mail_wait_seconds", { kind })));
      const wait = async (duration: number) => {
        const since = sql`now() - make_interval(hours => ${duration}, mins => 30)`;
        await run(sql`update webhook_endpoints set notice_due_at = now(), disabled_at = ${since} where id = ${id}`);
        await run(sql`update members set invite_due_at = now(), created_at = ${since} where team_id = ${team.team.id}`);
        await run(sql`delete from sign_in_links where id = ${link}`);
        await run(sql`insert into sign_in_links (id, email, mail_due_at, created_at, expires_at)
          values (${link}, 'a@example.com', now(), ${since}, ${since} + interval '24 hours')`);
      };
      await wait(23);
      assert.deepEqual(await waits(), [23, 23, 23]);
      await wait(25);
      assert.ok((await waits()).every((waited) => waited < 23));
    });
  });

  it("are left out, not 0, while Postgres is away", async () => {
    const orm = await openDatabase("postgres://127.0.0.1:1/none", { poolMax: 1 });
    try {
      const { registry } = createMetrics("maintenance", () => true);
      addDatabaseMetrics(registry, { orm, log, env: (await stack()).env }, NEVER_KEPT);
      for (const [name, labels] of [
        ["credit_mismatches"],
        ["queue_age_seconds"],
        ["retention_overdue_seconds"],
        ["sends", { status: "SENT" }],
        ["webhook_outbox_age_seconds"],
        ["webhook_deliveries_waiting", { endpoint: "off" }],
      ] as const) {
        assert.equal(await gauge(registry, `mailkeel_${name}`, labels), undefined, name);
      }
      assert.equal(await gauge(registry, "mailkeel_pool_ready"), 1);
    } finally {
      await orm.close(true);
    }
  });

  it("show for how long a relay has not looked for events, which it cannot without Postgres", async () => {
    const relayAge = async (text: string) =>
      samples(text).find(({ name }) => name === "mailkeel_webhook_relay_age_seconds")?.value ?? Number.NaN;
    assert.ok((await relayAge(await scrape("webhooks"))) < 10);
    const orm = await openDatabase("postgres://127.0.0.1:1/none", { poolMax: 1 });
    const stop = new AbortController();
    let failures = 0;
    const { env } = await stack();
    const { registry } = createMetrics("webhooks", () => true);
    const counters = {
      countMails() {},
      countAttempts() {},
      countFailedPruning() {},
      countRelayFailure: () => failures++,
    };
    const deps = { env, orm, log, vault: openVault(env), workerId: "test", progress: new Progress(), ...counters };
    const running = startWebhooks({ ...deps, stopping: stop.signal }, registry);
    const { client, close } = await temporalClient();
    running.connected(client);
    try {
      await eventually(() => failures > 2, { what: "passes of the relay that fail" });
      assert.ok((await relayAge(await registry.metrics())) > 0.5, "a pass begins half a second after the one before");
    } finally {
      stop.abort();
      await running.close();
      await close();
      await orm.close(true);
    }
  });
});

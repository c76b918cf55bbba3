import assert from "node:assert/strict";
import { setTimeout as delay } from "node:timers/promises";
import { asyncLocalStorage, type Context } from "@temporalio/activity";
import { sql } from "kysely";
import pino from "pino";
import { BusyEndpoints } from "../../activities/webhooks/busy-endpoints.ts";
import { createDeliveryActivities } from "../../activities/webhooks/deliveries.ts";
import type { DeliveryClient } from "../../activities/webhooks/http-client.ts";
import { kysely } from "../../db/orm.ts";
import { fanOut } from "../../domain/webhooks/fan-out.ts";
import { formGroups, type Group } from "../../domain/webhooks/grouping.ts";
import { GROUP_SIZE } from "../../domain/webhooks/plan-groups.ts";
import { eventually } from "../support/eventually.ts";
import type { TestTeam } from "../support/factories.ts";
import { makeDatabase, type OwnDatabase } from "../support/own-database.ts";
import { stack } from "../support/stack.ts";
import { emitSome, logOf, makeEndpoint, makeTeam, PUBLIC_URL } from "../support/webhooks.ts";

/** No request ends by itself within a test. */
const LONG_MS = 300_000;
const POOL_MAX = 4;
const SUCCESS = { kind: "answered", status: 204, body: "", durationMs: 1 } as const;

describe("A group at its first attempt", () => {
  /** Answers a request: requests over HTTP could take a busy machine longer than the 2 s in which some have to be sent. */
  let post: DeliveryClient["post"];
  let own: OwnDatabase;
  let team: Pick<TestTeam, "em" | "vault"> & { team: TestTeam["team"] };
  let makeActivities: () => ReturnType<typeof createDeliveryActivities>;
  let activities: ReturnType<typeof createDeliveryActivities>;
  /** Stops the process of the activities that are made. */
  let stopping: AbortController;

  // A database without a relay: deliveries wait until the test has them taken.
  before(async () => {
    const shared = await makeTeam();
    own = await makeDatabase({ poolMax: POOL_MAX });
    team = { team: shared.team, em: own.orm.em.fork(), vault: shared.vault };
    await sql`insert into teams (id, name, plan) values (${team.team.id}, 'Team', 'BUSINESS')`.execute(kysely(team.em));
  });
  after(() => own.drop());
  beforeEach(async () => {
    post = async () => SUCCESS;
    stopping = new AbortController();
    const { env } = await stack();
    makeActivities = () =>
      createDeliveryActivities({
        env: { ...env, DATABASE_POOL_MAX: POOL_MAX },
        orm: own.orm,
        vault: team.vault,
        stopping: stopping.signal,
        countAttempts: () => undefined,
        log: pino({ level: "silent" }),
        client: { post: (request) => post(request) },
        onRoom: () => undefined,
        busyEndpoints: new BusyEndpoints(),
      });
    activities = makeActivities();
  });
  afterEach(async () => {
    await sql`delete from webhook_endpoints`.execute(kysely(team.em));
    await sql`delete from webhook_deliveries`.execute(kysely(team.em));
    await sql`delete from webhook_groups`.execute(kysely(team.em));
  });

  /** An endpoint that has answered lately. */
  async function makeWorkingEndpoint(): Promise<string> {
    const { id } = await makeEndpoint(team, { url: PUBLIC_URL });
    await sql`update webhook_health set last_success_at = now() where webhook_id = ${id}`.execute(kysely(team.em));
    return id;
  }

  /** Makes events, as the relay does. @returns the groups that are formed at once */
  async function queue(count: number): Promise<Group[]> {
    await emitSome(team, count);
    const { groups } = await fanOut(own.orm.em.fork());
    return groups;
  }

  /** Not a brief attempt: a busy machine might not begin all requests of a group within its 2 s. */
  const attempt = ({ id: groupId }: Group) =>
    asyncLocalStorage.run({ info: {}, heartbeat: () => {} } as unknown as Context, () =>
      activities.attemptGroup({
        ...{ groupId, teamId: team.team.id, attempt: 1, retryInMs: LONG_MS, keepForMs: LONG_MS },
      }),
    );

  /** How many deliveries of an endpoint wait, and how many each group has. */
  async function grouped(webhookId: string) {
    const log = await logOf(team, webhookId);
    return {
      waiting: log.filter(({ group_id }) => group_id === null).length,
      groups: [
        ...Map.groupBy(
          log.filter(({ group_id }) => group_id),
          ({ group_id }) => group_id,
        ),
      ].map(([id, members]) => [id, members.length]),
    };
  }

  it("is formed with its deliveries where no other waits", async () => {
    const webhookId = await makeWorkingEndpoint();
    const groups = await queue(3);
    assert.deepEqual(
      groups.map(({ size, attempt, localFirstAttempt }) => [size, attempt, localFirstAttempt]),
      [[3, 1, true]],
    );
    assert.deepEqual(await grouped(webhookId), { waiting: 0, groups: [[groups[0]?.id, 3]] });
    assert.deepEqual(await queue(2), [], "while it is under way");
    assert.equal((await grouped(webhookId)).waiting, 2);
    await sql`delete from webhook_groups`.execute(kysely(team.em));
    assert.deepEqual(await queue(2), [], "older ones wait");
    assert.deepEqual(
      (await formGroups(own.orm.em.fork())).map(({ size }) => size),
      [4],
    );
  });

  it("takes the deliveries that came since, when it was full", async () => {
    const webhookId = await makeWorkingEndpoint();
    const [group] = await queue(GROUP_SIZE);
    assert.ok(group);
    // A full group of them would be formed.
    for (let part = 0; part < 3; part++) await queue(GROUP_SIZE - 1);
    const all = GROUP_SIZE + 3 * (GROUP_SIZE - 1);
    const sent: (string | undefined)[] = [];
    post = async ({ headers }) => {
      sent.push(headers["X-Service-Delivery-Id"]);
      return SUCCESS;
    };
    assert.deepEqual(await attempt(group), { next: "done", succeeded: all, failed: 0, blocked: 0 });
    assert.equal(new Set(sent).size, all);
    assert.equal(sent.length, all);
    assert.deepEqual(await grouped(webhookId), { waiting: 0, groups: [[group.id, all]] });
    const log = await logOf(team, webhookId);
    assert.ok(log.every(({ status, response_status }) => status === "SUCCEEDED" && response_status === 204));
    const { rows } = await sql`select from webhook_groups where id = ${group.id}`.execute(kysely(team.em));
    assert.equal(rows.length, 0, "it has ended");
  });

  for (const [name, latencyMs, taken] of [
    ["200 at once of those that wait", 0, 200],
    ["100 at once where the last ones took so long that 200 would not all begin in time", 200, 100],
  ] as const) {
    it(`takes ${name}`, async () => {
      const webhookId = await makeWorkingEndpoint();
      const [group] = await queue(GROUP_SIZE);
      assert.ok(group);
      for (let part = 0; part < 5; part++) await queue(90);
      const released = Promise.withResolvers<void>();
      let count = 0;
      post = async () => {
        count++;
        // The first 100 that it takes decide on the next number by the time they take.
        if (count > 2 * GROUP_SIZE) await released.promise;
        else if (count > GROUP_SIZE) await delay(latencyMs);
        return SUCCESS;
      };
      const attempted = attempt(group);
      await eventually(() => count > 2 * GROUP_SIZE, { what: "requests of those that are taken next" });
      const left = 450 - GROUP_SIZE - taken;
      assert.deepEqual(await grouped(webhookId), { waiting: left, groups: [[group.id, 2 * GROUP_SIZE + taken]] });
      released.resolve();
      await attempted;
    });
  }

  it("takes them when it is not full only at an endpoint whose groups follow each other closely", async () => {
    const webhookId = await makeWorkingEndpoint();
    const [first] = await queue(1);
    assert.ok(first);
    await queue(2);
    await attempt(first);
    assert.equal((await grouped(webhookId)).waiting, 2);
    const [second] = await formGroups(own.orm.em.fork());
    assert.ok(second);
    await queue(3);
    await attempt(second);
    assert.deepEqual(await grouped(webhookId), {
      waiting: 0,
      groups: [
        [first.id, 1],
        [second.id, 5],
      ],
    });
  });

  const NOT_TAKEN: [
    string,
    (webhookId: string, groupId: string) => Promise<unknown>,
    ((response: number) => number)?,
  ][] = [
    ["one of its own fails", async () => undefined, (n) => (n === 50 ? 500 : 204)],
    [
      "its endpoint is changed meanwhile",
      (id) =>
        sql`update webhook_endpoints set url = 'https://1.1.1.1/' where id = ${id}`.execute(kysely(team.em.fork())),
    ],
    [
      "its endpoint is switched off meanwhile",
      (id) => sql`update webhook_endpoints set active = false where id = ${id}`.execute(kysely(team.em.fork())),
    ],
    [
      "another process has taken its attempt over",
      (_, id) => sql`update webhook_groups set epoch = epoch + 1 where id = ${id}`.execute(kysely(team.em.fork())),
    ],
  ];
  for (const [name, meanwhile, statusOf = () => 204] of NOT_TAKEN) {
    it(`takes none when ${name}`, async () => {
      const webhookId = await makeWorkingEndpoint();
      const [group] = await queue(GROUP_SIZE);
      assert.ok(group);
      await queue(20);
      let changed: Promise<unknown> | undefined;
      let count = 0;
      post = async () => {
        const status = statusOf(++count);
        changed ??= meanwhile(webhookId, group.id);
        await changed;
        return { kind: "answered", status, body: "", durationMs: 1 };
      };
      await attempt(group);
      assert.equal(count, GROUP_SIZE);
      assert.equal((await grouped(webhookId)).waiting, 20);
    });
  }

  it("attempts what it took again after a crash, under the same workflow", async () => {
    const webhookId = await makeWorkingEndpoint();
    const [group] = await queue(GROUP_SIZE);
    assert.ok(group);
    await queue(20);
    const lost = Promise.withResolvers<typeof SUCCESS>();
    const allLost = Promise.withResolvers<void>();
    let count = 0;
    post = async () => {
      count++;
      if (count === GROUP_SIZE + 16) allLost.resolve();
      return count > GROUP_SIZE ? lost.promise : SUCCESS;
    };
    void attempt(group).catch(() => undefined);
    await allLost.promise;
    post = async () => SUCCESS;
    const again = await attempt(group);
    assert.deepEqual(again, { next: "done", succeeded: 20, failed: 0, blocked: 0 });
    const log = await logOf(team, webhookId);
    assert.equal(log.filter(({ status }) => status === "SUCCEEDED").length, GROUP_SIZE + 20);
    assert.equal(log.filter(({ error_message }) => /outcome is unknown/.test(error_message ?? "")).length, 20);
    assert.ok(log.every(({ group_id }) => group_id === group.id));
    lost.resolve(SUCCESS);
  });

  it("has what was in flight at a crash FAILED, not BLOCKED, when its endpoint is off by then", async () => {
    const webhookId = await makeWorkingEndpoint();
    const [group] = await queue(1);
    assert.ok(group);
    const sent = Promise.withResolvers<void>();
    const lost = Promise.withResolvers<typeof SUCCESS>();
    post = () => {
      sent.resolve();
      return lost.promise;
    };
    void attempt(group).catch(() => undefined);
    await sent.promise;
    await sql`update webhook_endpoints set active = false where id = ${webhookId}`.execute(kysely(team.em.fork()));
    assert.deepEqual(await attempt(group), { next: "done", succeeded: 0, failed: 1, blocked: 0 });
    const [row, ...more] = await logOf(team, webhookId);
    assert.deepEqual(more, []);
    assert.equal(row?.status, "FAILED");
    assert.match(row?.error_message ?? "", /outcome is unknown.*switched off; replay/);
    lost.resolve(SUCCESS);
  });

  // The first part had been asked to wait, the last one brought successes alone: the group was attempted again at once.
  it("waits as long as the first part of a long attempt was asked to", async () => {
    const webhookId = await makeWorkingEndpoint();
    const [group] = await queue(GROUP_SIZE);
    assert.ok(group);
    const sent: (string | undefined)[] = [];
    post = async ({ headers }) => {
      sent.push(headers["X-Service-Delivery-Id"]);
      if (sent.length === GROUP_SIZE / 2) stopping.abort();
      return sent.length === 1 ? { ...SUCCESS, status: 429, retryAfterSeconds: 600 } : SUCCESS;
    };
    assert.equal((await attempt(group)).next, "more");
    stopping = new AbortController();
    activities = makeActivities();
    const ended = await attempt(group);
    assert.ok(ended.next === "retry" && ended.left === 1 && ended.waitMs > LONG_MS, JSON.stringify(ended));
    const { rows } = await sql<{ same: boolean }>`select d.next_attempt_at = g.due_at as same
      from webhook_deliveries d join webhook_groups g on g.id = d.group_id
      where d.webhook_id = ${webhookId} and d.status = 'RETRYING'`.execute(kysely(team.em));
    assert.deepEqual(rows, [{ same: true }]);
    // An outcome that came while others were being written was lost, and the delivery made again under the same id.
    assert.equal(new Set(sent).size, GROUP_SIZE);
    assert.equal(sent.length, GROUP_SIZE);
  });
});

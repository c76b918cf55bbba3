import assert from "node:assert/strict";
import type { ServerResponse } from "node:http";
import { sql } from "kysely";
import pino from "pino";
import { AttemptSlice } from "../../activities/webhooks/attempt-slice.ts";
import type { DeliveryClient } from "../../activities/webhooks/http-client.ts";
import { LateEndpoints } from "../../activities/webhooks/late-endpoints.ts";
import { SharedPlaces } from "../../activities/webhooks/shared-places.ts";
import { SuccessWriter } from "../../activities/webhooks/success-writer.ts";
import { kysely } from "../../db/orm.ts";
import { transaction } from "../../db/transaction.ts";
import { newId } from "../../domain/ids.ts";
import { closeAttempt } from "../../domain/webhooks/attempts.ts";
import type { Answer } from "../../domain/webhooks/classify.ts";
import { openAttempt } from "../../domain/webhooks/open-attempt.ts";
import { GROUP_SIZE } from "../../domain/webhooks/plan-groups.ts";
import { eventually } from "../support/eventually.ts";
import type { TestTeam } from "../support/factories.ts";
import { openReceiver, openReceiverClient, type Receiver } from "../support/receiver.ts";
import { insertDelivery, makeEndpoint, makeTeam } from "../support/webhooks.ts";
import { setHealth, untilHealthIsAwaited } from "./observing.ts";

/** Requests that a group has in flight at once; the same at an endpoint that answers late. */
const IN_FLIGHT = 16;
const IN_FLIGHT_WHILE_SLOW = 100;
/** The same while none of its requests was answered yet. */
const IN_FLIGHT_BEFORE_SUCCESS = 50;
/** Requests to the late endpoints of a team, beyond the first of each group. */
const MOST_LATE_REQUESTS = 450;
/** Answered deliveries of a group whose outcomes are not written yet, at most. */
const MOST_UNSETTLED = 16;
/** No request and no slice ends by itself within a test. */
const LONG_MS = 300_000;

const answer = (response: ServerResponse): void => void response.writeHead(204).end();

describe("An attempt of a full group", () => {
  let receiver: Receiver;
  let client: DeliveryClient;
  let team: TestTeam;
  /** Answers that are held back, with the path of their request. */
  let held: { path: string; response: ServerResponse }[];
  let mayHold: (before: number) => boolean;
  let lateEndpoints: LateEndpoints;
  /** The process that makes the requests reads their answers late itself. */
  let isBusy: boolean;

  before(async () => {
    team = await makeTeam();
    client = openReceiverClient(LONG_MS);
  });
  after(() => client.close());
  beforeEach(async () => {
    held = [];
    isBusy = false;
    lateEndpoints = new LateEndpoints(() => isBusy);
    receiver = await openReceiver(({ path }, response) => {
      if (mayHold(receiver.received.length - 1)) held.push({ path, response });
      else answer(response);
    });
  });
  afterEach(() => receiver.close());

  /** Answers all that are held back, and those that come from now on. */
  function release(): void {
    mayHold = () => false;
    for (const { response } of held.splice(0)) answer(response);
  }

  /** @param lastSuccessAt null for one that has not answered before */
  async function makeReceivingEndpoint(lastSuccessAt: Date | null, path = "/slice"): Promise<string> {
    const { id } = await makeEndpoint(team, { url: `${receiver.origin}${path}` });
    await setHealth(team, id, { last_success_at: lastSuccessAt });
    return id;
  }

  /** Begins an attempt of a group that no workflow carries. */
  async function begin(webhookId: string, { post = client.post, beginForMs = LONG_MS } = {}) {
    const groupId = newId("group");
    const tenant = { team_id: team.team.id, environment: "LIVE" } as const;
    const db = kysely(team.em.fork());
    await db
      .insertInto("webhook_groups")
      .values({ id: groupId, ...tenant, webhook_id: webhookId, size: GROUP_SIZE, lane: "NEW", begun_at: new Date() })
      .execute();
    const { event_id, event_type } = await insertDelivery(team, webhookId);
    const pending = { ...tenant, webhook_id: webhookId, event_id, event_type, group_id: groupId };
    await db
      .insertInto("webhook_deliveries")
      .values(Array.from({ length: GROUP_SIZE }, () => ({ ...pending, id: newId("delivery"), status: "PENDING" })))
      .execute();

    const em = team.em.fork();
    const opened = await openAttempt(em, { groupId, attempt: 1, keepForMs: LONG_MS });
    assert.equal(opened.state, "open");
    const connections = new SharedPlaces(10);
    const deps = {
      vault: team.vault,
      stopping: new AbortController().signal,
      countAttempts: () => undefined,
      log: pino({ level: "silent" }),
      client: { post },
      requests: new SharedPlaces(1_000),
      connections,
      successes: new SuccessWriter(team.em, connections),
      lateEndpoints,
    };
    const retries = { retryInMs: LONG_MS, isLast: false, isProbe: false };
    const slice = new AttemptSlice(deps, em, team.team.id, opened.destination, retries);
    const sent = slice.send(opened.due, beginForMs);
    const count = async (status: string) => {
      const { rows } = await sql<{ count: number }>`select count(*)::int as count from webhook_deliveries
        where group_id = ${groupId} and status = ${status}`.execute(db);
      return rows[0]?.count ?? 0;
    };
    const end = async () => {
      release();
      assert.equal(await sent, undefined);
      assert.equal(slice.counts.succeeded, GROUP_SIZE);
      const left = await closeAttempt(em, { groupId, epoch: opened.epoch, attemptsUsed: 1 });
      assert.deepEqual([left.pending, left.retrying], [0, 0]);
    };
    return { count, end, sent };
  }

  const untilHeld = (count: number) =>
    eventually(() => held.length === count, { what: `${count} requests in flight at once` });

  it("has more requests in flight at a working endpoint that answers late", async () => {
    mayHold = () => true;
    const { end } = await begin(await makeReceivingEndpoint(new Date()));
    await untilHeld(IN_FLIGHT_BEFORE_SUCCESS);
    await end();
    assert.equal(receiver.received.length, GROUP_SIZE);
  });

  it("has them from its beginning where the latest answer was late, 450 of a team", async () => {
    mayHold = () => true;
    const webhookId = await makeReceivingEndpoint(new Date());
    const countFree = () => {
      let free = 0;
      while (lateEndpoints.take(team.team.id)) free++;
      for (let n = 0; n < free; n++) lateEndpoints.giveBack(team.team.id);
      return free;
    };
    assert.equal(countFree(), MOST_LATE_REQUESTS);
    lateEndpoints.note(webhookId, true);
    const { end } = await begin(webhookId);
    // No timer has run since the slice began.
    assert.equal(countFree(), MOST_LATE_REQUESTS - (IN_FLIGHT_WHILE_SLOW - IN_FLIGHT));
    await untilHeld(IN_FLIGHT_WHILE_SLOW);
    await end();
    assert.equal(countFree(), MOST_LATE_REQUESTS);
    isBusy = true;
    assert.equal(countFree(), 0);
    lateEndpoints.note(webhookId, false);
    lateEndpoints.note(webhookId, true);
    assert.equal(lateEndpoints.isLate(webhookId), false);
  });

  it("has no more of them at an endpoint that has not answered before, until it has", async () => {
    mayHold = () => true;
    const path = "/unproven";
    const unproven = await begin(await makeReceivingEndpoint(null, path));
    const working = await begin(await makeReceivingEndpoint(new Date()));
    // The unproven one began first: it would have more in flight by the time at which the working one has.
    await untilHeld(IN_FLIGHT + IN_FLIGHT_BEFORE_SUCCESS);
    assert.equal(receiver.received.filter((one) => one.path === path).length, IN_FLIGHT);
    const [first] = held.splice(
      held.findIndex((one) => one.path === path),
      1,
    );
    assert.ok(first);
    answer(first.response);
    // All of its deliveries that are left.
    await untilHeld(GROUP_SIZE - 1 + IN_FLIGHT_BEFORE_SUCCESS);
    await unproven.end();
    await working.end();
  });

  it("writes the outcomes of answered requests while others hang", async () => {
    mayHold = (before) => before >= GROUP_SIZE - IN_FLIGHT;
    const { count, end } = await begin(await makeReceivingEndpoint(new Date()));
    await untilHeld(IN_FLIGHT);
    await eventually(async () => (await count("SUCCEEDED")) === GROUP_SIZE - IN_FLIGHT, {
      what: "the outcomes of the others",
    });
    assert.equal(await count("PENDING"), IN_FLIGHT);
    await end();
  });

  it("begins no request after its time when its process was frozen until then", async () => {
    const webhookId = await makeReceivingEndpoint(new Date());
    const answers: (() => void)[] = [];
    const post = () =>
      new Promise<Answer>((resolve) => {
        answers.push(() => resolve({ kind: "answered", status: 204, body: "", durationMs: 1 }));
      });
    const beginForMs = 2_000;
    const { sent, count } = await begin(webhookId, { post, beginForMs });
    await eventually(() => answers.length === IN_FLIGHT, { what: "the first requests" });
    // Its timers have not run when it reads the answers.
    for (const until = performance.now() + beginForMs; performance.now() < until; );
    for (const answer of answers.splice(0)) answer();
    assert.equal(await sent, undefined);
    assert.equal(answers.length, 0);
    assert.equal(await count("SUCCEEDED"), IN_FLIGHT);
  });

  it("begins no further request while the outcomes of many are not written", async () => {
    mayHold = () => false;
    const webhookId = await makeReceivingEndpoint(null);
    await setHealth(team, webhookId, { consecutive_failures: 1 });
    const { end } = await transaction(team.em, async (tx) => {
      // The first outcomes wait for this lock: they end the endpoint's failures.
      await sql`select from webhook_health where webhook_id = ${webhookId} for update`.execute(kysely(tx));
      const begun = await begin(webhookId);
      await untilHealthIsAwaited(team);
      assert.ok(receiver.received.length < IN_FLIGHT + MOST_UNSETTLED, `${receiver.received.length} requests`);
      return begun;
    });
    await end();
  });
});

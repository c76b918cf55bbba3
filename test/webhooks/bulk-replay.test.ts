import assert from "node:assert/strict";
import type { Client } from "@temporalio/client";
import { sql } from "kysely";
import { transaction } from "../../db/transaction.ts";
import {
  countReplayable,
  MOST_AT_ONCE,
  type ReplayFilter,
  replayDeliveries,
} from "../../domain/webhooks/bulk-replay.ts";
import { commandEndpoint } from "../../domain/webhooks/commands.ts";
import { FAILING_AFTER } from "../../domain/webhooks/endpoint-health.ts";
import { api } from "../support/api.ts";
import { app } from "../support/command.ts";
import { testsOf } from "../support/long.ts";
import type { Receiver } from "../support/receiver.ts";
import { together } from "../support/together.ts";
import {
  emitSome,
  insertDelivery,
  insertFailed,
  logOf,
  makeEndpoint,
  makeTeam,
  QUIET_EVENT,
  type TestEndpoint,
} from "../support/webhooks.ts";
import {
  answerWith,
  assertAllHeaders,
  header,
  type Row,
  receivingBesideTemporal,
  setEndpoint,
  setHealth,
  untilAtRest,
  untilLog,
  untilOver,
} from "./observing.ts";

const SINCE = ["--since", "2020-01-01T00:00:00Z"];

describe("A bulk replay", () => {
  const { it, longIt } = testsOf(together());
  let receiver: Receiver;
  let temporal: Client;
  receivingBesideTemporal((...opened) => {
    [receiver, temporal] = opened;
  });

  type Team = Awaited<ReturnType<typeof makeTeam>>;

  const replay = async (...args: string[]) => {
    const ran = await app("webhook:replay", "--json", ...args);
    assert.equal(ran.code, 0, ran.stderr);
    return ran.json;
  };

  /** Rows of deliveries that failed for good, to an endpoint that works now. */
  async function failed(name: string, count: number): Promise<{ team: Team; endpoint: TestEndpoint }> {
    const team = await makeTeam();
    const endpoint = await makeEndpoint(team, { url: `${receiver.origin}/${name}` });
    for (let n = 0; n < count; n++) await insertDelivery(team, endpoint.id, { status: "FAILED", response_status: 410 });
    return { team, endpoint };
  }

  const filter = (webhookId: string, of: Partial<ReplayFilter> = {}): ReplayFilter => ({
    teamId: null,
    webhookId,
    statuses: ["FAILED", "BLOCKED"],
    since: new Date("2020-01-01"),
    until: new Date(Date.now() + 60_000),
    ...of,
  });
  /** The count of the dry run. */
  const left = async ({ em }: Team, { id }: TestEndpoint, of: Partial<ReplayFilter> = {}): Promise<number> => {
    const counts = await countReplayable(em.fork(), filter(id, of));
    return counts.reduce((sum, { deliveries }) => sum + deliveries, 0);
  };
  /** The same as the command. */
  const replayAt = (team: Team, { id }: TestEndpoint, perSecond: number) =>
    transaction(team.em.fork(), (tx) => replayDeliveries(tx, filter(id), perSecond));

  const replaysIn = (log: readonly Row[]) => log.filter(({ is_replay }) => is_replay);
  const untilReplayed = (team: Team, { id }: TestEndpoint, count: number) =>
    untilLog(team, id, (log) => replaysIn(log).filter(({ status }) => status === "SUCCEEDED").length === count);

  it("counts first with --dry-run, by endpoint and status, and changes nothing", async () => {
    const { team, endpoint } = await failed("dry", 4);
    const off = await makeEndpoint(team, {
      url: `${receiver.origin}/dry-off`,
      set: { active: false, disabled_reason: "delivery_failures" },
    });
    await emitSome(team, 3);
    await untilOver(team, off.id, 3);
    await untilOver(team, endpoint.id, 7);
    const counted = await replay("--dry-run", ...SINCE, "--team", team.team.id);
    assert.deepEqual([counted.dry_run, counted.would_replay, counted.left_alone], [true, 4, 3]);
    const facts = { team: team.team.id, environment: "LIVE" };
    const byId = (a: { webhook: string }, b: { webhook: string }) => a.webhook.localeCompare(b.webhook);
    assert.deepEqual(
      counted.endpoints.toSorted(byId),
      [
        { webhook: endpoint.id, ...facts, status: "FAILED", active: true, deliveries: 4 },
        { webhook: off.id, ...facts, status: "BLOCKED", active: false, deliveries: 3 },
      ].toSorted(byId),
    );
    assert.deepEqual(replaysIn(await logOf(team, endpoint.id)), []);
    assert.equal(await left(team, endpoint, { statuses: ["BLOCKED"] }), 0);
  });

  it("sends the events again as deliveries of their own, marked as replays, once however often it is asked for", async () => {
    const team = await makeTeam();
    const endpoint = await makeEndpoint(team, { url: `${receiver.origin}/again` });
    receiver.behaveAt("/again", answerWith(410));
    await emitSome(team, 4);
    const log = await untilOver(team, endpoint.id, 4);
    receiver.behaveAt("/again", answerWith(204));
    const done = await replay(...SINCE, "--webhook", endpoint.id, "--event", "newsletter.started");
    assert.equal(done.replayed, 4);
    const after = await untilReplayed(team, endpoint, 4);
    const replays = replaysIn(after);
    assert.deepEqual(new Set(replays.map(({ replay_of_id }) => replay_of_id)), new Set(log.map(({ id }) => id)));
    for (const row of replays) {
      const original = log.find(({ id }) => id === row.replay_of_id);
      assert.equal(row.event_id, original?.event_id);
      assert.deepEqual([row.attempt, row.team_id, row.environment], [1, team.team.id, "LIVE"]);
    }
    const arrived = assertAllHeaders(receiver, "/again", after, endpoint);
    const marked = arrived.filter((one) => header(one, "X-Service-Replay") === "true");
    assert.equal(marked.length, 4);
    for (const one of marked) {
      const first = arrived.find(
        (other) => other !== one && header(other, "X-Service-Event-Id") === header(one, "X-Service-Event-Id"),
      );
      assert.equal(first?.body, one.body, "byte for byte the same");
    }
    assert.equal(await left(team, endpoint), 0);
    assert.equal((await replay(...SINCE, "--webhook", endpoint.id)).would_replay, 0);
    assert.equal(replaysIn(await logOf(team, endpoint.id)).length, 4);
  });

  it("is POST /webhooks/{id}/replays too: final attempts by time, type and status, with how many there are", async () => {
    const { team, endpoint } = await failed("api", 3);
    const log = await logOf(team, endpoint.id);
    const client = api(team.keys.live);
    const path = `/webhooks/${endpoint.id}/replays`;
    const since = "2020-01-01T00:00:00.000Z";
    for (const [body, expected] of [
      [{ since, event_types: [QUIET_EVENT], statuses: ["FAILED"] }, 3],
      [{ since, event_types: ["contact.created"] }, 0],
      [{ since, statuses: ["BLOCKED"] }, 0],
      [{ since, until: "2020-01-02T00:00:00Z" }, 0],
    ] as const) {
      const { body: dry } = await client.post(path, body, { query: { dry_run: "true" } });
      assert.equal(dry.meta?.impact.would_create, expected, JSON.stringify([body, dry]));
    }
    const requested = await client.post(path, { since });
    assert.equal(requested.status, 202, requested.text);
    const { until, last_due_at, ...rest } = requested.body.data;
    assert.deepEqual(rest, { object: "webhook_replay", webhook_id: endpoint.id, replayed: 3, has_more: false });
    // The process's clock says the one, that of Postgres the other.
    assert.ok(Math.abs(Date.parse(until) - Date.parse(last_due_at)) < 5_000, requested.text);
    const originals = (await untilReplayed(team, endpoint, 3)).filter((row) => log.some((one) => one.id === row.id));
    assert.ok(originals.every(({ superseded_by_id }) => superseded_by_id !== null));
    const { data: again } = (await client.post(path, { since })).body;
    assert.deepEqual([again.replayed, again.last_due_at], [0, null]);
    const refused = await client.post(path, { since, until: since });
    assert.deepEqual([refused.status, refused.body.error.param], [400, "since"]);
    await setEndpoint(team, endpoint.id, { active: false, disabled_reason: "manual" });
    assert.equal((await client.post(path, { since })).body.error.code, "resource_state_invalid");
  });

  longIt(
    "takes the last attempt of each delivery, of the time asked for, and a replay that failed as well",
    async () => {
      const team = await makeTeam();
      const endpoint = await makeEndpoint(team, { url: `${receiver.origin}/last` });
      receiver.behaveAt("/last", (...first) => {
        receiver.behaveAt("/last", answerWith(410));
        answerWith(500)(...first);
      });
      await emitSome(team, 1);
      const log = await untilOver(team, endpoint.id);
      assert.equal(log.length, 2);
      assert.equal(await left(team, endpoint), 1);
      assert.equal(await left(team, endpoint, { since: new Date(Date.now() + 60_000) }), 0);
      assert.equal(await left(team, endpoint, { until: new Date("2020-01-02") }), 0);
      assert.equal(await left(team, endpoint, { teamId: (await makeTeam()).team.id }), 0);

      await replayAt(team, endpoint, 100);
      await untilLog(
        team,
        endpoint.id,
        (rows) => replaysIn(rows).filter(({ status }) => status === "FAILED").length === 1,
      );
      receiver.behaveAt("/last", answerWith(204));
      await replayAt(team, endpoint, 100);
      const after = await untilReplayed(team, endpoint, 1);
      assert.equal(replaysIn(after).length, 2);
      assert.equal(new Set(after.map(({ event_id }) => event_id)).size, 1);
      assert.equal(await left(team, endpoint), 0);
    },
  );

  it("has them due one after the other at its rate, behind the replays that wait, and shows when", async () => {
    const { team, endpoint } = await failed("rate", 3);
    const perHour = 1 / 3_600;
    const { lastDueAt } = await replayAt(team, endpoint, perHour);
    const first = await untilReplayed(team, endpoint, 1);
    const dueIn = (rows: readonly Row[]) =>
      replaysIn(rows)
        .filter(({ status }) => status === "PENDING")
        .map((row) => [row.replay_of_id, Date.parse(row.next_attempt_at ?? "") - Date.parse(row.created_at)]);
    const [, second, third] = first.filter(({ is_replay }) => !is_replay);
    assert.deepEqual(dueIn(first), [
      [second?.id, 3_600_000],
      [third?.id, 7_200_000],
    ]);
    const [, , last] = replaysIn(first);
    assert.equal(Date.parse(last?.next_attempt_at ?? ""), Date.parse(lastDueAt ?? ""));
    const shown = await api(team.keys.live).get(`/webhooks/${endpoint.id}/deliveries/${last?.id}`);
    assert.equal(shown.body.data.next_attempt_at, lastDueAt);

    const { id: fourth } = await insertDelivery(team, endpoint.id, { status: "BLOCKED" });
    const behind = await replayAt(team, endpoint, perHour);
    assert.deepEqual([behind.replayed, behind.lastDueAt], [1, lastDueAt]);
    assert.equal(
      (await logOf(team, endpoint.id)).find((row) => row.replay_of_id === fourth)?.next_attempt_at,
      last?.next_attempt_at,
    );
  });

  it("delivers a new event, and retries that a working endpoint gets at once, before replays that wait", async () => {
    const { team, endpoint } = await failed("fresh", 2);
    await replayAt(team, endpoint, 1 / 3_600);
    await untilReplayed(team, endpoint, 1);
    await untilAtRest(temporal, endpoint.id);
    const { id: retried } = await insertDelivery(team, endpoint.id, {
      ...{ status: "RETRYING", attempts_used: 1, next_attempt_at: new Date(Date.now() + 86_400_000) },
    });
    await setHealth(team, endpoint.id, {
      consecutive_failures: FAILING_AFTER,
      failing_since: sql`now()`,
      probe_at: sql`now()`,
    });
    await emitSome(team, 1);
    const log = await untilLog(
      team,
      endpoint.id,
      (rows) =>
        rows.some((row) => row.event_type === "newsletter.started" && row.status === "SUCCEEDED") &&
        rows.some((row) => row.first_id === retried && row.status === "SUCCEEDED"),
    );
    assert.deepEqual(
      replaysIn(log)
        .map(({ status }) => status)
        .sort(),
      ["PENDING", "SUCCEEDED"],
    );
  });

  it("is held by a pause of the endpoint, and ended by a switch-off, which keeps it for a later replay", async () => {
    const { team, endpoint } = await failed("held", 20);
    await commandEndpoint(team.em.fork(), endpoint.id, "pause");
    assert.equal((await replayAt(team, endpoint, 10)).replayed, 20);
    await setEndpoint(team, endpoint.id, { active: false, disabled_reason: "manual" });
    const log = await untilOver(team, endpoint.id, 20);
    assert.deepEqual([...new Set(replaysIn(log).map(({ status }) => status))], ["BLOCKED"]);
    await setEndpoint(team, endpoint.id, { active: true, disabled_reason: null });
    assert.equal((await replayAt(team, endpoint, 1_000)).replayed, 20);
    await commandEndpoint(team.em.fork(), endpoint.id, "resume");
    await untilReplayed(team, endpoint, 20);
    assert.equal(receiver.received.filter(({ path }) => path === "/held").length, 20, "none before");
  });

  it("queues the oldest of more than one statement takes, says that there are more, and the command takes them all", async () => {
    const { team, endpoint } = await failed("many", 0);
    await insertFailed(team, endpoint.id, MOST_AT_ONCE + 5);
    await commandEndpoint(team.em.fork(), endpoint.id, "pause");
    const { replayed, hasMore } = await replayAt(team, endpoint, 5_000);
    assert.deepEqual([replayed, hasMore, await left(team, endpoint)], [MOST_AT_ONCE, true, 5]);
    await insertFailed(team, endpoint.id, MOST_AT_ONCE);
    const done = await replay(...SINCE, "--webhook", endpoint.id, "--per-second", "5000");
    assert.deepEqual([done.replayed, await left(team, endpoint)], [MOST_AT_ONCE + 5, 0]);
    assert.equal(await commandEndpoint(team.em.fork(), endpoint.id, "cancelWaiting"), 2 * MOST_AT_ONCE + 5);
  });

  it("refuses a call without --since, and a status that is none of a final failure", async () => {
    const [without, succeeded] = await Promise.all([
      app("webhook:replay", "--json"),
      app("webhook:replay", "--json", ...SINCE, "--status", "SUCCEEDED"),
    ]);
    for (const { code } of [without, succeeded]) assert.notEqual(code, 0);
    assert.match(without.stderr + without.stdout, /--since/);
  });
});

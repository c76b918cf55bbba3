import assert from "node:assert/strict";
import type { Client } from "@temporalio/client";
import { sql } from "kysely";
import { kysely } from "../../db/orm.ts";
import { countReplayable, type ReplayFilter, readReplay, requestReplay } from "../../domain/webhooks/bulk-replay.ts";
import { replayWorkflowId } from "../../temporal/ids.ts";
import { api } from "../support/api.ts";
import { app } from "../support/command.ts";
import { eventually } from "../support/eventually.ts";
import { testsOf } from "../support/long.ts";
import type { Receiver } from "../support/receiver.ts";
import { together } from "../support/together.ts";
import {
  emitSome,
  insertDelivery,
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
  setReplayRate,
  untilDetails,
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
  /** Requests the same as the command. @returns the replay's id */
  const ask = (team: Team, { id }: TestEndpoint, perSecond: number): Promise<string> =>
    requestReplay(team.em, filter(id), { perSecond, total: 1 });

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
    const { rows } = await sql<{ asked: number }>`
      select count(*)::int as asked from webhook_replays where team_id = ${team.team.id}`.execute(kysely(team.em));
    assert.deepEqual(rows, [{ asked: 0 }]);
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
    assert.equal(done.workflow, replayWorkflowId(done.replay));
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

  it("is POST /webhooks/{id}/replays too: final attempts by time, type and status, with its progress", async () => {
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
    const { id, created_at, until, ...rest } = requested.body.data;
    const facts = { object: "webhook_replay", webhook_id: endpoint.id, since, event_types: [] };
    const running = { status: "RUNNING", total: 3, replayed: 0, completed_at: null };
    assert.deepEqual(rest, { ...facts, statuses: ["FAILED", "BLOCKED"], ...running });
    await untilReplayed(team, endpoint, 3);
    const isCompleted = async () => (await client.get(`${path}/${id}`)).body.data.status === "COMPLETED";
    await eventually(isCompleted, { what: "its end" });
    const { replayed, completed_at } = (await client.get(`${path}/${id}`)).body.data;
    assert.deepEqual([replayed, completed_at !== null], [3, true]);
    const originals = (await logOf(team, endpoint.id)).filter((row) => log.some((one) => one.id === row.id));
    assert.ok(originals.every(({ superseded_by_id }) => superseded_by_id !== null));
    const { data: again } = (await client.post(path, { since })).body;
    assert.deepEqual([again.status, again.total], ["COMPLETED", 0]);
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

      await ask(team, endpoint, 100);
      await untilLog(
        team,
        endpoint.id,
        (rows) => replaysIn(rows).filter(({ status }) => status === "FAILED").length === 1,
      );
      receiver.behaveAt("/last", answerWith(204));
      await ask(team, endpoint, 100);
      const after = await untilReplayed(team, endpoint, 1);
      assert.equal(replaysIn(after).length, 2);
      assert.equal(new Set(after.map(({ event_id }) => event_id)).size, 1);
      assert.equal(await left(team, endpoint), 0);
    },
  );

  longIt("queues no more a second than it may, reports its progress, and can be held", async () => {
    const { team, endpoint } = await failed("rate", 25);
    const { replay: id, total } = await replay(...SINCE, "--webhook", endpoint.id, "--per-second", "10", "--detach");
    assert.equal(total, 25);
    const handle = temporal.workflow.getHandle(replayWorkflowId(id));
    await eventually(() => handle.describe(), { what: "the workflow" });
    assert.equal(await handle.executeUpdate("pause"), "PAUSED");
    const paused = await untilDetails(handle, /Paused at \d+ of about 25\. Update: resume\./);
    const at = Number(/at (\d+)/.exec(paused)?.[1]);
    assert.ok([10, 20, 25].includes(at), paused);
    assert.equal(replaysIn(await logOf(team, endpoint.id)).length, at);
    assert.equal(await handle.executeUpdate("resume"), "continues");
    const watched = await replay("--resume", id);
    assert.deepEqual([watched.replay, watched.replayed], [id, 25]);
    assert.deepEqual(await handle.result(), { replayed: 25 });
    await untilReplayed(team, endpoint, 25);
  });

  it("leaves an endpoint alone that was stopped meanwhile, and ends", async () => {
    const { team, endpoint } = await failed("off", 20);
    const id = await ask(team, endpoint, 5);
    await eventually(async () => replaysIn(await logOf(team, endpoint.id)).length > 0, {
      what: "some replays",
    });
    await setEndpoint(team, endpoint.id, { active: false, disabled_reason: "manual" });
    const progress = await eventually(
      async () => {
        const { done, replayed } = (await readReplay(team.em.fork(), id)) ?? { done: false, replayed: 0 };
        return done ? { replayed } : undefined;
      },
      { what: "its end" },
    );
    const replayed = progress?.replayed ?? 0;
    assert.ok(replayed >= 5 && replayed <= 20);
    assert.equal(replaysIn(await logOf(team, endpoint.id)).filter(({ attempt }) => attempt === 1).length, replayed);
  });

  it("refuses a call without --since, and an id that is no replay's", async () => {
    const [without, unknown, succeeded] = await Promise.all([
      app("webhook:replay", "--json"),
      app("webhook:replay", "--json", "--resume", "rpl_0"),
      app("webhook:replay", "--json", ...SINCE, "--status", "SUCCEEDED"),
    ]);
    for (const { code } of [without, unknown, succeeded]) assert.notEqual(code, 0);
    assert.match(without.stderr + without.stdout, /--since/);
    assert.match(unknown.stderr + unknown.stdout, /There is no replay/);
  });

  it("continues once a relay finds that Temporal lost it, and ends if an operator terminated it", async () => {
    const { team, endpoint } = await failed("bulk", 8);
    const progress = async (id: string) => {
      const { done, replayed } = (await readReplay(team.em.fork(), id)) ?? { done: false, replayed: 0 };
      return done ? replayed : undefined;
    };
    const askAndPause = async () => {
      const id = await ask(team, endpoint, 1);
      const handle = temporal.workflow.getHandle(replayWorkflowId(id));
      await eventually(() => handle.executeUpdate("pause"), { what: "the workflow" });
      await untilDetails(handle, /Paused/);
      return { id, handle };
    };
    const one = await askAndPause();
    await one.handle.terminate("enough");
    const first = Number(await eventually(() => progress(one.id), { what: "its end" }));
    assert.ok(first >= 1 && first < 8);
    assert.equal((await one.handle.describe()).status.name, "TERMINATED");

    const two = await askAndPause();
    await setReplayRate(team, two.id, 100);
    const workflowExecution = { workflowId: two.handle.workflowId };
    await temporal.workflowService.deleteWorkflowExecution({
      namespace: temporal.options.namespace,
      workflowExecution,
    });
    assert.equal(await eventually(() => progress(two.id), { what: "its end" }), 8 - first);
    assert.equal((await untilReplayed(team, endpoint, 8)).length, 16);
  });
});

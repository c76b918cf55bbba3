import assert from "node:assert/strict";
import type { Client } from "@temporalio/client";
import { sql } from "kysely";
import { kysely } from "../../db/orm.ts";
import { countReplayable, type ReplayFilter, readReplay, requestReplay } from "../../domain/webhooks/bulk-replay.ts";
import { replayWorkflowId } from "../../workflows/ids.ts";
import { app } from "../support/command.ts";
import { eventually } from "../support/eventually.ts";
import { testsOf } from "../support/long.ts";
import type { Receiver } from "../support/receiver.ts";
import { emitSome, logOf, makeEndpoint, makeTeam, type TestEndpoint } from "../support/webhooks.ts";
import {
  assertAllHeaders,
  header,
  type Row,
  receivingBesideTemporal,
  setEndpoint,
  untilDetails,
  untilLog,
  untilOver,
} from "./observing.ts";

const { it, longIt } = testsOf();

const SINCE = ["--since", "2020-01-01T00:00:00Z"];

describe("A bulk replay", () => {
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

  /** Deliveries that failed for good; the endpoint works now. */
  async function failed(
    name: string,
    count: number,
    team?: Team,
  ): Promise<{ team: Team; endpoint: TestEndpoint; log: Row[] }> {
    const of = team ?? (await makeTeam());
    receiver.behave = (_, response) => void response.writeHead(410).end();
    const endpoint = await makeEndpoint(of, { url: `${receiver.origin}/${name}` });
    await emitSome(of, count);
    const log = await untilOver(of, endpoint.id, count);
    assert.ok(log.every(({ status }) => status === "FAILED"));
    receiver.behave = (_, response) => void response.writeHead(204).end();
    return { team: of, endpoint, log };
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
    const { team, endpoint, log } = await failed("again", 5);
    const done = await replay(...SINCE, "--webhook", endpoint.id, "--status", "FAILED,BLOCKED");
    assert.equal(done.replayed, 5);
    assert.equal(done.workflow, replayWorkflowId(done.replay));
    const after = await untilReplayed(team, endpoint, 5);
    const replays = replaysIn(after);
    assert.deepEqual(new Set(replays.map(({ replay_of_id }) => replay_of_id)), new Set(log.map(({ id }) => id)));
    for (const row of replays) {
      const original = log.find(({ id }) => id === row.replay_of_id);
      assert.equal(row.event_id, original?.event_id);
      assert.deepEqual([row.attempt, row.team_id, row.environment], [1, team.team.id, "LIVE"]);
    }
    const arrived = assertAllHeaders(receiver, "/again", after, endpoint);
    const marked = arrived.filter((one) => header(one, "X-Service-Replay") === "true");
    assert.equal(marked.length, 5);
    for (const one of marked) {
      const first = arrived.find(
        (other) => other !== one && header(other, "X-Service-Event-Id") === header(one, "X-Service-Event-Id"),
      );
      assert.equal(first?.body, one.body, "byte for byte the same");
    }
    assert.equal(await left(team, endpoint), 0);
    assert.equal((await replay(...SINCE, "--webhook", endpoint.id)).would_replay, 0);
    assert.equal(replaysIn(await logOf(team, endpoint.id)).length, 5);
  });

  longIt(
    "takes the last attempt of each delivery, of the time asked for, and a replay that failed as well",
    async () => {
      const team = await makeTeam();
      const endpoint = await makeEndpoint(team, { url: `${receiver.origin}/last` });
      const gone: Receiver["behave"] = (_, response) => void response.writeHead(410).end();
      receiver.behave = (_, response) => {
        receiver.behave = gone;
        response.writeHead(500).end();
      };
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
      receiver.behave = (_, response) => void response.writeHead(204).end();
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
    const { events } = await handle.fetchHistory();
    const pages = (events ?? []).filter((event) => event.activityTaskCompletedEventAttributes).length;
    assert.equal(pages, 4, "10, 10, 5 and the end");
    const timers = (events ?? []).filter((event) => event.timerFiredEventAttributes).length;
    assert.equal(timers, 3, "a second after each");
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
});

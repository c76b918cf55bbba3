import assert from "node:assert/strict";
import { sql } from "kysely";
import { kysely } from "../../db/orm.ts";
import { requestReplay } from "../../domain/webhooks/bulk-replay.ts";
import { FAILING_AFTER } from "../../domain/webhooks/endpoint-health.ts";
import { app } from "../support/command.ts";
import { eventually } from "../support/eventually.ts";
import { kill } from "../support/processes.ts";
import { openReceiver, type Receiver } from "../support/receiver.ts";
import { emitSome, makeEndpoint, makeTeam } from "../support/webhooks.ts";
import {
  assertAllHeaders,
  eventIdOf,
  groupsOf,
  type Row,
  setHealth,
  states,
  untilLog,
  untilOver,
} from "./observing.ts";

describe("A webhooks worker that dies", function () {
  this.timeout(240_000);
  let receiver: Receiver;
  before(async () => {
    receiver = await openReceiver();
  });
  after(() => receiver.close());

  it("during an attempt leaves an unknown outcome, and its attempt is made again without counting as one of the ladder", async () => {
    const team = await makeTeam();
    const endpoint = await makeEndpoint(team, { url: `${receiver.origin}/crash` });
    let again: Promise<unknown> | undefined;
    receiver.behave = (_, response) => {
      if (again) response.writeHead(500).end();
      else ({ again } = kill("webhooks"));
    };
    await emitSome(team, 1);
    await receiver.until("/crash", 1);
    await again;
    const log = await untilLog(
      team,
      endpoint.id,
      (rows) => rows.length === 5 && rows.every((row) => row.status === "FAILED"),
    );
    assert.deepEqual(
      states(log).map(([attempt]) => attempt),
      [1, 2, 3, 4, 5],
    );
    const [cut, ...made] = log.toSorted((a, b) => a.attempt - b.attempt);
    assert.match(cut?.error_message ?? "", /outcome is unknown/);
    assert.deepEqual([cut?.response_status, cut?.next_attempt_at], [null, null]);
    for (const row of made) assert.equal(row.response_status, 500);
    const arrived = assertAllHeaders(receiver, "/crash", log, endpoint);
    assert.equal(arrived.length, 5, "the one in flight, and every attempt of the ladder");
    assert.equal(new Set(arrived.map(({ body }) => body)).size, 1);
  });

  it("during an attempt leaves an unknown outcome FAILED, not BLOCKED, when the endpoint is off by then", async () => {
    const team = await makeTeam();
    const endpoint = await makeEndpoint(team, { url: `${receiver.origin}/crash-off` });
    const off = sql`update webhook_endpoints set active = false, disabled_reason = 'manual' where id = ${endpoint.id}`;
    let again: Promise<unknown> | undefined;
    let stopped: Promise<unknown> | undefined;
    receiver.behave = () => {
      again ??= kill("webhooks").again;
      stopped ??= off.execute(kysely(team.em));
    };
    await emitSome(team, 1);
    await receiver.until("/crash-off", 1);
    await Promise.all([again, stopped]);
    const [row, ...more] = await untilOver(team, endpoint.id);
    assert.deepEqual(more, []);
    assert.equal(row?.status, "FAILED");
    assert.match(row?.error_message ?? "", /outcome is unknown.*switched off; replay/);
    await eventually(async () => (await groupsOf(team, endpoint.id)).length === 0, { what: "the end of the group" });
  });

  it("loses nothing when it dies during a probe", async () => {
    const team = await makeTeam();
    const endpoint = await makeEndpoint(team, { url: `${receiver.origin}/killed` });
    await setHealth(team, endpoint.id, {
      consecutive_failures: FAILING_AFTER,
      failing_since: sql`now()`,
      probe_at: sql`now() + interval '1 hour'`,
    });
    await emitSome(team, 5);
    await untilLog(team, endpoint.id, (log) => log.length === 5);
    let again: Promise<unknown> | undefined;
    receiver.behave = (_, response) => {
      if (again) response.writeHead(204).end();
      else ({ again } = kill("webhooks"));
    };
    await setHealth(team, endpoint.id, { probe_at: sql`now()` });
    const log = await untilLog(
      team,
      endpoint.id,
      (rows) => rows.filter(({ status }) => status === "SUCCEEDED").length === 5,
    );
    await again;
    assert.equal(log.length, 6);
    assert.equal(log.filter(({ error_message }) => /outcome is unknown/.test(error_message ?? "")).length, 1);
    const arrived = receiver.received.filter(({ path }) => path === "/killed");
    assert.equal(new Set(arrived.map(eventIdOf)).size, 5);
  });

  it("has a bulk replay continue, which replays each delivery once", async () => {
    const team = await makeTeam();
    receiver.behave = (_, response) => void response.writeHead(410).end();
    const endpoint = await makeEndpoint(team, { url: `${receiver.origin}/replayed` });
    await emitSome(team, 40);
    const log = await untilOver(team, endpoint.id, 40);
    receiver.behave = (_, response) => void response.writeHead(204).end();
    const replaysIn = (rows: readonly Row[]) => rows.filter(({ is_replay }) => is_replay);
    const filter = { teamId: null, webhookId: endpoint.id, statuses: ["FAILED"] as const };
    const id = await requestReplay(
      team.em,
      { ...filter, since: new Date("2020-01-01"), until: new Date(Date.now() + 60_000) },
      { perSecond: 8, total: 40 },
    );
    await untilLog(team, endpoint.id, (rows) => replaysIn(rows).length >= 8);
    const { again } = kill("webhooks");
    const watched = await app("webhook:replay", "--json", "--resume", id);
    await again;
    assert.equal(watched.json.replayed, 40, watched.stderr);
    const after = await untilLog(team, endpoint.id, (rows) => {
      const over = replaysIn(rows).filter(({ status }) => status === "SUCCEEDED");
      return new Set(over.map(({ event_id }) => event_id)).size === 40;
    });
    const first = replaysIn(after).filter(({ attempt }) => attempt === 1);
    assert.equal(first.length, 40, "queued once each");
    assert.deepEqual(new Set(first.map(({ replay_of_id }) => replay_of_id)), new Set(log.map(({ id }) => id)));
    // Only deliveries in flight when the worker died were attempted again.
    for (const row of replaysIn(after)) {
      if (row.status !== "SUCCEEDED") assert.match(row.error_message ?? "", /outcome is unknown/);
    }
  });
});

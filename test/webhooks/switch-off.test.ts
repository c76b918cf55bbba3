import assert from "node:assert/strict";
import { sql } from "kysely";
import { kysely } from "../../db/orm.ts";
import { app } from "../support/command.ts";
import { eventually } from "../support/eventually.ts";
import type { TestTeam } from "../support/factories.ts";
import { openReceiver, type Receiver } from "../support/receiver.ts";
import { mailsTo, readMail } from "../support/sending.ts";
import { together } from "../support/together.ts";
import { emitSome, makeEndpoint, makeTeam, type TestEndpoint } from "../support/webhooks.ts";
import { answerWith, assertAllHeaders, header, setEndpoint, setHealth, untilLog, untilOver } from "./observing.ts";

interface Past {
  createdHoursAgo?: number;
  enabledHoursAgo?: number;
  succeededHoursAgo?: number;
  failures?: number;
}

describe("The switch-off of an endpoint", () => {
  const it = together();
  let receiver: Receiver;
  before(async () => {
    // Final at once: one failure an event.
    receiver = await openReceiver(answerWith(410));
  });
  after(() => receiver.close());

  async function withPast(
    team: TestTeam,
    { createdHoursAgo = 1_000, enabledHoursAgo = createdHoursAgo, succeededHoursAgo, failures = 0 }: Past,
    path = "/gone",
  ): Promise<TestEndpoint> {
    const endpoint = await makeEndpoint(team, { url: `${receiver.origin}${path}` });
    const db = kysely(team.em);
    const ago = (hours: number) => sql<string>`now() - make_interval(secs => ${hours * 3_600}::float8)`;
    await db
      .updateTable("webhook_endpoints")
      .set({ created_at: ago(createdHoursAgo), enabled_at: ago(enabledHoursAgo) })
      .where("id", "=", endpoint.id)
      .execute();
    await db
      .updateTable("webhook_health")
      .set({
        consecutive_failures: failures,
        probe_at: ago(0),
        ...(succeededHoursAgo === undefined ? {} : { last_success_at: ago(succeededHoursAgo) }),
      })
      .where("webhook_id", "=", endpoint.id)
      .execute();
    return endpoint;
  }

  const read = async (team: TestTeam, { id }: TestEndpoint) => {
    const db = kysely(team.em);
    const endpoint = await db
      .selectFrom("webhook_endpoints")
      .selectAll()
      .where("id", "=", id)
      .executeTakeFirstOrThrow();
    const health = await db
      .selectFrom("webhook_health")
      .selectAll()
      .where("webhook_id", "=", id)
      .executeTakeFirstOrThrow();
    return { ...endpoint, ...health };
  };

  it("comes with the 20th failure in a row after 72 hours without success, and not with the 19th", async () => {
    const team = await makeTeam();
    const endpoint = await withPast(team, { createdHoursAgo: 73, failures: 18 });
    await emitSome(team, 1);
    await untilOver(team, endpoint.id);
    const on = await read(team, endpoint);
    assert.deepEqual([on.active, on.consecutive_failures, on.disabled_reason], [true, 19, null]);
    assert.ok(on.last_failure_at);
    await setHealth(team, endpoint.id, { probe_at: sql`now()` });
    await emitSome(team, 1);
    await untilOver(team, endpoint.id, 2);
    const off = await read(team, endpoint);
    assert.deepEqual([off.active, off.consecutive_failures, off.disabled_reason], [false, 20, "delivery_failures"]);
    assert.ok(off.disabled_at);
    assert.equal(off.last_success_at, null);
  });

  it("counts the 72 hours from the latest of creation, re-activation and last success", async () => {
    const team = await makeTeam();
    const pasts: [Past, boolean][] = [
      [{ createdHoursAgo: 73 }, false],
      [{ createdHoursAgo: 71 }, true],
      [{ createdHoursAgo: 1_000, enabledHoursAgo: 71 }, true],
      [{ createdHoursAgo: 1_000, enabledHoursAgo: 73 }, false],
      [{ createdHoursAgo: 1_000, enabledHoursAgo: 500, succeededHoursAgo: 71 }, true],
      [{ createdHoursAgo: 1_000, enabledHoursAgo: 500, succeededHoursAgo: 73 }, false],
      [{ createdHoursAgo: 1_000, enabledHoursAgo: 71, succeededHoursAgo: 500 }, true],
    ];
    const endpoints = await Promise.all(pasts.map(([past]) => withPast(team, { ...past, failures: 500 })));
    await emitSome(team, 1);
    for (const [i, endpoint] of endpoints.entries()) {
      await untilOver(team, endpoint.id);
      assert.equal((await read(team, endpoint)).active, pasts[i]?.[1], JSON.stringify(pasts[i]?.[0]));
    }
  });

  it("is far again after one success", async () => {
    const team = await makeTeam();
    const endpoint = await withPast(team, { failures: 500 }, "/far");
    receiver.behaveAt("/far", answerWith(204));
    await emitSome(team, 1);
    await untilOver(team, endpoint.id);
    assert.equal((await read(team, endpoint)).consecutive_failures, 0);
    receiver.behaveAt("/far", answerWith(410));
    await setHealth(team, endpoint.id, { consecutive_failures: 29, probe_at: sql`now()` });
    await emitSome(team, 1);
    await untilOver(team, endpoint.id, 2);
    const { active, consecutive_failures, last_success_at } = await read(team, endpoint);
    assert.deepEqual([active, consecutive_failures], [true, 30]);
    assert.ok(last_success_at);
  });

  it("is mailed to the team's owner once; its events are BLOCKED meanwhile, and replayable once it is on again", async () => {
    const team = await makeTeam();
    const endpoint = await withPast(team, { failures: 19 }, "/owner");
    await emitSome(team, 1);
    await untilOver(team, endpoint.id);
    await eventually(async () => (await read(team, endpoint)).active === false, { what: "the switch-off" });
    const mails = await eventually(
      async () => {
        const found = await mailsTo(team.owner.email);
        return found.length > 0 && (await read(team, endpoint)).notice_due_at === null ? found : undefined;
      },
      { what: "the owner's mail" },
    );
    assert.equal(mails?.length, 1);
    const mail = await readMail(mails?.[0]?.id ?? 0);
    assert.match(mail.subject ?? "", /^Webhook switched off: Test$/);
    assert.ok(mail.text?.includes(endpoint.id));
    assert.ok(mail.text?.includes(new URL(receiver.origin).host));
    assert.ok(!mail.text?.includes("/owner"), "the path may hold a token");

    const arrived = receiver.received.filter(({ path }) => path === "/owner").length;
    await emitSome(team, 3);
    const log = await untilLog(
      team,
      endpoint.id,
      (rows) => rows.filter((row) => row.status === "BLOCKED").length === 3,
    );
    const blocked = log.filter(({ status }) => status === "BLOCKED");
    for (const row of blocked) {
      assert.deepEqual([row.attempt, row.response_status, row.duration_ms], [1, null, null]);
      assert.match(row.error_message ?? "", /switched off; replay/);
    }
    assert.equal(receiver.received.filter(({ path }) => path === "/owner").length, arrived, "nothing is sent");

    const command = ["webhook:replay", "--json", "--since", "2020-01-01T00:00:00Z", "--status", "BLOCKED"];
    const mine = ["--webhook", endpoint.id];
    const off = await app(...command, ...mine, "--dry-run");
    assert.equal(off.code, 0, off.stderr);
    assert.deepEqual([off.json.would_replay, off.json.left_alone], [0, 3]);

    await setEndpoint(team, endpoint.id, {
      active: true,
      disabled_at: null,
      disabled_reason: null,
      enabled_at: sql`now()`,
    });
    await setHealth(team, endpoint.id, { probe_at: sql`now()` });
    receiver.behaveAt("/owner", answerWith(204));
    const replayed = await app(...command, ...mine);
    assert.equal(replayed.code, 0, replayed.stderr);
    assert.equal(replayed.json.replayed, 3);
    const after = await untilLog(
      team,
      endpoint.id,
      (rows) => rows.filter(({ is_replay, status }) => is_replay && status === "SUCCEEDED").length === 3,
    );
    const replays = after.filter(({ is_replay }) => is_replay);
    assert.deepEqual(new Set(replays.map(({ replay_of_id }) => replay_of_id)), new Set(blocked.map(({ id }) => id)));
    assert.deepEqual(
      new Set(replays.map(({ event_id }) => event_id)),
      new Set(blocked.map(({ event_id }) => event_id)),
    );
    const all = assertAllHeaders(receiver, "/owner", after, endpoint);
    assert.equal(all.filter((one) => header(one, "X-Service-Replay") === "true").length, 3);
    assert.equal((await mailsTo(team.owner.email)).length, 1, "one mail");
    const { active, consecutive_failures } = await read(team, endpoint);
    assert.deepEqual([active, consecutive_failures], [true, 0]);
  });
});

import assert from "node:assert/strict";
import type { Client } from "@temporalio/client";
import { sql } from "kysely";
import { kysely } from "../../db/orm.ts";
import { newId } from "../../domain/ids.ts";
import { requestReplay } from "../../domain/webhooks/bulk-replay.ts";
import { replayWorkflowId } from "../../workflows/ids.ts";
import { stepWaitMs } from "../../workflows/steps.ts";
import { eventually } from "../support/eventually.ts";
import type { TestTeam } from "../support/factories.ts";
import { testsOf } from "../support/long.ts";
import type { Receiver } from "../support/receiver.ts";
import { emitSome, logOf, makeEndpoint, makeTeam, type TestEndpoint } from "../support/webhooks.ts";
import {
  assertAllHeaders,
  type Row,
  receivingBesideTemporal,
  repairSecret,
  setReplayRate,
  states,
  untilDetails,
  untilLog,
  untilOver,
  workflowOf,
} from "./observing.ts";

const { it, longIt } = testsOf();

type Handle = ReturnType<typeof workflowOf>;

describe("A step that keeps failing", () => {
  let receiver: Receiver;
  let temporal: Client;
  receivingBesideTemporal((...opened) => {
    [receiver, temporal] = opened;
  });

  const needsOperator = async (handle: Handle): Promise<unknown> =>
    (await handle.describe()).searchAttributes["NeedsOperator"]?.[0];

  /** One delivery whose attempt fails, because its endpoint's secret cannot be opened. */
  async function failing(
    name: string,
    { succeededLately = false } = {},
  ): Promise<{ team: TestTeam; endpoint: TestEndpoint; row: Row; handle: Handle }> {
    const team = await makeTeam();
    receiver.behave = (_, response) => void response.writeHead(204).end();
    const endpoint = await makeEndpoint(team, { url: `${receiver.origin}/${name}`, set: { encrypted_secret: "?" } });
    if (succeededLately) {
      await sql`update webhook_health set last_success_at = now() where webhook_id = ${endpoint.id}`.execute(
        kysely(team.em),
      );
    }
    await emitSome(team, 1);
    const [row] = await untilLog(team, endpoint.id, (log) => Boolean(log[0]?.group_id));
    assert.ok(row);
    const handle = workflowOf(temporal, row);
    await eventually(() => handle.describe(), { what: "the workflow" });
    return { team, endpoint, row, handle };
  }

  /** The instant that the details name, in ms. */
  const triesAgainAt = (details: string): number => Date.parse(/tries again at (\S+Z)\./.exec(details)?.[1] ?? "");

  /**
   * Presses retryNow while the step fails, until its own next try is more than 4 s away: after a repair, the retryNow of the
   * test comes first.
   */
  async function untilNextTryIsFar(handle: Handle, answer?: string): Promise<void> {
    const nextTryAt = async () => triesAgainAt(await untilDetails(handle, /tries again at/));
    for (let at = await nextTryAt(); at - Date.now() < 4_000; at = await nextTryAt()) {
      const answered = await handle.executeUpdate("retryNow");
      if (answer !== undefined) assert.equal(answered, answer);
      await eventually(async () => (await nextTryAt()) !== at, { what: "a later try" });
    }
  }

  for (const [which, name, options] of [
    ["the first attempt of an unproven endpoint", "unproven", {}],
    ["the first attempt of a working endpoint", "working", { succeededLately: true }],
  ] as const) {
    const test = name === "unproven" ? it : longIt;
    test(`is named to operators with its code, and tried again with retryNow: ${which}`, async () => {
      const { team, endpoint, handle } = await failing(name, options);
      const details = await untilDetails(handle, /failed three times/);
      const at = triesAgainAt(details);
      assert.equal(
        details,
        `Endpoint ${endpoint.id}. The step "attempt" failed three times (internal_error); tries again at ${new Date(at).toISOString()}. Updates: retryNow, cancel.`,
      );
      assert.equal(await needsOperator(handle), true);
      assert.deepEqual(states(await logOf(team, endpoint.id)), [[1, "PENDING"]], "no attempt was made");
      await untilNextTryIsFar(handle, "attempts the remaining deliveries now");
      await repairSecret(team, endpoint);
      assert.equal(await handle.executeUpdate("retryNow"), "attempts the remaining deliveries now");
      assert.deepEqual(await handle.result(), { succeeded: 1, failed: 0, blocked: 0 });
      assert.equal(await needsOperator(handle), false);
      assert.match(await untilDetails(handle, /Ended/), /Ended: 1 succeeded, 0 failed, 0 blocked\.$/);
      const log = await untilOver(team, endpoint.id);
      assert.deepEqual(states(log), [[1, "SUCCEEDED"]]);
      assert.equal(assertAllHeaders(receiver, `/${name}`, log, endpoint).length, 1);
    });
  }

  longIt("is tried again by itself, after waits that grow to a minute", async () => {
    assert.deepEqual([1, 2, 3, 4, 5, 1_000].map(stepWaitMs), [5_000, 10_000, 20_000, 40_000, 60_000, 60_000]);
    const { team, endpoint, handle } = await failing("by-itself");
    await untilDetails(handle, /tries again at/);
    await repairSecret(team, endpoint);
    assert.deepEqual(await handle.result(), { succeeded: 1, failed: 0, blocked: 0 });
    assert.equal(await needsOperator(handle), false);
  });

  it("does not keep an operator from giving the deliveries up", async () => {
    const { team, endpoint, handle } = await failing("given-up");
    await untilDetails(handle, /failed three times/);
    assert.equal(await handle.executeUpdate("cancel"), "1 given up");
    assert.deepEqual(await handle.result(), { succeeded: 0, failed: 1, blocked: 0 });
    assert.equal(await needsOperator(handle), false);
    const [row] = await untilOver(team, endpoint.id);
    assert.match(row?.error_message ?? "", /An operator gave it up/);
  });

  longIt("is named when it is the giving up itself", async () => {
    const { team, endpoint, row, handle } = await failing("cannot-end");
    await untilDetails(handle, /failed three times/);
    const name = `refuse_${newId("delivery")}`;
    const db = kysely(team.em);
    await sql`create function ${sql.id(name)}() returns trigger language plpgsql as 'begin raise exception ''refused''; end'`.execute(
      db,
    );
    try {
      await sql`create trigger ${sql.id(name)} before delete on webhook_groups for each row
        when (old.id = ${sql.lit(row.group_id)}) execute function ${sql.id(name)}()`.execute(db);
      const cancelled = handle.executeUpdate("cancel");
      assert.match(
        await untilDetails(handle, /give up/),
        /The step "give up the remaining deliveries" failed three times \(\w+\); tries again at \S+Z\. Updates: retryNow\.$/,
      );
      assert.equal(await needsOperator(handle), true);
      await untilNextTryIsFar(handle);
      await sql`drop trigger ${sql.id(name)} on webhook_groups`.execute(db);
      await handle.executeUpdate("retryNow");
      assert.equal(await cancelled, "1 given up");
    } finally {
      await sql`drop function ${sql.id(name)}() cascade`.execute(db);
    }
    assert.deepEqual(await handle.result(), { succeeded: 0, failed: 1, blocked: 0 });
    assert.equal(await needsOperator(handle), false);
    assert.deepEqual(states(await untilOver(team, endpoint.id)), [[1, "FAILED"]]);
  });

  describe("of a bulk replay", () => {
    /** A replay of one delivery whose first page fails: a rate below zero is no limit that Postgres takes. */
    async function failingReplay(name: string): Promise<{ team: TestTeam; id: string; handle: Handle }> {
      const team = await makeTeam();
      receiver.behave = (_, response) => void response.writeHead(410).end();
      const endpoint = await makeEndpoint(team, { url: `${receiver.origin}/${name}` });
      await emitSome(team, 1);
      await untilOver(team, endpoint.id);
      receiver.behave = (_, response) => void response.writeHead(204).end();
      const filter = { teamId: null, webhookId: endpoint.id, statuses: ["FAILED"] as const };
      const id = await requestReplay(
        team.em,
        { ...filter, since: new Date("2020-01-01"), until: new Date(Date.now() + 60_000) },
        { perSecond: -1, total: 1 },
      );
      const handle = temporal.workflow.getHandle(replayWorkflowId(id));
      await eventually(() => handle.describe(), { what: "the workflow" });
      return { team, id, handle };
    }

    longIt("is named to operators with its code, and tried again with retryNow", async () => {
      const { team, id, handle } = await failingReplay("replay");
      assert.match(
        await untilDetails(handle, /failed three times/),
        /^The step "queue a second's worth" failed three times \(\w+\); tries again at \S+Z\. Updates: retryNow, pause\.$/,
      );
      assert.equal(await needsOperator(handle), true);
      await untilNextTryIsFar(handle, "tries again now");
      await setReplayRate(team, id, 10);
      assert.equal(await handle.executeUpdate("retryNow"), "tries again now");
      assert.deepEqual(await handle.result(), { replayed: 1 });
      assert.equal(await needsOperator(handle), false);
      assert.equal(await untilDetails(handle, /Ended/), "Ended: 1 replayed.");
    });

    longIt("can be held, and is tried again once the replay is resumed", async () => {
      const { team, id, handle } = await failingReplay("held");
      await untilDetails(handle, /failed three times/);
      assert.equal(await handle.executeUpdate("pause"), "PAUSED");
      assert.equal(await untilDetails(handle, /Paused/), "Paused while its step was failing. Update: resume.");
      await setReplayRate(team, id, 10);
      assert.equal(await handle.executeUpdate("resume"), "continues");
      assert.deepEqual(await handle.result(), { replayed: 1 });
      assert.equal(await needsOperator(handle), false);
    });
  });
});

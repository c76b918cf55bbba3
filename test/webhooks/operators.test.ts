import assert from "node:assert/strict";
import type { Client } from "@temporalio/client";
import { sql } from "kysely";
import { kysely } from "../../db/orm.ts";
import { transaction } from "../../db/transaction.ts";
import { commandEndpoint } from "../../domain/webhooks/commands.ts";
import { claimDue, takeEndpoint } from "../../domain/webhooks/queue.ts";
import { OPERATOR_UPDATES } from "../../workflows/webhook-endpoint.ts";
import { app, inProcess } from "../support/command.ts";
import { eventually } from "../support/eventually.ts";
import type { Receiver } from "../support/receiver.ts";
import { untilBlocked } from "../support/sending.ts";
import { detailsOf, untilDetails } from "../support/temporal.ts";
import { together } from "../support/together.ts";
import { emitSome, insertDelivery, logOf, makeEndpoint, makeTeam } from "../support/webhooks.ts";
import {
  answerWith,
  askToWait,
  assertAllHeaders,
  type Row,
  receivingBesideTemporal,
  repairSecret,
  setHealth,
  states,
  untilAtRest,
  untilLog,
  untilOver,
  workflowOf,
} from "./observing.ts";

type Handle = ReturnType<typeof workflowOf>;

describe("An operator of deliveries", () => {
  const it = together();
  let receiver: Receiver;
  let temporal: Client;
  receivingBesideTemporal((...opened) => {
    [receiver, temporal] = opened;
  });

  const arrivals = (name: string): number => receiver.received.filter(({ path }) => path === `/${name}`).length;
  const needsOperator = async (handle: Handle) => (await handle.describe()).searchAttributes["NeedsOperator"]?.[0];

  /** Deliveries that failed once and wait for ten minutes. From then on their endpoint answers as it should. */
  async function waiting(name: string, count = 1) {
    const team = await makeTeam();
    const endpoint = await makeEndpoint(team, { url: `${receiver.origin}/${name}` });
    receiver.behaveAt(`/${name}`, askToWait(600));
    await emitSome(team, count);
    const rows = await untilLog(
      team,
      endpoint.id,
      (log) => log.length === count && log.every(({ status }) => status === "RETRYING"),
    );
    await untilAtRest(temporal, endpoint.id);
    receiver.behaveAt(`/${name}`, answerWith(204));
    const [row] = rows as [Row, ...Row[]];
    return { team, endpoint, rows, row, handle: workflowOf(temporal, endpoint.id) };
  }

  it("reads in the UI the endpoint's health, what waits, the next attempt, why the latest failed, and what each update does", async () => {
    const { team, endpoint, rows, handle } = await waiting("details", 3);
    const next = Math.min(...rows.map(({ next_attempt_at }) => Number(new Date(next_attempt_at ?? 0))));
    const state = `Endpoint ${endpoint.id}. unproven, 3 failures in a row, 3 waiting. Next attempt at ${new Date(next).toISOString()}.`;
    const latest = "Last error: http_429.";
    assert.equal(await detailsOf(handle), `${state} ${latest} Updates: retryNow, pause, cancelWaiting.`);
    const { searchAttributes, staticSummary } = await handle.describe();
    assert.deepEqual([searchAttributes["TeamId"], searchAttributes["WebhookId"]], [[team.team.id], [endpoint.id]]);
    assert.equal(await staticSummary(), `Deliveries to ${endpoint.id}`);
    const { definition } = await handle.query<{
      definition: { updateDefinitions: { name: string; description: string }[] };
    }>("__temporal_workflow_metadata");
    assert.deepEqual(
      new Map(definition.updateDefinitions.map(({ name, description }) => [name, description])),
      new Map(OPERATOR_UPDATES),
    );
    assert.equal(await handle.executeUpdate("retryNow"), "3 are attempted now");
    await untilOver(team, endpoint.id, 3);
    await handle.result();
    assert.match(await detailsOf(handle), /\. working, 0 failures in a row, 0 waiting\. Updates/);
  });

  it("has what waits attempted now with retryNow: it uses up no attempt of the ladder, and changes no attempt under way", async () => {
    const { team, endpoint, handle } = await waiting("retry-now");
    let meanwhile: string | undefined;
    receiver.behaveAt("/retry-now", async (_, response) => {
      meanwhile ??= await handle.executeUpdate<string, []>("retryNow");
      response.writeHead(500).end();
    });
    assert.equal(await handle.executeUpdate("retryNow"), "1 are attempted now");
    const log = await untilOver(team, endpoint.id);
    assert.equal(meanwhile, "0 are attempted now");
    assert.deepEqual(
      states(log),
      [1, 2, 3, 4, 5].map((attempt) => [attempt, "FAILED"]),
    );
    assert.equal(assertAllHeaders(receiver, "/retry-now", log, endpoint).length, 5);
  });

  for (const [how, name, cancel] of [
    ["the update", "cancel", (handle: Handle) => handle.executeUpdate("cancelWaiting")],
    ["a cancel in the UI", "ui-cancel", (handle: Handle) => handle.cancel()],
    ["webhook:give-up", "give-up", (_: Handle, id: string) => inProcess("webhook:give-up", id)],
  ] as const) {
    it(`gives up what waits by ${how}: FAILED, with the reason`, async () => {
      const { team, endpoint, rows, handle } = await waiting(name, 2);
      const answer = await cancel(handle, endpoint.id);
      if (name === "cancel") assert.equal(answer, "2 given up; they can be replayed");
      const log = await untilOver(team, endpoint.id, 2);
      assert.deepEqual(new Set(log.map(({ id }) => id)), new Set(rows.map(({ id }) => id)));
      for (const given of log) {
        assert.deepEqual([given.status, given.next_attempt_at, given.response_status], ["FAILED", null, 429]);
        assert.equal(given.error_message, "Answered with 429. An operator gave it up; it can be replayed.");
      }
      if (name !== "give-up") await handle.result();
      assert.equal(arrivals(name), 2);
    });
  }

  it("refuses the claim of a run that began before what waits was given up, and leaves that run its endpoint and requests", async () => {
    const team = await makeTeam();
    const { id: webhookId } = await makeEndpoint(team, { url: `${receiver.origin}/given-up` });
    const due = { status: "PENDING", response_status: null, next_attempt_at: new Date() } as const;
    const bounds = { limit: 1, from: "-infinity", testsAlone: false, ladderLength: 5 };
    const run = await takeEndpoint(team.em.fork(), webhookId);
    assert.ok(run);
    const claim = (held: string[]) => claimDue(team.em.fork(), { ...run, ...bounds, held });
    const inFlight = await insertDelivery(team, webhookId, due);
    assert.equal((await claim([]))?.due[0]?.id, inFlight.id);
    const given = await insertDelivery(team, webhookId, due);
    const blocked = await transaction(team.em.fork(), async (tx) => {
      assert.equal(await commandEndpoint(tx, webhookId, "cancelWaiting"), 1);
      const claimed = claim([inFlight.id]);
      await untilBlocked(team, "%claimed as (%");
      return { claimed };
    });
    assert.equal(await blocked.claimed, undefined);
    const log = await logOf(team, webhookId);
    assert.deepEqual(
      log.map(({ id, status }) => [id, status]),
      [
        [inFlight.id, "PENDING"],
        [given.id, "FAILED"],
      ],
    );
    const again = await takeEndpoint(team.em.fork(), webhookId, run.epoch);
    assert.deepEqual([again?.epoch, again?.claimed], [run.epoch + 1, [inFlight.id]]);
    await commandEndpoint(team.em.fork(), webhookId, "cancelWaiting");
    assert.equal(await takeEndpoint(team.em.fork(), webhookId, run.epoch), undefined, "another run has taken it");
  });

  it("leaves an attempt under way, whose success counts, with cancelWaiting", async () => {
    const { team, endpoint, row, handle } = await waiting("late-cancel", 2);
    let cancelled: unknown;
    receiver.behaveAt("/late-cancel", async (_, response) => {
      cancelled ??= await handle.executeUpdate("cancelWaiting");
      response.writeHead(204).end();
    });
    const retried = await inProcess("delivery:retry", row.id);
    assert.deepEqual(retried.data, { webhook: null, deliveries: 1 });
    const audited = sql`select act, object_id from audit_entries where team_id = ${team.team.id} and way = 'COMMAND'`;
    const { rows: entries } = await audited.execute(kysely(team.em.fork()));
    assert.deepEqual(entries, [{ act: "delivery:retry", object_id: row.id }]);
    const log = await untilOver(team, endpoint.id, 2);
    await handle.result();
    assert.equal(cancelled, "1 given up; they can be replayed");
    assert.deepEqual(log.map(({ attempt, status }) => `${attempt} ${status}`).sort(), [
      "1 FAILED",
      "1 FAILED",
      "2 SUCCEEDED",
    ]);
  });

  it("holds an endpoint's deliveries with pause, and sends them with resume: in the UI and at the command line", async () => {
    const { team, endpoint, handle } = await waiting("paused");
    const { id } = endpoint;
    assert.match(await handle.executeUpdate("pause"), /^PAUSED/);
    assert.match(
      await untilDetails(handle, /PAUSED/),
      /1 waiting\. Last error: http_429\. Updates: resume, cancelWaiting\.$/,
    );
    await emitSome(team, 1);
    await untilLog(team, id, (log) => log.length === 2);
    const listed = (await inProcess("delivery:list", "--webhook", id, "--team", team.team.id)).data["deliveries"] as {
      status: string;
    }[];
    assert.deepEqual(
      listed.map(({ status }) => status),
      ["PENDING", "RETRYING"],
    );
    const retrying = await inProcess("delivery:list", "--webhook", id, "--status", "retrying");
    assert.deepEqual(retrying.data["deliveries"], listed.slice(1));
    assert.match(retrying.text, /^DELIVERY .* ERROR\ndlv_.* RETRYING +1 +429 +Answered with 429\.$/);
    const shown = await inProcess("webhook:show", id);
    assert.deepEqual(shown.data, {
      ...{ origin: receiver.origin, last_failure: listed[1] },
      ...{ webhook: id, active: true, health: "unproven", paused: true, consecutive_failures: 1, failing_since: null },
      ...{ next_attempt_at: null, waiting: 2, workflow: `webhook-endpoint/${id}` },
    });
    assert.match(shown.text, /\ndlv_\w+ RETRYING at 20\S+: Answered with 429\.\n2 deliveries wait/);
    assert.equal(await handle.executeUpdate("resume"), "delivers again");
    await receiver.until("/paused", 2);
    assert.equal((await inProcess("webhook:pause", id)).data["paused"], true);
    await emitSome(team, 1);
    await untilLog(team, id, (log) => log.length === 3);
    await handle.executeUpdate("retryNow");
    assert.equal(arrivals("paused"), 2, "nothing is sent");
    await inProcess("webhook:resume", id);
    assert.equal((await untilOver(team, id, 3)).filter(({ status }) => status === "SUCCEEDED").length, 3);
  });

  it("shows a delivery's workflow and attempts by delivery:show, and attempts all by delivery:retry", async () => {
    const { team, endpoint, row, handle } = await waiting("where", 2);
    const workflow = `webhook-endpoint/${endpoint.id}`;
    const next = new Date(row.next_attempt_at ?? 0).toISOString();
    const unknown = await app("delivery:show", "del_00000000000000000000000000");
    assert.notEqual(unknown.code, 0);
    assert.match(unknown.stderr + unknown.stdout, /There is no delivery/);
    const shown = await inProcess("delivery:show", row.id);
    assert.ok(shown.text.includes(`\n${workflow}\nRETRYING, attempt 1, next at ${next}`), shown.text);
    const { ui: _, attempts, ...facts } = shown.data;
    assert.deepEqual(facts, {
      ...{ delivery: row.id, workflow, webhook: endpoint.id, event: row.event_id, event_type: "newsletter.started" },
      ...{ team: team.team.id, environment: "LIVE", status: "RETRYING", attempt: 1, next_attempt_at: next },
      replay_of: null,
    });
    assert.match(shown.text, /newsletter\.started evt_\w+ to whk_\w+/);
    assert.match(shown.text, new RegExp(`attempt 1  ${row.id}  RETRYING  HTTP 429`));
    assert.deepEqual(attempts, [
      {
        ...{ id: row.id, attempt: 1, status: "RETRYING", response_status: 429, duration_ms: row.duration_ms },
        ...{ error: row.error_message, at: new Date(row.updated_at).toISOString() },
      },
    ]);
    const retried = await inProcess("delivery:retry", "--webhook", endpoint.id);
    assert.deepEqual(retried.data, { webhook: endpoint.id, deliveries: 2 });
    await handle.result();
    for (const [args, refusal] of [
      [[row.id], /does not wait for its next attempt: it has ended/],
      [[], /Name either deliveries or, with --webhook, their endpoint\.$/],
      [["--webhook", "whk_none"], /There is no webhook endpoint whk_none: see webhook:list\./],
    ] as const) {
      await assert.rejects(inProcess("delivery:retry", ...args), refusal);
    }
    const [done] = (await logOf(team, endpoint.id)).filter(({ status }) => status === "SUCCEEDED");
    const over = await inProcess("delivery:show", String(done?.id));
    assert.deepEqual([over.data["status"], over.data["workflow"]], ["SUCCEEDED", null]);
    assert.match(over.text, /\nno workflow: it has ended\nSUCCEEDED, attempt 2/);
  });

  describe("whose deliveries a failing step holds up", () => {
    /** One delivery that cannot be sent, because its endpoint's secret cannot be opened. */
    async function held(name: string) {
      const team = await makeTeam();
      const endpoint = await makeEndpoint(team, { url: `${receiver.origin}/${name}`, set: { encrypted_secret: "?" } });
      await emitSome(team, 1);
      const handle = workflowOf(temporal, endpoint.id);
      await eventually(() => handle.describe(), { what: "the workflow" });
      const details = await untilDetails(handle, /failed three times/);
      assert.equal(
        details.replace(/at \S+Z\./, "at (then)."),
        `Endpoint ${endpoint.id}. The step "deliver" failed three times (internal_error); tries again at (then). Updates: retryNow, cancelWaiting.`,
      );
      assert.equal(await needsOperator(handle), true);
      assert.deepEqual(states(await logOf(team, endpoint.id)), [[1, "PENDING"]], "no attempt was made");
      return { team, endpoint, handle };
    }

    for (const [how, name, retry] of [
      ["lets it be tried again", "unreadable", (handle: Handle) => handle.executeUpdate("retryNow")],
      ["sees it tried again by itself", "unreadable-for-a-while", async () => {}],
    ] as const) {
      it(`reads which step and its code, and ${how}`, async () => {
        const { team, endpoint, handle } = await held(name);
        await repairSecret(team, endpoint);
        await retry(handle);
        assert.deepEqual(states(await untilOver(team, endpoint.id)), [[1, "SUCCEEDED"]]);
        await handle.result();
        assert.equal(await needsOperator(handle), false);
      });
    }

    it("can give them up", async () => {
      const { team, endpoint, handle } = await held("unreadable-for-good");
      assert.equal(await handle.executeUpdate("cancelWaiting"), "1 given up; they can be replayed");
      await handle.result();
      assert.equal(await needsOperator(handle), false);
      const [row] = await untilOver(team, endpoint.id);
      assert.match(row?.error_message ?? "", /An operator gave it up/);
    });
  });

  for (const [how, name, isLost] of [
    ["terminated in the UI", "terminated", false],
    ["lost by Temporal", "lost", true],
  ] as const) {
    it(`sees deliveries continue by themselves whose workflow was ${how}`, async () => {
      const { team, endpoint, handle } = await waiting(name);
      const { runId } = await handle.describe();
      if (isLost) {
        await temporal.workflowService.deleteWorkflowExecution({
          namespace: temporal.options.namespace,
          workflowExecution: { workflowId: handle.workflowId },
        });
      } else await handle.terminate("by mistake");
      await sql`update webhook_deliveries set next_attempt_at = now() - interval '1 minute' where webhook_id = ${endpoint.id}`.execute(
        kysely(team.em.fork()),
      );
      const log = await untilOver(team, endpoint.id);
      assert.deepEqual(states(log), [
        [1, "FAILED"],
        [2, "SUCCEEDED"],
      ]);
      assertAllHeaders(receiver, `/${name}`, log, endpoint);
      assert.notEqual((await handle.describe()).runId, runId);
    });
  }

  it("need start no delivery by hand whose process died before the start, or during its request, which is made again", async () => {
    const team = await makeTeam();
    const [unstarted, cutOff] = [
      await makeEndpoint(team, { url: `${receiver.origin}/unstarted` }),
      await makeEndpoint(team, { url: `${receiver.origin}/cut-off` }),
    ];
    const due = { status: "PENDING", response_status: null, next_attempt_at: new Date(Date.now() - 60_000) } as const;
    await insertDelivery(team, unstarted.id, due);
    const { id } = await insertDelivery(team, cutOff.id, due);
    await setHealth(team, cutOff.id, { epoch: 7, claimed: [id], lease_until: new Date() });
    assert.deepEqual(states(await untilOver(team, unstarted.id)), [[1, "SUCCEEDED"]]);
    const log = await untilOver(team, cutOff.id);
    assert.deepEqual(states(log), [
      [1, "FAILED"],
      [2, "SUCCEEDED"],
    ]);
    assert.match(log[0]?.error_message ?? "", /outcome is unknown/);
    assert.equal(log[0]?.superseded_by_id, log[1]?.id);
    assert.equal(log[1]?.attempts_used, 0);
  });
});

import assert from "node:assert/strict";
import type { Client } from "@temporalio/client";
import fc from "fast-check";
import { sql } from "kysely";
import { LADDER_SECONDS } from "../../config/env.ts";
import { kysely } from "../../db/orm.ts";
import { type Answer, classifyAttempt, type FailureCode, jittered } from "../../domain/webhooks/classify.ts";
import { openReceiver, type Receiver } from "../support/receiver.ts";
import { temporalClient } from "../support/temporal.ts";
import { together } from "../support/together.ts";
import { emitSome, logOf, makeEndpoint, makeTeam } from "../support/webhooks.ts";
import {
  answerWith,
  askToWait,
  type Row,
  states,
  untilAtRest,
  untilLog,
  untilOver,
  untilWaiting,
  workflowOf,
} from "./observing.ts";

const random = fc.double({ min: 0, max: 1, noNaN: true });

/** The ladder of the tests, in ms, and how far jitter may move a wait. */
const LADDER_MS = [1_000, 1_000, 2_000];
const LEAST = 0.8;
const MOST = 1.2;
const HOUR_MS = 3_600_000;

describe("The ladder", () => {
  it("is at once, 5 s, 5 min, 30 min, 2 h, 5 h, 10 h, 10 h", () => {
    const minute = 60;
    const hour = 60 * minute;
    assert.deepEqual(LADDER_SECONDS, [0, 5, 5 * minute, 30 * minute, 2 * hour, 5 * hour, 10 * hour, 10 * hour]);
  });

  it("moves a wait by a fifth at most, either way, and a longer one never before a shorter", () => {
    fc.assert(
      fc.property(fc.integer({ min: 0, max: 1e9 }), random, (waitMs, draw) => {
        const moved = jittered(waitMs, draw);
        assert.ok(Number.isInteger(moved));
        assert.ok(moved >= Math.floor(waitMs * LEAST) && moved <= Math.ceil(waitMs * MOST), `${moved}`);
        assert.ok(jittered(waitMs + 1_000, draw) >= moved);
      }),
    );
    assert.equal(jittered(0, 1), 0);
    assert.deepEqual([jittered(1_000, 0), jittered(1_000, 0.5), jittered(1_000, 1)], [800, 1_000, 1_200]);
  });
});

describe("The outcome of an answer", () => {
  const durationMs = fc.nat(60_000);
  const last = fc.boolean();
  const answered = fc
    .record({
      status: fc.integer({ min: 100, max: 999 }),
      body: fc.string(),
      bodyProblem: fc.option(fc.string({ minLength: 1 }), { nil: undefined }),
      retryAfterSeconds: fc.option(fc.nat(), { nil: undefined }),
      durationMs,
    })
    .map(({ bodyProblem, retryAfterSeconds, ...rest }): Answer & { kind: "answered" } => ({
      kind: "answered",
      ...rest,
      ...(bodyProblem === undefined ? {} : { bodyProblem }),
      ...(retryAfterSeconds === undefined ? {} : { retryAfterSeconds }),
    }));
  const codes: FailureCode[] = [
    "timeout",
    "name_not_resolved",
    "connect_refused",
    "unreachable",
    "tls",
    "reset",
    "protocol",
  ];
  const failed = fc
    .record({ code: fc.constantFrom(...codes), message: fc.string(), durationMs })
    .map((rest): Answer => ({ kind: "failed", ...rest }));
  const blocked = fc
    .record({ reason: fc.string(), message: fc.string(), durationMs })
    .map((rest): Answer => ({ kind: "blocked", ...rest }));

  it("is a success for 2xx, final for 4xx except 408 and 429, and a retry for every other status, cut off or not", () => {
    for (let status = 100; status < 1_000; status++) {
      const cutOff = status % 2 === 0 ? { bodyProblem: "cut off" } : {};
      const of = (last: boolean) =>
        classifyAttempt({ kind: "answered", status, body: "b", ...cutOff, durationMs: 1 }, last).outcome.status;
      const success = status >= 200 && status <= 299;
      const final = status >= 400 && status <= 499 && ![408, 429].includes(status);
      assert.equal(of(false), success ? "SUCCEEDED" : final ? "FAILED" : "RETRYING", String(status));
      assert.equal(of(true), success ? "SUCCEEDED" : "FAILED", String(status));
    }
  });

  it("is a failure to be tried again when no answer came, and BLOCKED when nothing was sent", () => {
    fc.assert(
      fc.property(failed, (answer) => {
        const { outcome, reason } = classifyAttempt(answer, false);
        assert.equal(outcome.status, "RETRYING");
        assert.ok(answer.kind === "failed" && reason === answer.code && outcome.errorMessage === answer.message);
      }),
    );
    fc.assert(
      fc.property(blocked, last, (answer, isLast) => {
        const { outcome } = classifyAttempt(answer, isLast);
        assert.equal(outcome.status, "BLOCKED");
        assert.equal(outcome.responseStatus, null);
      }),
    );
  });

  it("waits for Retry-After of a 429 and a 503 alone, an hour at most", () => {
    fc.assert(
      fc.property(answered, last, (answer, isLast) => {
        const { retryAfterMs } = classifyAttempt(answer, isLast);
        const asked = (answer.retryAfterSeconds ?? 0) * 1_000;
        assert.equal(retryAfterMs, [429, 503].includes(answer.status) ? Math.min(asked, HOUR_MS) : 0);
      }),
    );
  });

  it("keeps the answer, says why it failed, and gives the history a code without the endpoint's text", () => {
    fc.assert(
      fc.property(answered, last, (answer, isLast) => {
        const { outcome, reason } = classifyAttempt(answer, isLast);
        assert.equal(outcome.responseStatus, answer.status);
        assert.equal(outcome.responseBody, answer.body);
        assert.equal(outcome.durationMs, answer.durationMs);
        const { bodyProblem } = answer;
        if (bodyProblem !== undefined) assert.ok(outcome.errorMessage?.endsWith(bodyProblem));
        else assert.equal(outcome.errorMessage === null, outcome.status === "SUCCEEDED");
        assert.equal(reason, outcome.status === "SUCCEEDED" ? undefined : `http_${answer.status}`);
      }),
    );
  });
});

describe("A delivery on the ladder", () => {
  const it = together();
  let receiver: Receiver;
  let temporal: Client;
  let close: () => Promise<void>;
  before(async () => {
    receiver = await openReceiver();
    ({ client: temporal, close } = await temporalClient());
  });
  after(async () => {
    await receiver.close();
    await close();
  });

  it("waits as long as the ladder of its input says before each attempt, give or take a fifth", async () => {
    receiver.behaveAt("/attempts", answerWith(500));
    const team = await makeTeam();
    const endpoint = await makeEndpoint(team, { url: `${receiver.origin}/attempts` });
    await emitSome(team, 1);
    const log = await untilOver(team, endpoint.id);
    assert.deepEqual(
      states(log),
      [1, 2, 3, 4].map((attempt) => [attempt, "FAILED"]),
    );
    const arrivals = (await receiver.until("/attempts", 4)).map(({ at }) => at);
    for (const [i, ladderMs] of LADDER_MS.entries()) {
      const waited = (arrivals[i + 1] ?? 0) - (arrivals[i] ?? 0);
      assert.ok(waited >= ladderMs * LEAST - 1, `attempt ${i + 2} came after ${waited} ms`);
    }
  });

  it("is RETRYING with its time until the next attempt starts, then FAILED beside a new PENDING row", async () => {
    receiver.behaveAt("/steps", askToWait(600));
    const team = await makeTeam();
    const endpoint = await makeEndpoint(team, { url: `${receiver.origin}/steps` });
    await emitSome(team, 1);
    const [waiting, ...none] = await untilWaiting(team, endpoint.id);
    await untilAtRest(temporal, endpoint.id);
    assert.ok(waiting);
    assert.deepEqual(none, []);
    assert.equal(waiting.status, "RETRYING");
    assert.equal(waiting.response_status, 429);
    assert.equal(waiting.response_body, "later");
    const waitMs = Date.parse(waiting.next_attempt_at ?? "") - Date.parse(waiting.updated_at);
    assert.equal(Math.round(waitMs / 1_000), 600, "as long as it asked");

    let underWay: Row[] = [];
    receiver.behaveAt("/steps", async (_, response) => {
      underWay = await logOf({ em: team.em.fork() }, endpoint.id);
      response.writeHead(200).end("at last");
    });
    const handle = workflowOf(temporal, endpoint.id);
    assert.equal(await handle.executeUpdate("retryNow"), "1 are attempted now");
    const [before, after, ...more] = await untilOver(team, endpoint.id);
    assert.deepEqual(more, []);
    assert.deepEqual(
      underWay.map((row) => [row.attempt, row.status, row.superseded_by_id, row.response_status]),
      [
        [1, "FAILED", after?.id, 429],
        [2, "PENDING", null, null],
      ],
    );
    assert.equal(before?.id, waiting.id);
    assert.equal(before?.error_message, waiting.error_message, "what was answered stays in the log");
    assert.deepEqual(
      underWay.map(({ id }) => id),
      [before?.id, after?.id],
    );
    assert.deepEqual([after?.status, after?.response_body], ["SUCCEEDED", "at last"]);
  });

  it("ends FAILED where its event is kept no more, and the others are attempted", async () => {
    receiver.behaveAt("/pruned", askToWait(600));
    const team = await makeTeam();
    const endpoint = await makeEndpoint(team, { url: `${receiver.origin}/pruned` });
    await emitSome(team, 2);
    const areWaiting = (log: Row[]) => log.length === 2 && log.every(({ status }) => status === "RETRYING");
    const [pruned, kept] = await untilLog(team, endpoint.id, areWaiting);
    await untilAtRest(temporal, endpoint.id);
    assert.ok(pruned && kept);
    await sql`delete from webhook_events where id = ${pruned.event_id}`.execute(kysely(team.em));
    receiver.behaveAt("/pruned", answerWith(200));
    await workflowOf(temporal, endpoint.id).executeUpdate("retryNow");
    const log = await untilOver(team, endpoint.id);
    const last = (eventId: string) => log.findLast(({ event_id }) => event_id === eventId);
    assert.equal(last(kept.event_id)?.status, "SUCCEEDED");
    assert.equal(last(pruned.event_id)?.status, "FAILED");
    assert.match(last(pruned.event_id)?.error_message ?? "", /event is kept no more/);
  });
});

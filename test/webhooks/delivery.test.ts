import assert from "node:assert/strict";
import { sql } from "kysely";
import { kysely } from "../../db/orm.ts";
import { newSecret, sealSecret } from "../../domain/webhooks/secrets.ts";
import { textsIn } from "../histories/files.ts";
import { openReceiver, type Receiver } from "../support/receiver.ts";
import { temporalClient } from "../support/temporal.ts";
import { together } from "../support/together.ts";
import { emitSome, makeEndpoint, makeTeam } from "../support/webhooks.ts";
import {
  answerWith,
  assertAllHeaders,
  deliveryIdOf,
  emitIn,
  eventIdOf,
  header,
  isSigned,
  readLogs,
  states,
  statesInTime,
  untilOver,
  workflowOf,
} from "./observing.ts";

/** How often a failing delivery is attempted on the ladder of the tests. */
const ATTEMPTS = 4;

describe("Webhook deliveries", () => {
  const it = together();
  let receiver: Receiver;
  before(async () => {
    receiver = await openReceiver();
  });
  after(() => receiver.close());

  it("make every attempt when no answer comes in time", async () => {
    // One request is kept waiting until its time is up: the next ones end at once.
    receiver.behaveAt("/hang", () =>
      receiver.behaveAt("/hang", (_, _response, request) => void request.socket.resetAndDestroy()),
    );
    const team = await makeTeam();
    const endpoint = await makeEndpoint(team, { url: `${receiver.origin}/hang` });
    await emitSome(team, 1);
    const log = await untilOver(team, endpoint.id);
    // An attempt with an unknown outcome is made again.
    const made = log.filter(({ error_message }) => !/outcome is unknown/.test(error_message ?? ""));
    assert.deepEqual(
      made.map(({ status }) => status),
      Array.from({ length: ATTEMPTS }, () => "FAILED"),
    );
    for (const row of log) assert.deepEqual([row.response_status, row.next_attempt_at], [null, null]);
    assert.ok(log.some(({ error_message }) => /did not answer within 3 s/.test(error_message ?? "")));
  });

  it("give each attempt an id, a time and a signature of its own, and the same event and bytes", async () => {
    const team = await makeTeam();
    const path = "/third-time";
    const answers = [answerWith(500), answerWith(500), answerWith(200)];
    receiver.behaveAt(path, (...request) => answers.shift()?.(...request));
    const headers = { "X-Mine": "yes", Authorization: "Bearer of-the-owner" };
    const endpoint = await makeEndpoint(team, { url: `${receiver.origin}${path}`, headers });
    await emitSome(team, 1);
    const log = await untilOver(team, endpoint.id);
    assert.deepEqual(states(log), [
      [1, "FAILED"],
      [2, "FAILED"],
      [3, "SUCCEEDED"],
    ]);
    const arrived = assertAllHeaders(receiver, path, log, endpoint);
    const inOrder = log.toSorted((a, b) => a.attempt - b.attempt).map(({ id }) => id);
    assert.deepEqual(arrived.map(deliveryIdOf), inOrder);
    assert.equal(new Set(arrived.map(eventIdOf)).size, 1);
    assert.equal(new Set(arrived.map(({ body }) => body)).size, 1, "byte for byte the same");
    const timestamps = arrived.map((one) => Number(header(one, "X-Service-Timestamp")));
    assert.ok(timestamps.every((t, i) => i === 0 || t > (timestamps[i - 1] ?? 0) || t === timestamps[i - 1]));
    assert.ok((timestamps.at(-1) ?? 0) > (timestamps[0] ?? 0), "the time is that of the attempt");
    assert.equal(new Set(arrived.map((one) => header(one, "X-Service-Signature"))).size > 1, true);
    for (const one of arrived) {
      assert.equal(header(one, "X-Mine"), "yes");
      assert.equal(header(one, "Authorization"), "Bearer of-the-owner");
    }
    assert.deepEqual(JSON.parse(arrived[0]?.body ?? "").data.object, { object: "newsletter", id: "nl_0", n: 0 });
  });

  it("are signed with both secrets during a rotation, and with the new one alone after it", async () => {
    const team = await makeTeam();
    const endpoint = await makeEndpoint(team, { url: `${receiver.origin}/rotation` });
    const previous = newSecret();
    const rotate = (expires: string) =>
      sql`update webhook_endpoints set previous_encrypted_secret = ${sealSecret(team.vault, endpoint.id, previous)},
        previous_secret_expires_at = now() + ${expires}::interval where id = ${endpoint.id}`.execute(kysely(team.em));
    await rotate("1 hour");
    await emitSome(team, 1);
    const [during] = await receiver.until("/rotation", 1);
    assert.ok(during);
    assert.match(header(during, "X-Service-Signature"), /^t=\d+,v1=[0-9a-f]{64},v1=[0-9a-f]{64}$/);
    assert.ok(isSigned(during, endpoint.secret));
    assert.ok(isSigned(during, previous));
    assert.ok(!isSigned(during, newSecret()));

    await rotate("-1 second");
    await emitSome(team, 1);
    const [, after] = await receiver.until("/rotation", 2);
    assert.ok(after);
    assert.match(header(after, "X-Service-Signature"), /^t=\d+,v1=[0-9a-f]{64}$/);
    assert.ok(isSigned(after, endpoint.secret));
    assert.ok(!isSigned(after, previous));
  });

  it("go to endpoints of their own environment and team, and of the events they asked for", async () => {
    const [team, elsewhere] = [await makeTeam(), await makeTeam()];
    const url = (path: string) => `${receiver.origin}/${path}`;
    const live = await makeEndpoint(team, { url: url("live") });
    const test = await makeEndpoint(team, { url: url("test"), set: { environment: "TEST" } });
    const other = await makeEndpoint(team, { url: url("other"), events: ["newsletter.paused"] });
    const theirs = await makeEndpoint(elsewhere, { url: url("theirs") });
    await emitIn(team, "TEST", [{ object: "newsletter", environment: "test" }]);
    await emitIn(team, "LIVE", [{ object: "newsletter", environment: "live" }]);
    for (const [endpoint, environment] of [
      [live, "live"],
      [test, "test"],
    ] as const) {
      const log = await untilOver(team, endpoint.id);
      assert.deepEqual(states(log), [[1, "SUCCEEDED"]]);
      assert.equal(log[0]?.environment, environment.toUpperCase());
      const [one] = assertAllHeaders(receiver, `/${environment}`, log, endpoint);
      assert.equal(JSON.parse(one?.body ?? "").data.object.environment, environment);
    }
    for (const path of ["other", "theirs"]) {
      assert.equal(receiver.received.filter((one) => one.path === `/${path}`).length, 0, path);
    }
    const { rows } = await sql<{ rows: number }>`select count(*)::int as rows from webhook_deliveries
      where webhook_id in (${other.id}, ${theirs.id})`.execute(kysely(team.em));
    assert.deepEqual(rows, [{ rows: 0 }]);
  });

  it("leave no secret, URL, payload, answer or address in a history or a log", async () => {
    const team = await makeTeam();
    const marks = {
      token: "querytoken5e4d",
      custom: "customvalue8c1b",
      payload: "payloadword91aa",
      address: "somebody-77b2@example.com",
      answer: "answerword3f0e",
    };
    const strict = await openReceiver((received, response, request) => {
      const status = Number(received.path.split("/")[1]);
      if (Number.isNaN(status)) request.socket.resetAndDestroy();
      else response.writeHead(status).end(marks.answer);
    });
    const endpoints = await Promise.all(
      ["500", "404", "200", "reset"].map((kind) =>
        makeEndpoint(team, {
          url: `${strict.origin}/${kind}/private?token=${marks.token}`,
          headers: { Authorization: `Bearer ${marks.custom}` },
        }),
      ),
    );
    const unresolved = await makeEndpoint(team, { url: `http://${marks.token}.invalid/` });
    // It fails in an unforeseen way, too: this is no URL.
    const unplanned = await makeEndpoint(team, { url: `nonsense ${marks.token}` });
    try {
      await emitIn(team, "LIVE", [{ object: "contact", email: marks.address, name: marks.payload }]);
      const ids = [...endpoints, unresolved, unplanned].map(({ id }) => id);
      const logs = await Promise.all(ids.map((id) => untilOver(team, id)));
      assert.deepEqual(statesInTime(logs[2] ?? []), ["SUCCEEDED"]);
      assert.equal(
        strict.received.some(({ path }) => path.includes(marks.token)),
        true,
      );
      const { client, close } = await temporalClient();
      try {
        const wanted = [...Object.values(marks), ...endpoints.map(({ secret }) => secret), strict.origin, "whsec_"];
        for (const [row] of logs) {
          assert.ok(row);
          const history = await workflowOf(client, row.webhook_id).fetchHistory();
          const texts = textsIn(history);
          assert.ok(
            texts.some((text) => text.includes(row.webhook_id)),
            "payloads are decoded",
          );
          for (const mark of wanted)
            assert.deepEqual(
              texts.filter((text) => text.includes(mark)),
              [],
              mark,
            );
        }
        const written = readLogs();
        assert.ok(written.length > 0);
        for (const mark of wanted.filter((mark) => mark !== strict.origin)) {
          assert.ok(!written.includes(mark), `${mark} is in the log`);
        }
      } finally {
        await close();
      }
    } finally {
      await strict.close();
    }
  });
});

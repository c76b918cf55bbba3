import assert from "node:assert/strict";
import { sql } from "kysely";
import { exampleRecord } from "../../api/openapi/event-examples.ts";
import { kysely } from "../../db/orm.ts";
import { signatureHeader, signerOf } from "../../domain/webhooks/request.ts";
import { TESTS_PER_MINUTE } from "../../domain/webhooks/test-delivery.ts";
import { type ApiAnswer, type ApiClient, api } from "../support/api.ts";
import { unique } from "../support/factories.ts";
import { openReceiver, type Receiver } from "../support/receiver.ts";
import { emitSome, logOf, makeEndpoint, makeTeam, type TestEndpoint, untilSettled } from "../support/webhooks.ts";

type Team = Awaited<ReturnType<typeof makeTeam>>;

describe("A test delivery", () => {
  let receiver: Receiver;
  let team: Team;
  let client: ApiClient;
  let path: string;
  let endpoint: TestEndpoint;
  before(async () => {
    receiver = await openReceiver();
  });
  after(() => receiver.close());
  beforeEach(async () => {
    receiver.behave = (_, response) => void response.writeHead(204).end();
    team = await makeTeam();
    client = api(team.keys.live);
    path = `/${unique("test")}`;
    endpoint = await makeEndpoint(team, {
      url: `${receiver.origin}${path}`,
      events: ["newsletter.completed", "unsubscribe.created"],
    });
  });

  const test = (body?: unknown, options?: Parameters<ApiClient["post"]>[2]): Promise<ApiAnswer> =>
    client.post(`/webhooks/${endpoint.id}/test`, body, options);
  const refused = ({ status, body, text }: ApiAnswer, expected: number, code: string, param?: string) =>
    assert.deepEqual([status, body.error?.code, body.error?.param ?? undefined], [expected, code, param], text);
  const health = () =>
    kysely(team.em.fork())
      .selectFrom("webhook_health")
      .select(["consecutive_failures", "last_success_at", "last_failure_at"])
      .select(["failing_since", "probe_at", "probe_wait_seconds"])
      .where("webhook_id", "=", endpoint.id)
      .executeTakeFirstOrThrow();

  it("brings the example of the first event, signed, marked, and logged as a delivery of its own", async () => {
    const { status, body, text } = await test();
    assert.equal(status, 202, text);
    assert.equal(body.data.status, "PENDING");
    const [arrived] = await receiver.until(path, 1);
    assert.ok(arrived);
    const { headers, body: payload } = arrived;
    const { id, type, api_version, data } = JSON.parse(payload);
    assert.deepEqual(
      [type, api_version, data.object],
      ["newsletter.completed", "2026-08-15", exampleRecord("newsletter.completed")],
    );
    const timestamp = Number(headers["x-service-timestamp"]);
    assert.equal(headers["x-service-signature"], signatureHeader([signerOf(endpoint.secret)], timestamp, payload));
    assert.deepEqual(
      [headers["x-service-test"], headers["x-service-delivery-id"], headers["x-service-event-id"]],
      ["true", body.data.id, id],
    );
    const [row] = await untilSettled(team, endpoint.id);
    assert.deepEqual([row?.id, row?.status, row?.response_status, row?.event_id], [body.data.id, "SUCCEEDED", 204, id]);
    const shown = await client.get(`/webhooks/${endpoint.id}/deliveries/${body.data.id}`);
    assert.deepEqual([shown.status, shown.body.data.status], [200, "SUCCEEDED"]);
  });

  it("brings the example of the event that is asked for, once under an Idempotency-Key", async () => {
    const idempotencyKey = unique("key");
    const answers = [];
    for (let i = 0; i < 2; i++) answers.push(await test({ type: "unsubscribe.created" }, { idempotencyKey }));
    assert.deepEqual(answers[0]?.body.data, answers[1]?.body.data);
    assert.equal((await untilSettled(team, endpoint.id)).length, 1);
    const [arrived] = receiver.received.filter((one) => one.path === path);
    assert.equal(arrived?.headers["x-service-event"], "unsubscribe.created");
  });

  it("is refused for an event that the endpoint is not subscribed to, or that there is none of", async () => {
    for (const type of ["email.sent", "nothing", 7]) refused(await test({ type }), 400, "validation_failed", "type");
    refused(await test({ kind: "email.sent" }), 400, "validation_failed", "kind");
    assert.deepEqual(await logOf(team, endpoint.id), []);
  });

  it("is refused while the endpoint is off", async () => {
    await client.patch(`/webhooks/${endpoint.id}`, { active: false });
    refused(await test(), 409, "resource_state_invalid");
    refused(await test(undefined, { query: { dry_run: "true" } }), 409, "resource_state_invalid");
  });

  it("is attempted once, and moves no counter of the endpoint's health, however it ends", async () => {
    const before = await health();
    for (const status of [429, 200]) {
      receiver.behave = (_, response) => void response.writeHead(status, { "retry-after": "600" }).end();
      await test();
      const log = await untilSettled(team, endpoint.id);
      assert.equal(log.at(-1)?.status, status === 200 ? "SUCCEEDED" : "FAILED");
      assert.equal(log.at(-1)?.response_status, status);
    }
    assert.equal(receiver.received.filter((one) => one.path === path).length, 2);
    assert.deepEqual(await health(), before);
  });

  it("is attempted at once while the endpoint is failing, and its success ends no wait of others", async () => {
    await sql`update webhook_health set consecutive_failures = 19, last_failure_at = now(), failing_since = now(),
      probe_at = now() + interval '1 hour', probe_wait_seconds = 900 where webhook_id = ${endpoint.id}`.execute(
      kysely(team.em.fork()),
    );
    const before = await health();
    await emitSome(team, 1, "newsletter.completed");
    const { body } = await test();
    await receiver.until(path, 1);
    assert.deepEqual(await health(), before);
    const rows = (await logOf(team, endpoint.id)).filter(({ id }) => id !== body.data.id);
    assert.ok(rows.every(({ status }) => status === "PENDING"));
    assert.equal(receiver.received.filter((one) => one.path === path).length, 1);
  });

  it("is a test too when it is replayed", async () => {
    const { body } = await test();
    await untilSettled(team, endpoint.id);
    receiver.behave = (_, response) => void response.writeHead(503).end();
    const before = await health();
    const replay = `/webhooks/${endpoint.id}/deliveries/${body.data.id}/replay`;
    assert.equal((await client.post(replay, undefined, { idempotencyKey: unique("key") })).status, 202);
    const [, again] = await receiver.until(path, 2);
    assert.deepEqual([again?.headers["x-service-test"], again?.headers["x-service-replay"]], ["true", "true"]);
    const log = await untilSettled(team, endpoint.id);
    assert.deepEqual(
      log.map(({ status }) => status),
      ["SUCCEEDED", "FAILED"],
    );
    assert.deepEqual(await health(), before);
  });

  it("can be asked for twenty times a minute, of all endpoints together, and exactly so by racing requests", async () => {
    const other = await makeEndpoint(team, { url: `${receiver.origin}${path}` });
    const answers = await Promise.all(
      Array.from({ length: TESTS_PER_MINUTE + 5 }, (_, i) =>
        client.post(`/webhooks/${i % 2 === 0 ? endpoint.id : other.id}/test`),
      ),
    );
    const taken = answers.filter(({ status }) => status === 202);
    assert.equal(taken.length, TESTS_PER_MINUTE);
    for (const answer of answers.filter(({ status }) => status !== 202)) {
      refused(answer, 429, "rate_limit_exceeded");
      const seconds = Number(answer.headers.get("retry-after"));
      assert.ok(Number.isInteger(seconds) && seconds >= 1 && seconds <= 60, String(seconds));
    }
    refused(await test(undefined, { query: { dry_run: "true" } }), 429, "rate_limit_exceeded");
    await sql`update webhook_events set created_at = created_at - interval '1 minute' where team_id = ${team.team.id}`.execute(
      kysely(team.em.fork()),
    );
    assert.equal((await test()).status, 202);
  });
});

import assert from "node:assert/strict";
import { openReceiver, type Receiver } from "../support/receiver.ts";
import { emitSome, makeEndpoint, makeTeam, untilSettled } from "./support.ts";

describe("Webhook deliveries", () => {
  let receiver: Receiver;
  before(async () => {
    receiver = await openReceiver();
  });
  after(() => receiver.close());

  it("bring a committed change to its endpoint, signed", async () => {
    const team = await makeTeam();
    const { id } = await makeEndpoint(team, { url: `${receiver.origin}/one`, headers: { "X-Mine": "yes" } });
    const t0 = performance.now();
    await emitSome(team, 1);
    const [one] = await receiver.until("/one", 1);
    console.log("latency", (one?.at ?? 0) - t0);
    const [row, ...others] = await untilSettled(team, id);
    assert.equal(others.length, 0);
    assert.equal(row?.status, "SUCCEEDED");
    assert.equal(row?.response_status, 204);
    assert.equal(one?.headers["x-mine"], "yes");
    assert.equal(JSON.parse(one?.body ?? "").data.object.n, 0);
    const t1 = performance.now();
    await emitSome(team, 1);
    await receiver.until("/one", 2);
    console.log("latency again", performance.now() - t1);
    const t2 = performance.now();
    await emitSome(team, 2000);
    console.log("emitted", performance.now() - t2);
    await receiver.until("/one", 2002, 30_000);
    console.log("2000 in", performance.now() - t2);
    await untilSettled(team, id);
  }).timeout(60_000);

  it("climb the ladder", async () => {
    receiver.behave = (_, response) => void response.writeHead(500).end("no");
    const team = await makeTeam();
    const { id } = await makeEndpoint(team, { url: `${receiver.origin}/fails` });
    await emitSome(team, 3);
    await receiver.until("/fails", 12, 30_000);
    const log = await untilSettled(team, id);
    assert.deepEqual(
      log.map(({ status, attempt }) => [status, attempt]),
      [1, 2, 3, 4].flatMap((attempt) => [1, 2, 3].map(() => ["FAILED", attempt])),
    );
  }).timeout(60_000);
});

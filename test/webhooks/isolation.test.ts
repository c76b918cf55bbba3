import assert from "node:assert/strict";
import { eventually } from "../support/eventually.ts";
import { openReceiver, type Receiver } from "../support/receiver.ts";
import { together } from "../support/together.ts";
import { emitSome, logOf, makeEndpoint, makeTeam } from "../support/webhooks.ts";
import {
  answerWith,
  askToWait,
  assertAllHeaders,
  assertEachSucceeded,
  eventIdOf,
  setEndpoint,
  untilLog,
  untilOver,
} from "./observing.ts";

/** Failures in a row with which an endpoint is `failing`. */
const FAILING = 5;

/** For a test whose requests must not be late. */
const alone = it;

describe("A working endpoint", () => {
  const it = together();
  let receiver: Receiver;
  let dead: Receiver;
  before(async () => {
    receiver = await openReceiver();
    dead = await openReceiver();
  });
  after(async () => {
    await receiver.close();
    await dead.close();
  });

  const hang = () => {};
  const untilArrived = (path: string, events: number) =>
    eventually(() => new Set(receiver.received.filter((one) => one.path === path).map(eventIdOf)).size === events, {
      what: `${events} events at ${path}`,
    });
  const stop = async (team: Awaited<ReturnType<typeof makeTeam>>, ids: string[]) => {
    for (const id of ids) await setEndpoint(team, id, { active: false, disabled_reason: "manual" });
  };

  it("gets all of its events while another one hangs, one refuses and hundreds of their deliveries wait", async () => {
    receiver.behaveAt("/hangs", hang);
    const refusing = dead.origin;
    await dead.close();
    const team = await makeTeam();
    const [hanging, refused] = [
      await makeEndpoint(team, { url: `${receiver.origin}/hangs` }),
      await makeEndpoint(team, { url: `${refusing}/refuses` }),
    ];
    // The one that hangs is unproven, the other one is known to fail.
    await emitSome(team, FAILING);
    await untilLog(team, refused.id, (log) => log.filter(({ status }) => status !== "PENDING").length >= FAILING);
    const working = await makeEndpoint(team, { url: `${receiver.origin}/working` });
    const count = 400;
    await emitSome(team, count);
    await untilArrived("/working", count);
    const waiting = (await logOf(team, hanging.id)).filter(
      ({ status, attempt }) => status === "PENDING" && attempt === 1,
    );
    assert.ok(waiting.length >= 200, `${waiting.length} of the hanging one's wait`);
    assert.ok((await logOf(team, refused.id)).every(({ status }) => status !== "SUCCEEDED"));
    const log = await untilOver(team, working.id, count);
    assertEachSucceeded(log, count);
    assertAllHeaders(receiver, "/working", log, working);
    await stop(team, [hanging.id, refused.id]);
  });

  it("gets new events at once while many of its older ones wait for a retry", async () => {
    receiver.behaveAt("/recovered", askToWait(600));
    const team = await makeTeam();
    const endpoint = await makeEndpoint(team, { url: `${receiver.origin}/recovered` });
    // With one failure more it would be failing, and all of its deliveries would wait for a probe.
    await emitSome(team, FAILING - 1);
    await untilLog(
      team,
      endpoint.id,
      (log) => log.length === FAILING - 1 && log.every(({ status }) => status === "RETRYING"),
    );
    receiver.behaveAt("/recovered", answerWith(204));
    await emitSome(team, 3);
    const log = await untilLog(
      team,
      endpoint.id,
      (rows) => rows.filter(({ status }) => status === "SUCCEEDED").length === 3,
    );
    assert.equal(log.filter(({ status }) => status === "RETRYING").length, FAILING - 1);
    await stop(team, [endpoint.id]);
  });

  // One at a time, the requests behind it would wait for the end of its time.
  alone("gets the events behind one whose request hangs, and that one again", async () => {
    let hangs = false;
    receiver.behaveAt("/once", (_, response) => {
      if (!hangs) response.writeHead(204).end();
      hangs = false;
    });
    const team = await makeTeam();
    const endpoint = await makeEndpoint(team, { url: `${receiver.origin}/once` });
    await emitSome(team, 1);
    await untilOver(team, endpoint.id);
    hangs = true;
    await emitSome(team, 100);
    const log = await untilLog(
      team,
      endpoint.id,
      (rows) => rows.filter(({ status }) => status === "SUCCEEDED").length === 100,
    );
    assert.equal(log.filter(({ status }) => status === "PENDING").length, 1, "it still hangs");
    await untilOver(team, endpoint.id, 101);
  });
});

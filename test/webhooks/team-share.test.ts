import assert from "node:assert/strict";
import { setTimeout as delay } from "node:timers/promises";
import { sql } from "kysely";
import { REQUESTS } from "../../activities/webhooks/attempt-slice.ts";
import { MOST_REQUESTS, RESERVED_REQUESTS } from "../../activities/webhooks/deliveries.ts";
import { LateEndpoints } from "../../activities/webhooks/late-endpoints.ts";
import { SharedPlaces } from "../../activities/webhooks/shared-places.ts";
import { kysely } from "../../db/orm.ts";
import { transaction } from "../../db/transaction.ts";
import { TEAM_GROUPS } from "../../domain/webhooks/plan-groups.ts";
import { eventually } from "../support/eventually.ts";
import type { TestTeam } from "../support/factories.ts";
import { openReceiver, type Receiver } from "../support/receiver.ts";
import { emitSome, makeEndpoint, makeTeam } from "../support/webhooks.ts";
import { setHealth, untilHealthIsAwaited } from "./observing.ts";

const ENDPOINTS = 20;
/** So many that each endpoint alone would have five groups under way. */
const EVENTS = 500;

describe("Places that teams share", () => {
  /** Takes places for a team until it has to wait. @returns how many it got */
  async function takeAll(places: SharedPlaces, team: string): Promise<number> {
    for (let taken = 0; ; taken++) {
      const noWait = new AbortController();
      const place = places.take(team, noWait.signal);
      noWait.abort();
      if (!(await place)) return taken;
    }
  }

  it("leave a third to the others while one team takes all that it may", async () => {
    const places = new SharedPlaces(30);
    assert.equal(await takeAll(places, "a"), 20);
    assert.equal(await takeAll(places, "b"), 7);
    assert.equal(await takeAll(places, "c"), 2);
    places.giveBack("a");
    assert.equal(await takeAll(places, "a"), 0);
    assert.equal(await takeAll(places, "d"), 2);
  });

  it("leave some of the reserve to a further team while the teams before it take all that they may", async () => {
    const places = new SharedPlaces(MOST_REQUESTS, RESERVED_REQUESTS);
    const shares: number[] = [];
    for (let team = 0; team < 20; team++) shares.push(await takeAll(places, String(team)));
    assert.deepEqual(shares.slice(0, 4), [840, 280, 94, 31]);
    for (let team = 4; team < 20; team++) {
      const [share = 0, before = 0] = [shares[team], shares[team - 1]];
      assert.ok(share <= before && share >= Math.min(REQUESTS, before * 0.8), shares.join(", "));
    }
  });

  it("suffice for the first requests of all groups of a team beside the further ones to its late endpoints", async () => {
    const lateEndpoints = new LateEndpoints(() => false);
    let further = 0;
    while (lateEndpoints.take("a")) further++;
    const share = await takeAll(new SharedPlaces(MOST_REQUESTS), "a");
    assert.ok(share >= further + TEAM_GROUPS * REQUESTS, `${share} places, ${further} further requests`);
  });

  it("let a team have one when there is but one", async () => {
    const places = new SharedPlaces(1);
    assert.equal(await takeAll(places, "a"), 1);
    assert.equal(await takeAll(places, "b"), 0);
    places.giveBack("a");
    assert.equal(await takeAll(places, "b"), 1);
  });

  it("go to the teams that wait in turn, and to each in its order", async () => {
    const places = new SharedPlaces(1);
    await places.take("held");
    const order: string[] = [];
    const waiting = ["a1", "a2", "a3", "b1", "b2"].map((name) =>
      places.run(name.slice(0, 1), async () => void order.push(name)),
    );
    places.giveBack("held");
    await Promise.all(waiting);
    assert.deepEqual(order, ["a1", "b1", "a2", "b2", "a3"]);
  });

  it("are given back when the work fails, and skip those that have stopped waiting", async () => {
    const places = new SharedPlaces(1);
    const ended = new AbortController();
    const failing = places.run("a", () => Promise.reject(new Error("failed")));
    const left = places.take("b", ended.signal);
    ended.abort();
    await assert.rejects(failing, /failed/);
    assert.equal(await left, false);
    assert.equal(await places.take("b", ended.signal), false);
    assert.equal(await takeAll(places, "c"), 1);
  });
});

describe("The share of a team", () => {
  let receiver: Receiver;
  before(async () => {
    receiver = await openReceiver();
  });
  after(() => receiver.close());

  async function workingEndpoints(team: TestTeam, name: string, count: number): Promise<string[]> {
    const ids: string[] = [];
    for (let n = 0; n < count; n++) {
      const { id } = await makeEndpoint(team, { url: `${receiver.origin}/${name}/${n}` });
      await setHealth(team, id, { last_success_at: sql`now()` });
      ids.push(id);
    }
    return ids;
  }

  const at = (name: string) => receiver.received.filter(({ path }) => path.startsWith(`/${name}/`));

  it("bounds the groups of endpoints that trickle, and another team's deliveries arrive beside them", async () => {
    const slow = await makeTeam();
    const quick = await makeTeam();
    await workingEndpoints(slow, "trickle", ENDPOINTS);
    await workingEndpoints(quick, "quick", 1);
    receiver.behave = ({ path }, response) => {
      // A body that does not end is read until its time is up; the status is a success.
      if (path.startsWith("/trickle/")) response.writeHead(200).write("x");
      else response.writeHead(204).end();
    };
    let most = 0;
    const watching = new AbortController();
    const watch = (async () => {
      while (!watching.signal.aborted) {
        const { rows } = await sql<{ groups: number }>`select count(*)::int as groups from webhook_groups
          where team_id = ${slow.team.id}`.execute(kysely(slow.em.fork()));
        most = Math.max(most, rows[0]?.groups ?? 0);
        await delay(20);
      }
    })();
    try {
      await emitSome(slow, EVENTS);
      await eventually(() => most > ENDPOINTS, { what: "more than one group of an endpoint" });
      for (let n = 0; n < 10; n++) {
        await emitSome(quick, 1, "newsletter.started", n);
        await receiver.until("/quick/0", n + 1);
      }
      assert.ok(at("trickle").length < ENDPOINTS * EVENTS, "the others were still under way");
      assert.ok(most <= TEAM_GROUPS + ENDPOINTS, `${most} groups at once`);
    } finally {
      watching.abort();
      await watch;
      await sql`delete from webhook_endpoints where team_id = ${slow.team.id}`.execute(kysely(slow.em));
    }
  });

  it("leaves connections to Postgres to the relay and to other teams", async () => {
    const slow = await makeTeam();
    const quick = await makeTeam();
    const ids = await workingEndpoints(slow, "blocked", ENDPOINTS);
    for (const id of ids) await setHealth(slow, id, { consecutive_failures: 1 });
    await workingEndpoints(quick, "beside", 1);
    const held: (() => void)[] = [];
    // On a busy machine a request may time out and come again before the last endpoint's first one.
    const asked = new Set<string>();
    let isHolding = true;
    receiver.behave = ({ path }, response) => {
      const answer = () => void response.writeHead(204).end();
      if (!isHolding || !path.startsWith("/blocked/")) return answer();
      asked.add(path);
      held.push(answer);
    };
    await emitSome(slow, 1);
    await eventually(() => asked.size === ENDPOINTS, { what: "a request of each endpoint" });
    await transaction(slow.em, async (tx) => {
      // Their outcomes cannot be written before this transaction ends: each ends the failures of its endpoint.
      await sql`select from webhook_health where webhook_id = any(${ids}) for update`.execute(kysely(tx));
      isHolding = false;
      for (const answer of held) answer();
      await untilHealthIsAwaited(slow);
      await emitSome(quick, 1);
      await receiver.until("/beside/0", 1);
    });
    await eventually(
      async () => {
        const { rows } = await sql<{ left: number }>`select count(*)::int as left from webhook_deliveries
          where team_id = ${slow.team.id} and status in ('PENDING', 'RETRYING')`.execute(kysely(slow.em.fork()));
        return rows[0]?.left === 0;
      },
      { what: "the outcomes of the others" },
    );
  });
});

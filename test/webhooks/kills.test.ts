import assert from "node:assert/strict";
import { sql } from "kysely";
import { kysely } from "../../db/orm.ts";
import { kill } from "../support/processes.ts";
import { openReceiver, type Receiver } from "../support/receiver.ts";
import { SEED } from "../support/seed.ts";
import {
  assertEach,
  createMany,
  giveUpRequests,
  inTheMiddle,
  LONG_MS,
  openScene,
  somewhere,
  tally,
  working,
} from "./kills.ts";

/** As many as take the worker a few seconds. */
const AMOUNT = { events: 200, throughApi: 20 };

describe(`200 events to 3 endpoints (SEED=${SEED})`, function () {
  this.timeout(2 * LONG_MS);
  let receiver: Receiver;
  before(async () => {
    receiver = await openReceiver();
  });
  after(() => receiver.close());

  it("all arrive when the worker is killed in the middle; only events in flight come twice", async () => {
    const scene = await openScene(receiver, working(3));
    const { unknown } = await inTheMiddle(scene, { ...AMOUNT, purpose: 1 }, () => kill("webhooks").again);
    assert.ok(unknown > 0, "requests were in flight");
  });

  it("come once each when the worker is asked to stop in the middle", async () => {
    const scene = await openScene(receiver, working(3));
    const stop = () => kill("webhooks", "SIGTERM").again;
    const { duplicates, unknown, tooSlow } = await inTheMiddle(scene, { ...AMOUNT, purpose: 7 }, stop);
    assert.equal(unknown, 0);
    assert.ok(duplicates <= tooSlow, `${duplicates} duplicates`);
  });
});

describe(`An API killed in the middle of 60 changes (SEED=${SEED})`, function () {
  this.timeout(2 * LONG_MS);
  let receiver: Receiver;
  before(async () => {
    receiver = await openReceiver();
  });
  after(() => receiver.close());

  it("has accepted none without its event, and made one change and one event of each retried request", async () => {
    const scene = await openScene(receiver, working(2));
    const changes = 60;
    const at = somewhere(changes, 9);
    let strike: Promise<unknown> | undefined;
    const created = await createMany(scene, changes, (done) => {
      if (done < at || strike) return;
      const { again } = kill("api");
      strike = again.then(() => giveUpRequests(scene));
    });
    await strike;
    assert.ok(created.some(({ retried }) => retried));
    const { rows } = await sql<{
      id: string;
    }>`select id from subscribers where team_id = ${scene.team.team.id}`.execute(kysely(scene.team.em.fork()));
    assert.deepEqual(rows.map(({ id }) => id).sort(), created.map(({ id }) => id).sort());
    const result = await tally(scene);
    assert.equal(result.unknown, 0);
    assertEach(
      result,
      created.map(({ id }) => id),
    );
  });
});

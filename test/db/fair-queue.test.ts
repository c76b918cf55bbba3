import assert from "node:assert/strict";
import { setImmediate as settled } from "node:timers/promises";
import { FairQueue, NoPlaceError } from "../../lib/fair-queue.ts";

/** A key has a quarter. What waits when a test ends is not refused while the process runs other tests. */
const shared = (places: number, mostWaitMs = 2 ** 31 - 1) =>
  new FairQueue({ places, most: Math.ceil(places / 4), mostWaitMs });

describe("A fair queue", () => {
  /** Takes places; shows by key those that were given, in order. */
  function use(queue: FairQueue) {
    const given: { key: string; leave: () => void }[] = [];
    const take = async (key: string, hasEnded = () => false): Promise<void> => {
      given.push({ key, leave: await queue.take({ key, hasEnded }) });
    };
    const keys = async () => {
      await settled();
      return given.map(({ key }) => key).join("");
    };
    return { given, take, keys };
  }

  it("gives a key its share of the places, and leaves the rest to others", async () => {
    const queue = shared(10);
    const { take, keys } = use(queue);
    for (let i = 0; i < 5; i++) void take("a");
    void take("b");
    assert.equal(await keys(), "aaab");
    assert.equal(queue.waiting, 2);
  });

  it("serves keys in turn, however long their lines are", async () => {
    const { given, take, keys } = use(shared(1));
    for (const key of "aaaabbc") void take(key);
    for (let i = 0; i < 6; i++) {
      await keys();
      given[i]?.leave();
    }
    assert.equal(await keys(), "aabcaba");
  });

  it("passes over a key that has its share", async () => {
    const { given, take, keys } = use(shared(2));
    for (const key of "aba") void take(key);
    assert.equal(await keys(), "ab");
    void take("c");
    given[1]?.leave();
    assert.equal(await keys(), "abc");
  });

  it("drops one whose caller has gone, and serves the next", async () => {
    const queue = shared(1);
    const { given, take, keys } = use(queue);
    let hasGone = false;
    void take("a");
    const left = assert.rejects(
      take("a", () => hasGone),
      (error) => error instanceof NoPlaceError && !error.isAwaited,
    );
    void take("a");
    await keys();
    hasGone = true;
    given[0]?.leave();
    await left;
    assert.equal(await keys(), "aa");
    assert.equal(queue.waiting, 0);
  });

  it("refuses one that has waited for long, and gives its place to the next", async () => {
    const queue = shared(1, 20);
    const leave = await queue.take({ key: "a" });
    await assert.rejects(queue.take({ key: "b" }), (error) => error instanceof NoPlaceError && error.isAwaited);
    assert.equal(queue.waiting, 0);
    const next = queue.take({ key: "c" });
    leave();
    (await next)();
    (await queue.take({ key: "b" }))();
  });
});

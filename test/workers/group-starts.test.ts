import assert from "node:assert/strict";
import type { Group } from "../../domain/webhooks/grouping.ts";
import { GroupStarts, MOST_PENDING } from "../../workers/group-starts.ts";
import { eventually } from "../support/eventually.ts";

describe("The starts of groups' workflows", () => {
  let started: string[];
  let ends: (() => void)[];
  let starts: GroupStarts;
  beforeEach(() => {
    started = [];
    ends = [];
    starts = new GroupStarts(({ id }) => {
      started.push(id);
      const { promise, resolve } = Promise.withResolvers<void>();
      ends.push(resolve);
      return promise;
    });
  });

  const add = (teamId: string, ...ids: number[]) => {
    for (const id of ids) starts.add({ id: `${teamId}${id}`, teamId } as Group);
  };
  const numbers = (from: number, to: number) => Array.from({ length: to - from + 1 }, (_, n) => from + n);
  const settle = () => new Promise<void>((resolve) => setImmediate(resolve));
  const endOne = async () => {
    ends.shift()?.();
    await settle();
  };
  const endAll = async () => {
    for (; ends.length > 0; await settle()) for (const end of ends.splice(0)) end();
    await starts.close();
  };

  it("are made 16 at once, each once", async () => {
    add("a", ...numbers(1, 20));
    assert.equal(started.length, 16);
    add("a", 1, 20);
    await endOne();
    assert.equal(started.length, 17);
    await endAll();
    assert.deepEqual(
      started,
      numbers(1, 20).map((n) => `a${n}`),
    );
    add("a", 20);
    assert.equal(started.length, 21, "one that was started may be started again");
    await endAll();
  });

  it("are made in turns between teams", async () => {
    add("a", ...numbers(1, 20));
    add("b", 1, 2);
    add("c", 1);
    for (let n = 0; n < 7; n++) await endOne();
    assert.deepEqual(started.slice(16), ["a17", "b1", "c1", "a18", "b2", "a19", "a20"]);
    await endAll();
  });

  it("have room until too many groups are pending, and again when a start has ended", async () => {
    add("a", ...numbers(1, MOST_PENDING - 1));
    assert.equal(starts.hasRoom, true);
    add("a", MOST_PENDING);
    assert.equal(starts.hasRoom, false);
    await endOne();
    assert.equal(starts.hasRoom, true);
    await endAll();
    assert.equal(started.length, MOST_PENDING);
  });

  it("stand still while none of those under way ends and no further one may begin", async () => {
    add("a", ...numbers(1, 15));
    assert.equal(starts.standstillMs, 0);
    add("a", 16, 17);
    await eventually(() => starts.standstillMs > 500);
    const before = starts.standstillMs;
    await endOne();
    assert.ok(starts.standstillMs < before);
    await endAll();
    assert.equal(starts.standstillMs, 0);
  });

  it("are not made for groups that were dropped while they waited", async () => {
    add("a", ...numbers(1, 20));
    add("b", 1);
    starts.dropWaiting();
    await endAll();
    assert.equal(started.length, 16);
    add("a", 17);
    assert.equal(started.at(-1), "a17");
    await endAll();
  });
});

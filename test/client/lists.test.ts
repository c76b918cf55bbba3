import assert from "node:assert/strict";
import { setImmediate as nextTurn } from "node:timers/promises";
import { type MailingList, Mailkeel, MailkeelError } from "../../client/index.ts";
import { documentedFetch } from "../support/api.ts";
import { eventually } from "../support/eventually.ts";
import { makeTeam } from "../support/factories.ts";
import { stack } from "../support/stack.ts";

const MADE = 7;

async function taken<Item>(items: AsyncIterable<Item>): Promise<Item[]> {
  const all: Item[] = [];
  for await (const item of items) all.push(item);
  return all;
}

describe("A list of the client", () => {
  let mailkeel: Mailkeel;
  let apiKey: string;
  const made: MailingList[] = [];
  before(async () => {
    apiKey = (await makeTeam()).keys.live;
    mailkeel = new Mailkeel({ apiKey, baseUrl: (await stack()).api, fetch: documentedFetch });
    for (let i = 0; i < MADE; i++) made.push((await mailkeel.lists.create({ name: `List ${i}` })).data);
  });

  it("is one page when it is awaited", async () => {
    const { data, meta } = await mailkeel.lists.list({ limit: 3, sort: "created_at" });
    assert.deepEqual(
      data.map(({ id }) => id),
      made
        .slice(-3)
        .reverse()
        .map(({ id }) => id),
    );
    assert.equal(meta.hasMore, true);
    assert.match(meta.requestId, /^req_/);
    assert.ok(meta.nextCursor && meta.syncedThrough);
    const next = await mailkeel.lists.list({ limit: 3, sort: "created_at", cursor: meta.nextCursor });
    assert.equal(next.data[0]?.id, made[3]?.id);
  });

  it("is every record when it is iterated over, each once, also a second time", async () => {
    const listing = mailkeel.lists.list({ limit: 2, order: "asc", sort: "created_at" });
    for (const _ of [1, 2]) assert.deepEqual(await taken(listing), made);
    assert.equal((await listing).data.length, 2);
  });

  it("asks for no more pages than are taken", async () => {
    let requests = 0;
    const counting = new Mailkeel({
      apiKey,
      baseUrl: (await stack()).api,
      fetch: (...request) => {
        requests++;
        return documentedFetch(...request);
      },
    });
    for await (const _ of counting.lists.list({ limit: 1 })) break;
    assert.equal(requests, 1);
  });

  it("throws its error where it is taken, however late that is, and leaves the process alone", async () => {
    const lost = new TypeError("fetch failed");
    const failing = new Mailkeel({
      apiKey: "mk_live_x",
      baseUrl: (await stack()).api,
      maxRetries: 0,
      fetch: () => Promise.reject(lost),
    });
    const unhandled: unknown[] = [];
    const note = (error: unknown) => unhandled.push(error);
    process.on("unhandledRejection", note);
    try {
      const listing = failing.lists.list();
      for (let turn = 0; turn < 5; turn++) await nextTurn();
      await assert.rejects(taken(listing), { name: "ConnectionError", cause: lost });
      await assert.rejects(listing, { name: "ConnectionError", cause: lost });
    } finally {
      process.off("unhandledRejection", note);
    }
    assert.deepEqual(unhandled, []);
  });

  describe("in an incremental run", () => {
    it("is every record without an instant, then those that changed since", async () => {
      const first = mailkeel.lists.changes();
      assert.throws(() => first.nextSince, MailkeelError);
      assert.deepEqual(new Set((await taken(first)).map(({ id }) => id)), new Set(made.map(({ id }) => id)));

      // The instant of `synced_through` stays behind by a second or more, so what was just changed comes again.
      let since = first.nextSince;
      const hasNone = async () => {
        const run = mailkeel.lists.changes(since);
        const found = await taken(run);
        since = run.nextSince;
        return found.length === 0;
      };
      await eventually(hasNone, { what: "a run without changes" });
      const [changed] = made;
      assert.ok(changed);
      await mailkeel.lists.update(changed.id, { name: "Changed" });
      const second = mailkeel.lists.changes(since, { limit: 1 });
      assert.deepEqual(
        (await taken(second)).map(({ id, name }) => [id, name]),
        [[changed.id, "Changed"]],
      );
      assert.ok(second.nextSince >= since);
    });

    it("gives no instant for the next run when it was broken off", async () => {
      const run = mailkeel.lists.changes(undefined, { limit: 1 });
      for await (const _ of run) break;
      assert.throws(() => run.nextSince, /has not ended/);
    });
  });
});

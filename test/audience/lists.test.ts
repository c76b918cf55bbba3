import assert from "node:assert/strict";
import { sql } from "kysely";
import { Newsletter } from "../../db/entities/send.ts";
import { kysely } from "../../db/orm.ts";
import { transaction } from "../../db/transaction.ts";
import { attachList } from "../../domain/sends/drafts/drafts.ts";
import { type ApiClient, api, assertFieldRefused, codeOf, type Json } from "../support/api.ts";
import { eventually } from "../support/eventually.ts";
import { makeTeam, type TestTeam, unique, uniqueEmail } from "../support/factories.ts";

const ISO = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/;

describe("Lists", () => {
  let team: TestTeam;
  let client: ApiClient;
  beforeEach(async () => {
    team = await makeTeam();
    client = api(team.keys.live);
  });

  const makeList = async (fields: Json = {}): Promise<Json> => {
    const answer = await client.post("/lists", { name: "Readers", ...fields });
    assert.equal(answer.status, 201, answer.text);
    return answer.body.data;
  };
  const makeSubscriber = async (): Promise<string> =>
    (await client.post("/subscribers", { email: uniqueEmail() })).body.data.id;
  const add = (listId: string, ids: string[]) => client.post(`/lists/${listId}/subscribers`, { subscriber_ids: ids });

  it("creates one with everything it then shows", async () => {
    const { id, created_at, updated_at, ...rest } = await makeList({ name: "  News  ", description: "Weekly" });
    assert.deepEqual(rest, { object: "list", name: "News", description: "Weekly", optin: "SINGLE" });
    assert.match(id, /^list_/);
    assert.match(created_at, ISO);
    assert.match(updated_at, ISO);
    const read = await client.get(`/lists/${id}`);
    assert.deepEqual(read.body.data, { ...rest, id, created_at, updated_at });
  });

  for (const [what, body, param] of [
    ["no name", {}, "name"],
    ["an empty name", { name: " " }, "name"],
    ["a name of 201 characters", { name: "x".repeat(201) }, "name"],
    ["a line break in the name", { name: "a\nb" }, "name"],
    ["an unknown opt-in", { name: "x", optin: "TRIPLE" }, "optin"],
    ["a field it does not have", { name: "x", size: 3 }, "size"],
  ] as const) {
    it(`refuses ${what}, and names the field`, async () => {
      assertFieldRefused(await client.post("/lists", body), param);
    });
  }

  it("creates 1,000 in an environment and no more, also when many are created at once", async () => {
    await sql`insert into lists (id, team_id, environment, name, optin)
      select ${team.team.id} || n, ${team.team.id}, 'LIVE', 'Bulk', 'SINGLE' from generate_series(1, 997) n`.execute(
      kysely(team.em),
    );
    assert.equal((await client.post("/lists", { name: "x" }, { query: { dry_run: true } })).status, 200);
    const answers = await Promise.all(Array.from({ length: 8 }, () => client.post("/lists", { name: "x" })));
    assert.equal(answers.filter(({ status }) => status === 201).length, 3);
    const refused = answers.filter(({ status }) => status !== 201);
    for (const { status, body } of refused) {
      assert.deepEqual([status, body.error.code], [409, "resource_limit_reached"]);
      assert.match(body.error.message, /1000 lists/);
    }
    assert.equal((await client.post("/lists", { name: "x" }, { query: { dry_run: true } })).status, 409);
    assert.equal((await api(team.keys.test).post("/lists", { name: "x" })).status, 201);

    const idempotencyKey = unique("key");
    assert.equal((await client.post("/lists", { name: "y" }, { idempotencyKey })).status, 409);
    await client.delete(`/lists/${team.team.id}1`);
    assert.equal((await client.post("/lists", { name: "y" }, { idempotencyKey })).status, 201);
  });

  describe("their subscribers", () => {
    it("are shown with their addresses to a key that may read subscribers too", async () => {
      const [list, person] = [await makeList(), await makeSubscriber()];
      await add(list.id, [person]);
      const pathOf = (id: string) => `/lists/${id}/subscribers`;
      for (const scope of ["lists:read", "subscribers:read"]) {
        const { key } = await team.mint({ scopes: [scope] });
        for (const id of [list.id, "list_none"]) {
          const { status, body } = await api(key).get(pathOf(id));
          assert.deepEqual([status, body.error.code], [403, "insufficient_scope"]);
          assert.match(body.error.message, scope === "lists:read" ? /subscribers:read/ : /lists:read/);
        }
      }
      const { key } = await team.mint({ scopes: ["lists:read", "subscribers:read"] });
      const { status, body } = await api(key).get(pathOf(list.id));
      assert.equal(status, 200);
      assert.deepEqual(
        body.data.map(({ id }: Json) => id),
        [person],
      );
    });

    it("starts a SINGLE subscription CONFIRMED and a DOUBLE one PENDING with a mail due", async () => {
      const [single, double, person] = [await makeList(), await makeList({ optin: "DOUBLE" }), await makeSubscriber()];
      await add(single.id, [person]);
      await add(double.id, [person]);
      const { body } = await client.get(`/subscribers/${person}`);
      assert.deepEqual(
        body.data.subscriptions.map(({ list_id, status }: Json) => [list_id, status]),
        [
          [single.id, "CONFIRMED"],
          [double.id, "PENDING"],
        ],
      );
      assert.match(body.data.subscriptions[0].confirmed_at, ISO);
      assert.equal(body.data.subscriptions[1].confirmed_at, null);
      const due = await kysely(team.em)
        .selectFrom("subscriptions")
        .select("list_id")
        .where("subscriber_id", "=", person)
        .where("confirmation_due_at", "is not", null)
        .execute();
      assert.deepEqual(due, [{ list_id: double.id }]);
    });

    it("never makes a mail due in the test environment", async () => {
      const test = api(team.keys.test);
      const list = (await test.post("/lists", { name: "x", optin: "DOUBLE" })).body.data.id;
      const person = (await test.post("/subscribers", { email: uniqueEmail() })).body.data.id;
      await test.post(`/lists/${list}/subscribers`, { subscriber_ids: [person] });
      const [row] = await kysely(team.em).selectFrom("subscriptions").selectAll().where("list_id", "=", list).execute();
      assert.equal(row?.status, "PENDING");
      assert.equal(row?.confirmation_due_at, null);
    });

    it("adds each once, and adding again changes nothing", async () => {
      const [list, one, two] = [await makeList(), await makeSubscriber(), await makeSubscriber()];
      const first = await add(list.id, [two, one, two]);
      assert.equal(first.status, 200);
      assert.deepEqual(first.body.data, {
        object: "list_subscriber_batch",
        list_id: list.id,
        added: [one, two].sort(),
        already_subscribed: [],
        opted_out: [],
      });
      const before = await client.get(`/lists/${list.id}/subscribers`);
      const again = await add(list.id, [one, two]);
      assert.deepEqual(again.body.data.added, []);
      assert.deepEqual(again.body.data.already_subscribed, [one, two].sort());
      const after = await client.get(`/lists/${list.id}/subscribers`);
      assert.deepEqual(after.body.data, before.body.data);
      assert.deepEqual(
        after.body.data.map(({ object, id, status }: Json) => [object, id, status]).sort(),
        [one, two].sort().map((id) => ["list_subscriber", id, "CONFIRMED"]),
      );
    });

    it("names a person who is PENDING and asked again by mail in the impact; the test environment mails nobody", async () => {
      for (const [calls, asked] of [
        [client, 1],
        [api(team.keys.test), 0],
      ] as const) {
        const list = (await calls.post("/lists", { name: "x", optin: "DOUBLE" })).body.data.id;
        const { id } = (await calls.post("/subscribers", { email: uniqueEmail() })).body.data;
        const path = `/lists/${list}/subscribers`;
        await calls.post(path, { subscriber_ids: [id] });
        await eventually(
          async () => {
            const [{ confirmation_sent_at }] = (await calls.get(path)).body.data;
            return asked === 0 || confirmation_sent_at !== null;
          },
          { what: "the first mail" },
        );
        const { meta } = (await calls.post(path, { subscriber_ids: [id] }, { query: { dry_run: true } })).body;
        assert.equal(meta.impact.would_update, asked);
      }
    });

    it("never lifts an opt-out by adding again, and reports the opt-out", async () => {
      const [list, person] = [await makeList(), await makeSubscriber()];
      await add(list.id, [person]);
      await kysely(team.em)
        .updateTable("subscriptions")
        .set({ status: "UNSUBSCRIBED", unsubscribed_at: new Date() })
        .where("subscriber_id", "=", person)
        .execute();
      assert.deepEqual((await add(list.id, [person])).body.data.opted_out, [person]);
      const removed = await client.delete(`/lists/${list.id}/subscribers/${person}`);
      assert.equal(removed.status, 409);
      assert.equal(removed.body.error.code, "resource_state_invalid");
      const { body } = await client.get(`/lists/${list.id}/subscribers`, { query: { status: "UNSUBSCRIBED" } });
      assert.equal(body.data.length, 1);
    });

    it("opts one out by PATCH, once, and takes no other status", async () => {
      const [list, person] = [await makeList(), await makeSubscriber()];
      const path = `/lists/${list.id}/subscribers/${person}`;
      const set = (status: string) => client.patch(path, { status });
      assert.equal((await set("UNSUBSCRIBED")).status, 404, "not on the list");
      await add(list.id, [person]);
      const { body } = await set("UNSUBSCRIBED");
      assert.deepEqual([body.data.object, body.data.id, body.data.status], ["list_subscriber", person, "UNSUBSCRIBED"]);
      assert.match(body.data.unsubscribed_at, ISO);
      assert.deepEqual((await set("UNSUBSCRIBED")).body.data, body.data);
      assert.deepEqual((await add(list.id, [person])).body.data.opted_out, [person]);
      for (const status of ["CONFIRMED", "PENDING"]) {
        const refused = await set(status);
        assert.deepEqual([codeOf(refused), refused.body.error.param], ["validation_failed", "status"]);
      }
    });

    it("adds none when one of the subscribers does not exist, and names that one", async () => {
      const [list, person] = [await makeList(), await makeSubscriber()];
      const { status, body } = await add(list.id, [person, "sub_nobody"]);
      assert.equal(status, 404);
      assert.equal(body.error.code, "not_found");
      assert.equal(body.error.param, "subscriber_ids[1]");
      assert.deepEqual((await client.get(`/lists/${list.id}/subscribers`)).body.data, []);
    });

    it("gives racing adds of the same people one subscription each", async () => {
      const list = await makeList();
      const ids = await Promise.all(Array.from({ length: 8 }, makeSubscriber));
      const answers = await Promise.all(
        Array.from({ length: 6 }, (_, i) => add(list.id, i % 2 ? ids : ids.toReversed())),
      );
      assert.deepEqual(
        answers.map(({ status }) => status),
        answers.map(() => 200),
      );
      assert.equal(
        answers.reduce((sum, { body }) => sum + body.data.added.length, 0),
        ids.length,
      );
    });

    it("removes a subscriber, once", async () => {
      const [list, person] = [await makeList(), await makeSubscriber()];
      await add(list.id, [person]);
      const removed = await client.delete(`/lists/${list.id}/subscribers/${person}`);
      assert.deepEqual(removed.body.data, { object: "list_subscriber", id: person, deleted: true });
      assert.equal((await client.delete(`/lists/${list.id}/subscribers/${person}`)).status, 404);
      assert.equal((await client.get(`/subscribers/${person}`)).status, 200);
    });
  });

  describe("deleting one", () => {
    it("deletes its subscriptions, keeps the subscribers, and takes it off the drafts", async () => {
      const [list, person] = [await makeList(), await makeSubscriber()];
      await add(list.id, [person]);
      const draft = (await client.post("/newsletters", { name: "n" })).body.data;
      await transaction(team.em, (em) => attachList(em, draft.id, list.id));
      const { status, body } = await client.delete(`/lists/${list.id}`);
      assert.equal(status, 200);
      assert.deepEqual(body.data, { object: "list", id: list.id, deleted: true });
      assert.equal((await client.get(`/lists/${list.id}`)).status, 404);
      assert.deepEqual((await client.get(`/subscribers/${person}`)).body.data.subscriptions, []);
      const after = (await client.get(`/newsletters/${draft.id}`)).body.data;
      assert.deepEqual(after.lists, []);
      assert.ok(after.updated_at > draft.updated_at);
    });

    it("is refused while a newsletter that is not over targets it", async () => {
      const list = await makeList();
      const draft = (await client.post("/newsletters", { name: "n" })).body.data;
      await transaction(team.em, (em) => attachList(em, draft.id, list.id));
      for (const status of ["SCHEDULED", "SENDING", "PAUSED", "SENT"] as const) {
        await transaction(team.em, (em) => em.nativeUpdate(Newsletter, { id: draft.id }, { status }));
        const answer = await client.delete(`/lists/${list.id}`);
        assert.equal(codeOf(answer), status === "SENT" ? "200" : "resource_state_invalid", status);
      }
    });
  });
});

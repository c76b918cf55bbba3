import assert from "node:assert/strict";
import { Readable } from "node:stream";
import type { Tenant } from "../../db/orm.ts";
import { importSubscribers } from "../../domain/import/import.ts";
import { type ApiClient, api, assertFieldRefused, type Json } from "../support/api.ts";
import { makeTeam, type TestTeam, unique, uniqueEmail } from "../support/factories.ts";

describe("Subscribers", () => {
  let team: TestTeam;
  let client: ApiClient;
  before(async () => {
    team = await makeTeam();
    client = api(team.keys.live);
  });

  const tenant = (): Tenant => ({ teamId: team.team.id, environment: "LIVE" });
  const make = async (fields: Json = {}): Promise<Json> => {
    const answer = await client.post("/subscribers", { email: uniqueEmail(), ...fields });
    assert.equal(answer.status, 201, answer.text);
    return answer.body.data;
  };

  it("creates one, on no list, with the address trimmed and in lower case", async () => {
    const local = unique("anna");
    const { id, created_at, updated_at, ...rest } = await make({
      email: ` ${local.toUpperCase()}@xn--mnchen-3ya.DE `,
      first_name: "Änne",
    });
    assert.match(id, /^sub_/);
    assert.deepEqual(rest, {
      object: "subscriber",
      email: `${local}@xn--mnchen-3ya.de`,
      first_name: "Änne",
      last_name: null,
      tracking_consent: null,
    });
    const read = await client.get(`/subscribers/${id}`);
    assert.deepEqual(read.body.data, { ...rest, id, created_at, updated_at, subscriptions: [] });
  });

  for (const [what, fields, param] of [
    ["no address", { email: undefined }, "email"],
    ["text that is no address", { email: "nobody" }, "email"],
    ["a control character in a name", { email: "a@example.com", first_name: "a\r\nBcc: b" }, "first_name"],
    ["a name of 201 characters", { email: "a@example.com", last_name: "x".repeat(201) }, "last_name"],
  ] as const) {
    it(`refuses ${what}, and names the field`, async () => {
      assertFieldRefused(await client.post("/subscribers", fields), param);
    });
  }

  it("takes an empty or blank name for none, and keeps no blanks around another", async () => {
    const { id, first_name, last_name } = await make({ first_name: "", last_name: "  van Dyk " });
    assert.deepEqual([first_name, last_name], [null, "van Dyk"]);
    const { body } = await client.patch(`/subscribers/${id}`, { first_name: "Änne\t", last_name: "  " });
    assert.deepEqual([body.data.first_name, body.data.last_name], ["Änne", null]);
  });

  it("changes names and address, and refuses an address that another one has", async () => {
    const [one, other] = [await make({ first_name: "A" }), await make()];
    const email = uniqueEmail();
    const { body } = await client.patch(`/subscribers/${one.id}`, { email, last_name: "B" });
    assert.deepEqual({ ...body.data, updated_at: 0 }, { ...one, email, last_name: "B", updated_at: 0 });
    const refused = await client.patch(`/subscribers/${one.id}`, { email: other.email });
    assert.equal(refused.status, 409);
    const { code, resource_id } = refused.body.error;
    assert.deepEqual([code, resource_id], ["resource_already_exists", other.id]);
    assert.equal((await client.get(`/subscribers/${one.id}`)).body.data.email, email);
  });

  it("names the one that has an address to a key that may read it alone, on a replay too", async () => {
    const { id, email } = await make();
    const { key } = await team.mint({ scopes: ["subscribers:write"] });
    const idempotencyKey = unique("taken");
    for (const [by, named] of [
      [client, id],
      [api(key), undefined],
      [client, id],
    ] as const) {
      const { body } = await by.post("/subscribers", { email }, { idempotencyKey });
      assert.deepEqual([body.error.code, body.error.resource_id], ["resource_already_exists", named]);
    }
  });

  it("keeps `updated_at` of the subscriptions when an address changes", async () => {
    const person = await make();
    const list = (await client.post("/lists", { name: "x", optin: "SINGLE" })).body.data;
    await client.post(`/lists/${list.id}/subscribers`, { subscriber_ids: [person.id] });
    const shown = async () => (await client.get(`/lists/${list.id}/subscribers`)).body.data[0];
    const before = await shown();
    const email = uniqueEmail();
    await client.patch(`/subscribers/${person.id}`, { email });
    assert.deepEqual(await shown(), { ...before, email });
  });

  it("asks the owner of a new address to confirm where the list asks for double opt-in", async () => {
    const person = await make();
    const lists: Json[] = [];
    for (const optin of ["SINGLE", "DOUBLE"]) {
      const list = (await client.post("/lists", { name: "x", optin })).body.data;
      await client.post(`/lists/${list.id}/subscribers`, { subscriber_ids: [person.id] });
      lists.push(list.id);
    }
    await team.em
      .fork()
      .execute("update subscriptions set status = 'CONFIRMED', confirmation_due_at = null where subscriber_id = ?", [
        person.id,
      ]);
    await client.patch(`/subscribers/${person.id}`, { email: uniqueEmail() });
    const { subscriptions } = (await client.get(`/subscribers/${person.id}`)).body.data;
    assert.deepEqual(
      lists.map((id) => subscriptions.find((subscription: Json) => subscription.list_id === id).status),
      ["CONFIRMED", "PENDING"],
    );
  });

  describe("deleting one", () => {
    const listOf = async (optin = "SINGLE"): Promise<string> =>
      (await client.post("/lists", { name: "x", optin })).body.data.id;
    const add = async (list: string, id: string) =>
      (await client.post(`/lists/${list}/subscribers`, { subscriber_ids: [id] })).body.data;
    const optOut = (list: string, id: string) =>
      client.patch(`/lists/${list}/subscribers/${id}`, { status: "UNSUBSCRIBED" });

    it("deletes the subscriptions too, frees the contact slot and leaves suppressions", async () => {
      const { id, email } = await make();
      const list = await listOf();
      await add(list, id);
      await client.post("/suppressions", { emails: [email] });
      const slots = async () => (await client.get("/usage")).body.data.limits["contacts.slots"].used;
      const used = await slots();
      const { body } = await client.delete(`/subscribers/${id}`, { query: { dry_run: true } });
      assert.deepEqual([body.meta.impact.would_delete, body.meta.impact.affected_ids], [2, [id]]);
      const deleted = await client.delete(`/subscribers/${id}`);
      assert.deepEqual(deleted.body.data, { object: "subscriber", id, deleted: true });
      assert.equal((await client.delete(`/subscribers/${id}`)).status, 404);
      assert.deepEqual((await client.get(`/lists/${list}/subscribers`)).body.data, []);
      assert.equal(await slots(), used - 1);
      assert.equal((await client.get(`/suppressions/${encodeURIComponent(email)}`)).status, 200);
    });

    /** Deletes a subscriber who opted out of a list. @returns the address */
    const leaveAndGo = async (list: string): Promise<string> => {
      const { id, email } = await make();
      await add(list, id);
      await optOut(list, id);
      await client.delete(`/subscribers/${id}`);
      return email;
    };

    it("keeps opt-outs for the next subscriber with the address, however that one joins the list", async () => {
      const list = await listOf();
      const leave = () => leaveAndGo(list);
      const rows = await team.em.fork().execute("select * from list_opt_outs where list_id = ?", [list]);
      assert.ok(!JSON.stringify(rows).includes("@"));

      const added = await make({ email: await leave() });
      assert.deepEqual((await add(list, added.id)).opted_out, [added.id]);

      const moved = await make();
      await add(list, moved.id);
      await client.patch(`/subscribers/${moved.id}`, { email: await leave() });
      const { subscriptions } = (await client.get(`/subscribers/${moved.id}`)).body.data;
      assert.deepEqual([subscriptions[0].status, subscriptions.length], ["UNSUBSCRIBED", 1]);

      // The subscriber is deleted while the file is read.
      const file = Readable.from(
        (async function* () {
          yield "email\n";
          yield `${await leave()}\n${uniqueEmail()}`;
        })(),
      );
      const options = { listId: list, confirmed: true, onRefused: () => {} };
      const imported = await importSubscribers(team.em, team.vault, tenant(), file, options);
      assert.deepEqual([imported.list?.optedOut, imported.list?.added], [1, 1]);
    });

    it("keeps opt-outs for both addresses when one changes", async () => {
      const list = await listOf();
      const { id, email } = await make();
      await add(list, id);
      await optOut(list, id);
      await client.patch(`/subscribers/${id}`, { email: uniqueEmail() });
      const next = await make({ email });
      assert.deepEqual((await add(list, next.id)).opted_out, [next.id]);
      assert.deepEqual((await add(list, id)).opted_out, [id]);
      const empty = await client.patch(`/lists/${list}/subscribers/${id}`, {});
      assert.deepEqual([empty.status, empty.body.error.param], [400, "status"]);
    });

    it("races with joins and opt-outs of a list: each is either before it or finds nothing", async () => {
      const lists = await Promise.all([listOf(), listOf(), listOf()]);
      for (let round = 0; round < 4; round++) {
        const { id, email } = await make();
        await add(lists[0] ?? "", id);
        const answers = await Promise.all([
          optOut(lists[0] ?? "", id),
          ...lists.map((list) => client.post(`/lists/${list}/subscribers`, { subscriber_ids: [id] })),
          client.delete(`/subscribers/${id}`),
        ]);
        assert.ok(answers.every(({ status }) => status === 200 || status === 404));
        assert.equal(answers.at(-1)?.status, 200);
        const [left] = answers;
        const next = await make({ email });
        const { opted_out } = await add(lists[0] ?? "", next.id);
        assert.equal(opted_out.length, left?.status === 200 ? 1 : 0);
      }
    });
  });
});

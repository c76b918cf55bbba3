import assert from "node:assert/strict";
import { transaction } from "../../db/transaction.ts";
import { deleteField } from "../../domain/audience/contact-fields.ts";
import { suppress } from "../../domain/audience/suppressions.ts";
import { type ApiClient, api, type Json } from "../support/api.ts";
import { declareFields } from "../support/contacts.ts";
import { makeTeam, type TestTeam, unique, uniqueEmail } from "../support/factories.ts";
import { emitted, listen } from "../webhooks/outbox.ts";

const FIELDS = { city: "text", orders: "number", vip: "boolean", member_since: "date" } as const;
const VALUES = { city: "Köln", orders: -1.5, vip: false, member_since: "2024-02-29" };

describe("Contacts", () => {
  let team: TestTeam;
  let client: ApiClient;
  beforeEach(async () => {
    team = await makeTeam();
    client = api(team.keys.live);
  });

  const make = async (fields: Json = {}): Promise<Json> => {
    const answer = await client.post("/contacts", { email: uniqueEmail(), ...fields });
    assert.equal(answer.status, 201, answer.text);
    return answer.body.data;
  };
  const read = async (id: string): Promise<Json> => (await client.get(`/contacts/${id}`)).body.data;
  const listed = async (query: Record<string, string> = {}): Promise<string[]> =>
    (await client.get("/contacts", { query })).body.data.map(({ id }: Json) => id);
  const bounce = (...emails: string[]) =>
    transaction(team.em, (em) => suppress(em, { teamId: team.team.id, environment: "LIVE" }, emails, "bounce:hard"));
  const lift = async (email: string) => {
    const { id } = (await client.get(`/suppressions/${encodeURIComponent(email)}`)).body.data;
    assert.equal((await api(team.keys.cleanup).delete(`/suppressions/${id}`)).status, 200);
  };

  it("are created with the address trimmed and in lower case, and read again", async () => {
    await declareFields(team, FIELDS);
    const local = unique("anna");
    const made = await make({
      email: ` ${local.toUpperCase()}@xn--mnchen-3ya.DE `,
      first_name: "Änne",
      fields: VALUES,
    });
    const { id, created_at, updated_at, ...rest } = made;
    assert.match(id, /^con_/);
    assert.equal(created_at, updated_at);
    assert.deepEqual(rest, {
      object: "contact",
      email: `${local}@xn--mnchen-3ya.de`,
      first_name: "Änne",
      last_name: null,
      tracking_consent: null,
      fields: VALUES,
      email_status: "ACTIVE",
    });
    assert.deepEqual(await read(id), made);
    assert.deepEqual((await client.get("/contacts")).body.data, [made]);
  });

  it("may share their address with a subscriber, and not with another contact, in any spelling", async () => {
    const local = unique("one");
    const { id } = await make({ email: `${local}@münchen.de` });
    assert.equal((await client.post("/subscribers", { email: `${local}@münchen.de` })).status, 201);
    const again = { email: ` ${local.toUpperCase()}@xn--mnchen-3ya.de` };
    const { status, body } = await client.post("/contacts", again);
    assert.deepEqual(
      [status, body.error.code, body.error.type, body.error.param, body.error.resource_id],
      [409, "resource_already_exists", "invalid_request_error", "email", id],
    );
    const dry = await client.post("/contacts", again, { query: { dry_run: true } });
    assert.equal(dry.body.error.resource_id, id);
    assert.match(body.error.message, /bulk/);
  });

  for (const [what, fields, param] of [
    ["a status, which is not the client's to set", { email: "a@example.com", email_status: "ACTIVE" }, "email_status"],
    ["a nested value of a custom field", { email: "a@example.com", fields: { city: {} } }, "fields.city"],
  ] as const) {
    it(`refuse ${what}, and name the field`, async () => {
      await declareFields(team, FIELDS);
      const { status, body } = await client.post("/contacts", fields);
      assert.deepEqual([status, body.error.code, body.error.param], [400, "validation_failed", param]);
    });
  }

  it("have no value where an empty or blank text is given, and a patch with one takes the value away", async () => {
    await declareFields(team, FIELDS);
    const made = await make({
      first_name: "",
      last_name: " Lovelace\n",
      fields: { ...VALUES, city: "\u3000", vip: "" },
    });
    const { city: _, vip: __, ...others } = VALUES;
    assert.deepEqual([made.first_name, made.last_name, made.fields], [null, "Lovelace", others]);
    const patch = { last_name: " ", fields: { member_since: " ", city: " New  York " } };
    const { body } = await client.patch(`/contacts/${made.id}`, patch);
    assert.deepEqual([body.data.last_name, body.data.fields], [null, { orders: VALUES.orders, city: "New  York" }]);
  });

  it("are refused with a number that cannot be kept exactly, which is named", async () => {
    await declareFields(team, FIELDS);
    const { id } = await make({ fields: { orders: Number.MAX_SAFE_INTEGER } });
    assert.equal((await read(id)).fields.orders, Number.MAX_SAFE_INTEGER);
    for (const orders of [2 ** 53, -(2 ** 53), 20230302175510297n, 1e300].map(Number)) {
      const answers = [
        await client.post("/contacts", { email: uniqueEmail(), fields: { orders } }),
        await client.patch(`/contacts/${id}`, { fields: { orders } }),
      ];
      for (const { status, body } of answers) {
        assert.deepEqual([status, body.error.code, body.error.param], [400, "validation_failed", "fields.orders"]);
        assert.match(body.error.message, /from -9007199254740991 to 9007199254740991; use a text field/);
      }
    }
  });

  it("are found by address in any spelling, and by status", async () => {
    const [one, other] = [await make(), await make()];
    await bounce(other.email);
    assert.deepEqual(await listed({ email: one.email.toUpperCase() }), [one.id]);
    assert.deepEqual(await listed({ email: "nobody" }), []);
    assert.deepEqual(await listed({ email_status: "ACTIVE" }), [one.id]);
    assert.deepEqual(await listed({ email_status: "INVALID" }), [other.id]);
    assert.deepEqual(await listed({ email: one.email, email_status: "INVALID" }), []);
    const { body } = await client.get("/contacts", { query: { email_status: "BROKEN" } });
    assert.deepEqual([body.error.code, body.error.param], ["validation_failed", "email_status"]);
    const { body: elsewhere } = await client.get("/subscribers", { query: { email_status: "ACTIVE" } });
    assert.equal(elsewhere.error.code, "filter_unsupported");
  });

  it("are paged in both orders over both statuses", async () => {
    const made: Json[] = [];
    for (let i = 0; i < 7; i++) made.push(await make());
    await bounce(...made.filter((_, i) => i % 3 === 0).map(({ email }) => email));
    for (const order of ["asc", "desc"]) {
      const seen: string[] = [];
      for (let cursor: string | undefined; ; ) {
        const query = { sort: "created_at", order, limit: 2, ...(cursor && { cursor }) };
        const { body } = await client.get("/contacts", { query });
        seen.push(...body.data.map(({ id }: Json) => id));
        cursor = body.meta.next_cursor ?? undefined;
        if (cursor === undefined) break;
      }
      const ids = made.map(({ id }) => id);
      assert.deepEqual(seen, order === "asc" ? ids : ids.toReversed());
    }
  });

  it("show in an incremental run that they were made, changed or became invalid, and not what did not change", async () => {
    const [one, two, three] = [await make(), await make(), await make()];
    const since = new Date(Date.parse(three.updated_at) + 1).toISOString();
    await client.patch(`/contacts/${one.id}`, { last_name: "B" });
    await client.patch(`/contacts/${two.id}`, { last_name: null, fields: {} });
    await bounce(three.email);
    const { body } = await client.get("/contacts", { query: { updated_since: since, order: "asc" } });
    assert.deepEqual(
      body.data.map(({ id }: Json) => id),
      [one.id, three.id],
    );
    assert.match(body.meta.synced_through, /Z$/);
  });

  it("change names, address and custom fields; what a patch leaves out stays, and null takes a value away", async () => {
    await declareFields(team, FIELDS);
    const [one, other] = [await make({ first_name: "A", fields: VALUES }), await make()];
    const email = uniqueEmail();
    const { body } = await client.patch(`/contacts/${one.id}`, {
      email,
      last_name: "B",
      fields: { city: null, orders: 2 },
    });
    const { city: _, ...kept } = VALUES;
    const expected = { ...one, email, last_name: "B", fields: { ...kept, orders: 2 }, updated_at: 0 };
    assert.deepEqual({ ...body.data, updated_at: 0 }, expected);
    assert.deepEqual({ ...(await read(one.id)), updated_at: 0 }, expected);
    const refused = await client.patch(`/contacts/${one.id}`, { email: other.email });
    const { code, resource_id } = refused.body.error;
    assert.deepEqual([refused.status, code, resource_id], [409, "resource_already_exists", other.id]);
    assert.equal((await read(one.id)).email, email);
  });

  it("are gone once deleted, and the address is free", async () => {
    const { id, email } = await make();
    await client.post("/suppressions", { emails: [email] });
    const { status, body } = await client.delete(`/contacts/${id}`);
    assert.deepEqual([status, body.data], [200, { object: "contact", id, deleted: true }]);
    assert.equal((await client.get(`/contacts/${id}`)).status, 404);
    assert.equal((await client.delete(`/contacts/${id}`)).status, 404);
    assert.equal((await client.get(`/suppressions/${email}`)).status, 200, "the suppression stays");
    await make({ email });
  });

  describe("with custom fields", () => {
    it("refuse a value of another type by the field's name", async () => {
      const types = ["text", "number", "boolean", "date"] as const;
      await declareFields(team, Object.fromEntries(types.map((type) => [`a_${type}`, type])));
      for (const [what, value, type] of [
        ["a number for a text", 1, "text"],
        ["a text of 501 characters", "x".repeat(501), "text"],
        ["a text of two lines", "a\nb", "text"],
        ["a text for a number", "1", "number"],
        ["a text for a boolean", "true", "boolean"],
        ["a day that does not exist", "2025-02-29", "date"],
        ["a date and time for a date", "2025-02-01T00:00:00Z", "date"],
        ["a year without four digits", "25-02-01", "date"],
      ] as const) {
        const fields = { [`a_${type}`]: value };
        const { status, body } = await client.post("/contacts", { email: uniqueEmail(), fields });
        const param = `fields.a_${type}`;
        assert.deepEqual([status, body.error.code, body.error.param], [400, "validation_failed", param], what);
        assert.ok(body.error.message.startsWith(`${param} must be `), what);
      }
      assert.deepEqual(await listed(), []);
      const smiles = { a_text: "\u{1f600}".repeat(500) };
      assert.equal((await client.post("/contacts", { email: uniqueEmail(), fields: smiles })).status, 201);
    });

    it("refuse one that is not declared, or declared in the other environment, by its name", async () => {
      await declareFields(team, { known: "text" });
      await declareFields(team, { elsewhere: "text" }, "TEST");
      const { id } = await make();
      const fields = { known: "x", elsewhere: "x", constructor: "x" };
      for (const answer of [
        await client.post("/contacts", { email: uniqueEmail(), fields }),
        await client.patch(`/contacts/${id}`, { fields }),
      ]) {
        const { code, param, message } = answer.body.error;
        assert.deepEqual([answer.status, code, param], [400, "validation_failed", "fields.elsewhere"]);
        assert.match(message, /fields\.elsewhere is not a custom field.*fields\.constructor is not a custom field/);
        assert.ok(message.endsWith(" The team's custom fields: known."), message);
      }
      const { body } = await client.get("/contacts/fields");
      assert.deepEqual(body.data, [{ object: "contact_field", id: "known", name: "known", type: "text" }]);
      assert.deepEqual((await read(id)).fields, {});
    });

    it("keep no value of a field whose deletion races with requests", async () => {
      await declareFields(team, { fleeting: "number" });
      const { id } = await make();
      const fields = { fleeting: 1 };
      const contacts = Array.from({ length: 20 }, () => ({ email: uniqueEmail(), fields }));
      const requests = () => [
        client.post("/contacts", { email: uniqueEmail(), fields }),
        client.patch(`/contacts/${id}`, { fields }),
        client.post("/contacts/bulk", { contacts }, { idempotencyKey: unique("bulk") }),
      ];
      const before = requests();
      const deletion = deleteField(team.em, { teamId: team.team.id, environment: "LIVE" }, "fleeting");
      const answers = await Promise.all([...before, ...requests(), ...requests()]);
      await deletion;
      for (const { status, body } of answers) {
        assert.ok(status < 300 || body.error.param === "fields.fleeting", JSON.stringify(body));
      }
      const { body } = await client.get("/contacts", { query: { limit: 100 } });
      assert.ok(body.data.every((contact: Json) => Object.keys(contact.fields).length === 0));
    });
  });

  describe("of an address that bounces", () => {
    it("are INVALID while a hard bounce suppresses it, and no other reason makes them so", async () => {
      const [one, other] = [await make(), await make()];
      await client.post("/suppressions", { emails: [other.email] });
      await bounce(one.email, other.email);
      assert.deepEqual([(await read(one.id)).email_status, (await read(other.id)).email_status], ["INVALID", "ACTIVE"]);
      await lift(one.email);
      await lift(other.email);
      assert.deepEqual([(await read(one.id)).email_status, (await read(other.id)).email_status], ["ACTIVE", "ACTIVE"]);
    });

    it("take the status of the address that they get", async () => {
      const { id, email } = await make();
      await bounce(email);
      const moved = await client.patch(`/contacts/${id}`, { email: uniqueEmail() });
      assert.equal(moved.body.data.email_status, "ACTIVE");
      const back = await client.patch(`/contacts/${id}`, { email });
      assert.equal(back.body.data.email_status, "INVALID");
      const test = await api(team.keys.test).post("/contacts", { email });
      assert.equal(test.body.data.email_status, "ACTIVE");
      await client.delete(`/contacts/${id}`);
      assert.equal((await make({ email: email.toUpperCase() })).email_status, "INVALID");
    });
  });

  it("report that they were made, changed or deleted, with the API's record, once each", async () => {
    await declareFields(team, FIELDS);
    await listen(team);
    const since = emitted(team);
    const one = await make({ fields: VALUES });
    assert.deepEqual(await since(), [{ type: "contact.created", object: one }]);

    assert.equal((await client.post("/contacts", { email: one.email })).status, 409);
    const same = { email: one.email, last_name: null, fields: { ...VALUES } };
    assert.equal((await client.patch(`/contacts/${one.id}`, same)).body.data.updated_at, one.updated_at);
    assert.deepEqual(await since(), [], "nothing changed");

    const changed = await client.patch(`/contacts/${one.id}`, { fields: { city: "Bonn" } });
    assert.deepEqual(await since(), [{ type: "contact.updated", object: changed.body.data }]);
    assert.notEqual(changed.body.data.updated_at, one.updated_at);

    await bounce(one.email);
    const invalid = await read(one.id);
    assert.deepEqual(
      (await since()).filter(({ type }) => type !== "suppression.added"),
      [{ type: "contact.updated", object: invalid }],
    );
    await client.delete(`/contacts/${one.id}`);
    assert.deepEqual(await since(), [{ type: "contact.deleted", object: invalid }]);
    await client.post("/contacts", { email: uniqueEmail() }, { query: { dry_run: true } });
    assert.deepEqual(await since(), [], "a dry run");
  });
});

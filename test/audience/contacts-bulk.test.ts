import assert from "node:assert/strict";
import { transaction } from "../../db/transaction.ts";
import { suppress } from "../../domain/audience/suppressions.ts";
import { type ApiAnswer, type ApiClient, api, type CallOptions, type Json } from "../support/api.ts";
import { declareFields } from "../support/contacts.ts";
import { makeTeam, type TestTeam, unique, uniqueEmail } from "../support/factories.ts";
import { emitted, listen } from "../webhooks/outbox.ts";

const FIELDS = { city: "text", orders: "number" } as const;

describe("POST /contacts/bulk", () => {
  let team: TestTeam;
  let client: ApiClient;
  beforeEach(async () => {
    team = await makeTeam();
    client = api(team.keys.live);
  });

  const call = (contacts: unknown, options: CallOptions = {}): Promise<ApiAnswer> =>
    client.post("/contacts/bulk", { contacts }, { idempotencyKey: unique("bulk"), ...options });
  const upsert = async (...contacts: unknown[]): Promise<Json[]> => {
    const { status, body, text } = await call(contacts);
    assert.equal(status, 200, text);
    assert.equal(body.data.object, "contact_batch");
    return body.data.results;
  };
  const all = async (): Promise<Json[]> => (await client.get("/contacts", { query: { limit: 100 } })).body.data;
  const shown = async (id: string): Promise<Json> => (await client.get(`/contacts/${id}`)).body.data;

  it("makes, changes and leaves contacts, with a result per item in their order", async () => {
    await declareFields(team, FIELDS);
    const [one, two, three] = [uniqueEmail(), uniqueEmail(), uniqueEmail()];
    const made = await upsert(
      { email: one, first_name: "A", last_name: "Z", fields: { city: "Rom", orders: 1 } },
      { email: ` ${two.toUpperCase()}` },
    );
    assert.deepEqual(
      made.map(({ id, ...result }) => result),
      [
        { index: 0, email: one, status: "created", error: null },
        { index: 1, email: two, status: "created", error: null },
      ],
    );
    const before = await shown(made[1].id);
    const again = await upsert(
      { email: three, fields: { orders: 0.5, city: null } },
      { email: two, first_name: null },
      { email: one, first_name: "B", fields: { orders: null, city: "Bonn" } },
    );
    assert.deepEqual(
      again.map(({ index, status }) => [index, status]),
      [
        [0, "created"],
        [1, "unchanged"],
        [2, "updated"],
      ],
    );
    assert.deepEqual([again[2].id, again[1].id], [made[0].id, made[1].id]);
    assert.deepEqual(await shown(made[1].id), before, "not even updated_at moved");
    const { first_name, last_name, fields } = await shown(made[0].id);
    assert.deepEqual([first_name, last_name, fields], ["B", "Z", { city: "Bonn" }]);
    assert.deepEqual((await shown(again[0].id)).fields, { orders: 0.5 });
  });

  it("takes an empty or blank text for no value, and texts without the blanks around them", async () => {
    await declareFields(team, FIELDS);
    const email = uniqueEmail();
    const [item] = await upsert({
      email,
      first_name: " Ada ",
      last_name: "\u00a0\t",
      fields: { city: "  ", orders: "" },
    });
    const { first_name, last_name, fields } = await shown(item?.id);
    assert.deepEqual([first_name, last_name, fields], ["Ada", null, {}]);
    assert.equal((await upsert({ email, last_name: null, fields: { city: "" } }))[0]?.status, "unchanged");
  });

  it("fails the items that cannot be used, and writes the others", async () => {
    await declareFields(team, FIELDS);
    const good = uniqueEmail();
    let nested: unknown = "x";
    for (let i = 0; i < 40; i++) nested = [nested];
    const bad: [item: Json, param: string | null][] = [
      [{ first_name: "A" }, "email"],
      [{ email: "nobody" }, "email"],
      [{ email: 7 }, "email"],
      [{ email: uniqueEmail(), first_name: 1 }, "first_name"],
      [{ email: uniqueEmail(), last_name: "a\nb" }, "last_name"],
      [{ email: uniqueEmail(), first_name: "\0" }, "first_name"],
      [{ email: uniqueEmail(), first_name: "\ud800" }, "first_name"],
      [{ email: uniqueEmail(), nonsense: 1 }, "nonsense"],
      [{ email: uniqueEmail(), fields: [] }, "fields"],
      [{ email: uniqueEmail(), fields: { city: 1 } }, "fields.city"],
      [{ email: uniqueEmail(), fields: { orders: "1" } }, "fields.orders"],
      [{ email: uniqueEmail(), fields: { orders: 2 ** 53 } }, "fields.orders"],
      [{ email: uniqueEmail(), fields: { town: "x" } }, "fields.town"],
      [{ email: uniqueEmail(), fields: nested }, null],
      ...[null, 5, uniqueEmail(), [], true].map((item): [Json, ""] => [item, ""]),
    ];
    const results = await upsert(...bad.map(([item]) => item), { email: good });
    for (const [index, [item, field]] of bad.entries()) {
      const { error, ...result } = results[index];
      const email = typeof item?.email === "string" ? item.email : null;
      assert.deepEqual(result, { index, email, status: "failed", id: null });
      const param = field === null ? null : ["contacts", `[${index}]`, field && `.${field}`].join("");
      assert.deepEqual([error.code, error.param], ["validation_failed", param], error.message);
      assert.ok(error.message.length > 10);
    }
    assert.equal(results.at(-1)?.status, "created");
    assert.deepEqual(
      (await all()).map(({ email }) => email),
      [good],
    );
  });

  for (const [what, contacts, param] of [
    ["no items", [], "contacts"],
    ["more than 1,000 items", Array.from({ length: 1_001 }, () => ({ email: "a@example.com" })), "contacts"],
  ] as const) {
    it(`refuses ${what}, and writes nothing`, async () => {
      const { status, body } = await call(contacts);
      assert.deepEqual([status, body.error.code, body.error.param], [400, "validation_failed", param]);
      assert.deepEqual(await all(), []);
    });
  }

  it("settles items of one address, in any spelling, in their order", async () => {
    await declareFields(team, FIELDS);
    const local = unique("same");
    const [item] = [`${local}@münchen.de`];
    const results = await upsert(
      { email: item, first_name: "A", fields: { city: "Rom" } },
      { email: "nobody", first_name: "X" },
      { email: ` ${local.toUpperCase()}@xn--mnchen-3ya.de`, last_name: "B" },
      { email: item, first_name: "A" },
      { email: item, first_name: "C", fields: { orders: 2 } },
    );
    assert.deepEqual(
      results.map(({ status }) => status),
      ["created", "failed", "updated", "unchanged", "updated"],
    );
    assert.equal(results[2].email, `${local}@xn--mnchen-3ya.de`);
    const [contact, ...others] = await all();
    assert.equal(others.length, 0);
    assert.deepEqual(
      [contact.id, contact.email, contact.first_name, contact.last_name, contact.fields],
      [results[0].id, item, "C", "B", { city: "Rom", orders: 2 }],
    );
    const back = await upsert({ email: item, first_name: "D" }, { email: item, first_name: "C" });
    assert.deepEqual(
      back.map(({ status }) => status),
      ["updated", "updated"],
    );
    assert.equal((await shown(contact.id)).updated_at, contact.updated_at, "it is as it was");
  });

  it("makes each address once while many calls race for the same addresses", async () => {
    const emails = Array.from({ length: 60 }, () => uniqueEmail());
    const answers = await Promise.all(
      Array.from({ length: 8 }, (_, i) => {
        const order = emails.toSorted(() => Math.random() - 0.5);
        return call(order.map((email) => ({ email, first_name: `Name ${i}` })));
      }),
    );
    const results = answers.flatMap(({ body, text, status }) => {
      assert.equal(status, 200, text);
      return body.data.results as Json[];
    });
    assert.equal(results.filter(({ status }) => status === "created").length, emails.length);
    assert.ok(results.every(({ status }) => status === "created" || status === "updated"));
    assert.equal(new Set(results.map(({ id }) => id)).size, emails.length);
  });

  it("makes a contact again that is deleted meanwhile", async () => {
    const email = uniqueEmail();
    for (let round = 0; round < 10; round++) {
      const [{ id }] = await upsert({ email });
      const [{ status, text }, deletion] = await Promise.all([call([{ email }]), client.delete(`/contacts/${id}`)]);
      assert.deepEqual([status, deletion.status], [200, 200], text);
    }
    assert.equal((await upsert({ email }))[0].error, null);
    assert.equal((await all()).length, 1);
  });

  it("makes contacts INVALID whose address a hard bounce suppresses", async () => {
    const [bounced, other] = [uniqueEmail(), uniqueEmail()];
    await transaction(team.em, (em) =>
      suppress(em, { teamId: team.team.id, environment: "LIVE" }, [bounced], "bounce:hard"),
    );
    const [one, two] = await upsert({ email: bounced }, { email: other });
    assert.deepEqual([(await shown(one.id)).email_status, (await shown(two.id)).email_status], ["INVALID", "ACTIVE"]);
  });

  it("reports each contact that it made or changed once, as it is afterwards", async () => {
    const [known, same, fresh] = [uniqueEmail(), uniqueEmail(), uniqueEmail()];
    await upsert({ email: known, first_name: "A" }, { email: same, first_name: "A" });
    await listen(team);
    const since = emitted(team);
    await upsert(
      { email: fresh, first_name: "A" },
      { email: known, first_name: "B" },
      { email: same, first_name: "A" },
      { email: fresh, first_name: "B" },
      { email: "nobody" },
    );
    const contacts = new Map((await all()).map((contact) => [contact.email, contact]));
    assert.deepEqual(
      (await since()).toSorted((a, b) => a.type.localeCompare(b.type)),
      [
        { type: "contact.created", object: contacts.get(fresh) },
        { type: "contact.updated", object: contacts.get(known) },
      ],
    );
  });

  it("describes its effect on a dry run, and does nothing", async () => {
    const [known, fresh] = [uniqueEmail(), uniqueEmail()];
    const [{ id }] = await upsert({ email: known });
    await listen(team);
    const contacts = [{ email: known, first_name: "B" }, { email: fresh }, { email: fresh }, { email: "nobody" }];
    const { body } = await call(contacts, { query: { dry_run: true } });
    const { would_create, would_update, affected_count, affected_ids } = body.meta.impact;
    assert.deepEqual([would_create, would_update, affected_count, affected_ids], [1, 1, 2, [id]]);
    assert.deepEqual(
      (await all()).map(({ first_name }) => first_name),
      [null],
    );
    assert.deepEqual(await emitted(team)(), []);
  });
});

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { sql } from "kysely";
import { Newsletter } from "../../db/entities/send.ts";
import { kysely } from "../../db/orm.ts";
import { transaction } from "../../db/transaction.ts";
import { attachList, detachList } from "../../domain/sends/drafts/drafts.ts";
import { type ApiClient, api, assertFieldRefused, codeOf, type Json } from "../support/api.ts";
import { makeTeam, type TestTeam } from "../support/factories.ts";
import { untilBlocked } from "../support/sending.ts";

describe("Newsletters", () => {
  let team: TestTeam;
  let client: ApiClient;
  before(async () => {
    team = await makeTeam();
    client = api(team.keys.live);
  });

  const make = async (fields: Json = {}): Promise<Json> => {
    const answer = await client.post("/newsletters", {
      name: "Issue one",
      subject: "Hello {{ first_name }}",
      from_email: "News@Example.com",
      body: "<p>Hi</p>",
      ...fields,
    });
    assert.equal(answer.status, 201, answer.text);
    return answer.body.data;
  };
  const setStatus = (id: string, status: Newsletter["status"]) =>
    transaction(team.em, (em) => em.nativeUpdate(Newsletter, { id }, { status }));

  it("always makes a draft without recipients", async () => {
    const { id, created_at, updated_at, ...rest } = await make({ from_name: "Ann" });
    assert.match(id, /^nl_/);
    assert.deepEqual(rest, {
      object: "newsletter",
      name: "Issue one",
      subject: "Hello {{ first_name }}",
      from_email: "news@example.com",
      from_name: "Ann",
      body: "<p>Hi</p>",
      status: "DRAFT",
      status_reason: null,
      lists: [],
      send_id: null,
      send_days: [],
      send_at: null,
      started_at: null,
      completed_at: null,
    });
    const read = await client.get(`/newsletters/${id}`);
    assert.deepEqual(read.body.data, { ...rest, id, created_at, updated_at, recipients: null });
  });

  it("makes 10,000 in an environment and no more", async () => {
    const full = await makeTeam();
    await sql`insert into newsletters (id, team_id, environment, name)
      select ${full.team.id} || n, ${full.team.id}, 'LIVE', 'Bulk' from generate_series(1, 9999) n`.execute(
      kysely(full.em),
    );
    const post = () => api(full.keys.live).post("/newsletters", { name: "x" });
    assert.deepEqual([codeOf(await post()), codeOf(await post())], ["201", "resource_limit_reached"]);
  });

  it("lets a draft be incomplete", async () => {
    const { status, body } = await client.post("/newsletters", { name: "Later" });
    assert.equal(status, 201);
    assert.deepEqual([body.data.subject, body.data.from_email, body.data.body], [null, null, null]);
  });

  it("refuses fields that are the service's by name, on creating and on changing", async () => {
    const draft = await make();
    const fields = { status: "SCHEDULED", send_at: "2030-01-01T00:00:00Z", send_days: [1] };
    for (const [field, value] of Object.entries(fields)) {
      for (const answer of [
        await client.post("/newsletters", { name: "n", [field]: value }),
        await client.patch(`/newsletters/${draft.id}`, { [field]: value }),
      ]) {
        assert.deepEqual([answer.status, answer.body.error.param], [400, field]);
      }
    }
  });

  it("refuses `lists`, and says how lists are attached", async () => {
    const draft = await make();
    const lists = ["list_x"];
    for (const answer of [
      await client.post("/newsletters", { name: "n", lists }),
      await client.patch(`/newsletters/${draft.id}`, { lists }),
    ]) {
      assertFieldRefused(answer, "lists");
      assert.match(answer.body.error.message, /lists are attached in the app, or by a key that is made for a list\.$/);
    }
  });

  for (const [what, fields, param] of [
    ["no name", { name: undefined }, "name"],
    ["a name of 201 characters", { name: "x".repeat(201) }, "name"],
    ["a line break in the subject", { subject: "a\r\nBcc: b@example.com" }, "subject"],
    ["a subject of 999 characters", { subject: "x".repeat(999) }, "subject"],
    ["a sender that is no address", { from_email: "news" }, "from_email"],
    ["a line break in the sender's name", { from_name: "a\nb" }, "from_name"],
    ["a body above 1 MiB", { body: "ä".repeat(524_289) }, "body"],
    ["a broken template", { body: "{% if x %}" }, "body"],
    ["a broken subject", { subject: "{{ " }, "subject"],
    ["a tag that reads files", { body: "{% render 'x' %}" }, "body"],
  ] as const) {
    it(`refuses ${what}, and names the field`, async () => {
      assertFieldRefused(await client.post("/newsletters", { name: "n", ...fields }), param);
    });
  }

  it("takes a body of exactly 1 MiB and real newsletters, to the byte", async () => {
    await make({ body: "x".repeat(1024 * 1024) });
    for (const file of ["responsive-plain.html", "welcome-merge-tags.html"]) {
      const body = readFileSync(`${import.meta.dirname}/../data/newsletters/${file}`, "utf8");
      assert.equal((await make({ body })).body, body);
    }
  });

  it("is not changed or deleted once it is no draft", async () => {
    const draft = await make();
    for (const status of ["SCHEDULED", "SENDING", "PAUSED", "SENT", "CANCELLED", "FAILED"] as const) {
      await setStatus(draft.id, status);
      for (const answer of [
        await client.patch(`/newsletters/${draft.id}`, { name: "x" }),
        await client.delete(`/newsletters/${draft.id}`),
      ]) {
        assert.deepEqual([answer.status, answer.body.error.code], [409, "resource_state_invalid"], status);
      }
    }
    assert.equal((await client.get(`/newsletters/${draft.id}`)).body.data.name, draft.name);
  });

  it("answers 409 to an edit that races with the confirm", async () => {
    const draft = await make();
    let edit: Promise<Json> | undefined;
    await transaction(team.em, async (em) => {
      await em.nativeUpdate(Newsletter, { id: draft.id }, { status: "SCHEDULED" });
      edit = client.patch(`/newsletters/${draft.id}`, { subject: "too late" });
      await untilBlocked(team, "%newsletters%");
    });
    const answer = await edit;
    assert.equal(answer.status, 409);
    assert.equal((await client.get(`/newsletters/${draft.id}`)).body.data.subject, draft.subject);
  });

  it("deletes a draft", async () => {
    const { id } = await make();
    assert.deepEqual((await client.delete(`/newsletters/${id}`)).body.data, {
      object: "newsletter",
      id,
      deleted: true,
    });
    assert.equal((await client.get(`/newsletters/${id}`)).status, 404);
  });

  it("lists by status, with the lists each one targets", async () => {
    const draft = await make();
    const sent = await make();
    await setStatus(sent.id, "SENT");
    const list = (await client.post("/lists", { name: "x" })).body.data;
    await transaction(team.em, (em) => attachList(em, draft.id, list.id));
    const { body } = await client.get("/newsletters", { query: { status: "DRAFT", limit: 100 } });
    const ids = body.data.map(({ id }: Json) => id);
    assert.ok(ids.includes(draft.id) && !ids.includes(sent.id));
    const shown = body.data.find(({ id }: Json) => id === draft.id);
    assert.deepEqual(shown.lists, [list.id]);
    assert.ok(shown.updated_at > draft.updated_at);
    await transaction(team.em, (em) => detachList(em, draft.id, list.id));
    assert.deepEqual((await client.get(`/newsletters/${draft.id}`)).body.data.lists, []);
  });
});

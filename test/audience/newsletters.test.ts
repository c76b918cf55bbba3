import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { sql } from "kysely";
import { appRouter } from "../../api/router.ts";
import { Newsletter } from "../../db/entities/send.ts";
import { kysely } from "../../db/orm.ts";
import { transaction } from "../../db/transaction.ts";
import { attachList, detachList } from "../../domain/newsletters.ts";
import { type ApiClient, api, type Json } from "../support/api.ts";
import { serveRoutes, type TestApp } from "../support/app.ts";
import { eventually } from "../support/eventually.ts";
import { makeTeam, type TestTeam } from "../support/factories.ts";
import { openRecordingOrm, type RecordingOrm } from "../support/recording.ts";
import { stack } from "../support/stack.ts";

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

  it("makes 10,000 in an environment and no more, also when many are made at once", async () => {
    const full = await makeTeam();
    await sql`insert into newsletters (id, team_id, environment, name)
      select ${full.team.id} || n, ${full.team.id}, 'LIVE', 'Bulk' from generate_series(1, 9997) n`.execute(
      kysely(full.em),
    );
    const ofFull = api(full.keys.live);
    const answers = await Promise.all(Array.from({ length: 8 }, () => ofFull.post("/newsletters", { name: "x" })));
    assert.equal(answers.filter(({ status }) => status === 201).length, 3);
    for (const { status, body } of answers.filter((answer) => answer.status !== 201)) {
      assert.deepEqual([status, body.error.code], [409, "resource_limit_reached"]);
    }
    assert.equal((await api(full.keys.test).post("/newsletters", { name: "x" })).status, 201);
    await ofFull.delete(`/newsletters/${full.team.id}1`);
    assert.equal((await ofFull.post("/newsletters", { name: "x" })).status, 201);
  });

  it("lets a draft be incomplete", async () => {
    const { status, body } = await client.post("/newsletters", { name: "Later" });
    assert.equal(status, 201);
    assert.deepEqual([body.data.subject, body.data.from_email, body.data.body], [null, null, null]);
  });

  for (const field of ["status", "send_at", "send_days"]) {
    it(`refuses ${field} by name, on creating and on changing`, async () => {
      const draft = await make();
      const value = { status: "SCHEDULED", send_at: "2030-01-01T00:00:00Z", send_days: [1] }[field];
      for (const answer of [
        await client.post("/newsletters", { name: "n", [field]: value }),
        await client.patch(`/newsletters/${draft.id}`, { [field]: value }),
      ]) {
        assert.equal(answer.status, 400);
        assert.equal(answer.body.error.param, field);
      }
    });
  }

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
      const { status, body } = await client.post("/newsletters", { name: "n", ...fields });
      assert.equal(status, 400);
      assert.equal(body.error.code, "validation_failed");
      assert.equal(body.error.param, param);
    });
  }

  it("takes a body of exactly 1 MiB and real newsletters, to the byte", async () => {
    await make({ body: "x".repeat(1024 * 1024) });
    for (const file of ["responsive-plain.html", "welcome-merge-tags.html"]) {
      const body = readFileSync(`${import.meta.dirname}/../data/newsletters/${file}`, "utf8");
      assert.equal((await make({ body })).body, body);
    }
  });

  it("leaves unknown merge tags to the preview", async () => {
    await make({ body: "{{ shoe_size }}" });
  });

  it("changes the fields that a PATCH names; null empties a field", async () => {
    const draft = await make({ from_name: "Ann" });
    const { body } = await client.patch(`/newsletters/${draft.id}`, { subject: "New", from_name: null });
    assert.deepEqual({ ...body.data, updated_at: 0 }, { ...draft, subject: "New", from_name: null, updated_at: 0 });
    assert.ok(body.data.updated_at > draft.updated_at);
  });

  for (const status of ["SCHEDULED", "SENDING", "PAUSED", "SENT", "CANCELLED", "FAILED"] as const) {
    it(`is not changed or deleted once it is ${status}`, async () => {
      const draft = await make();
      await setStatus(draft.id, status);
      for (const answer of [
        await client.patch(`/newsletters/${draft.id}`, { name: "x" }),
        await client.delete(`/newsletters/${draft.id}`),
      ]) {
        assert.equal(answer.status, 409);
        assert.equal(answer.body.error.code, "resource_state_invalid");
      }
      assert.equal((await client.get(`/newsletters/${draft.id}`)).body.data.name, draft.name);
    });
  }

  it("answers 409 to an edit that races with the confirm", async () => {
    const draft = await make();
    let edit: Promise<Json> | undefined;
    await transaction(team.em, async (em) => {
      await em.nativeUpdate(Newsletter, { id: draft.id }, { status: "SCHEDULED" });
      edit = client.patch(`/newsletters/${draft.id}`, { subject: "too late" });
      await waitForLock(team);
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

  it("shows how many recipients are in each state, adding up to the total", async () => {
    const draft = await make();
    const sendId = `send_${draft.id.slice(3)}`;
    await transaction(team.em, async (em) => {
      await em.nativeUpdate(Newsletter, { id: draft.id }, { status: "SENDING", sendId });
      await em.execute(
        `insert into sends (id, team_id, environment, resource_type, resource_id, api_key_id, status,
           recipients, credits_reserved, cap_limit, cap_used_today, send_at)
         values (?, ?, 'LIVE', 'newsletter', ?, 'key_x', 'SENT', 10, 10, 10, 0, now())`,
        [sendId, team.team.id, draft.id],
      );
      await em.execute("update sends set settled_at = now() where id = ?", [sendId]);
      await em.execute(
        `insert into send_recipients (send_id, seq, member_id, email, list_id)
         select ?, n, 'sub_x', n || '@example.com', 'list_x' from generate_series(1, 10) n`,
        [sendId],
      );
      await em.execute(
        "update send_recipients set state = case when seq <= 3 then 'SENT' else 'UNKNOWN' end where send_id = ? and seq <= 4",
        [sendId],
      );
    });
    const { recipients } = (await client.get(`/newsletters/${draft.id}`)).body.data;
    assert.deepEqual(recipients, {
      total: 10,
      queued: 6,
      sending: 0,
      sent: 3,
      rejected: 0,
      deferred: 0,
      unknown: 1,
      expired: 0,
      suppressed: 0,
      cancelled: 0,
    });
  });
});

describe("Newsletters with large bodies", () => {
  const MIB = 1024 * 1024;
  let team: TestTeam;
  let recording: RecordingOrm;
  let app: TestApp;
  let client: ApiClient;
  const drafts: string[] = [];
  before(async () => {
    team = await makeTeam();
    recording = await openRecordingOrm((await stack()).env.DATABASE_URL);
    app = await serveRoutes(appRouter, { with: { orm: recording.orm } });
    client = api(team.keys.live, app.base);
    for (let i = 0; i < 12; i++) {
      const small = i % 4 === 3;
      const { body } = await client.post("/newsletters", { name: "n", body: "ä".repeat(small ? 100 : MIB / 2) });
      drafts.push(body.data.id);
    }
  });
  after(() => app.close());

  it("are listed in pages of at most 2 MiB, each once", async () => {
    for (const order of ["asc", "desc"]) {
      const seen: string[] = [];
      let cursor: string | undefined;
      do {
        const answer = await client.get("/newsletters", {
          query: { limit: 100, sort: "created_at", order, ...(cursor === undefined ? {} : { cursor }) },
        });
        assert.equal(answer.status, 200);
        assert.ok(Buffer.byteLength(answer.text) <= 2 * MIB);
        seen.push(...answer.body.data.map(({ id }: Json) => id));
        cursor = answer.body.meta.next_cursor ?? undefined;
        assert.equal(answer.body.meta.has_more, cursor !== undefined);
      } while (cursor !== undefined);
      assert.deepEqual(seen, order === "asc" ? drafts : drafts.toReversed());
    }
  });

  it("are not all read from Postgres for a page that cannot hold them", async () => {
    const before = recording.bytesRead();
    const { body } = await client.get("/newsletters", { query: { limit: 100 } });
    assert.ok(body.meta.has_more);
    const read = recording.bytesRead() - before;
    assert.ok(read < 4 * MIB, `${read} bytes for a page of 2 MiB`);
  });

  it("fit into an answer of 2 MiB also where JSON makes them longer, or are refused by name", async () => {
    const fitting = await client.post("/newsletters", { name: "n", body: `${'"'.repeat(0.7 * MIB)}` });
    assert.equal(fitting.status, 201);
    assert.ok(Buffer.byteLength(fitting.text) <= 2 * MIB);
    const { status, body } = await client.post("/newsletters", { name: "n", body: '"'.repeat(MIB - 200) });
    assert.equal(status, 400, JSON.stringify(body));
    assert.deepEqual([body.error.code, body.error.param], ["validation_failed", "body"]);
  });
});

/** Until some connection waits for a lock. */
async function waitForLock({ em }: TestTeam): Promise<void> {
  await eventually(
    async () =>
      (
        await em
          .fork()
          .execute("select 1 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'")
      ).length > 0,
    { what: "a request that waits for the row" },
  );
}

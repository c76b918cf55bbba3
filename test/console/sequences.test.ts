import assert from "node:assert/strict";
import { sql } from "kysely";
import { forTenant, kysely } from "../../db/orm.ts";
import { transaction } from "../../db/transaction.ts";
import { resumeSequence, startSequence, stopSequence } from "../../domain/sequences/sequences.ts";
import { pauseSequence } from "../../domain/sequences/state.ts";
import { clientAs, type consoleClient, refusalCodeOf } from "../support/console.ts";
import { tenantOf, uniqueEmail } from "../support/factories.ts";
import { makeSender, type Sender, untilBlocked } from "../support/sending.ts";
import { addPerson, enrolmentsOf, makeSequence, step, untilEnrolled } from "../support/sequences.ts";

type Client = Awaited<ReturnType<typeof consoleClient>>;
const code = refusalCodeOf;

describe("Sequences in the console", () => {
  let sender: Sender;
  let admin: Client;
  let editor: Client;
  let viewer: Client;
  before(async () => {
    sender = await makeSender({ recipients: 2 });
    [admin, editor] = [await clientAs(sender, "ADMIN"), await clientAs(sender, "EDITOR")];
    viewer = await clientAs(sender, "VIEWER");
  });

  const create = async (client: Client, name: string) => {
    const body = { name, list_id: sender.listId, from_email: sender.fromEmail };
    return { sequenceId: (await client.app.sequences.create.mutate({ body })).data.id };
  };

  it("are made by an EDITOR, started by an ADMIN under their own key, held, continued and stopped", async () => {
    const params = await create(editor, "Welcome");
    const steps = [step("a", { wait_minutes: 60 }), step("b", { time_of_day: "09:30", send_days: [1, 5] })];
    const bad = editor.app.sequences.saveStep.mutate({
      params,
      body: { step_id: "a", step: { ...steps[0], subject: "{{" } },
    });
    const refusal = await bad.catch(({ data }) => data);
    assert.deepEqual([refusal.code, refusal.param], ["validation_failed", "subject"]);
    const other = editor.app.sequences.saveStep.mutate({ params, body: { step_id: "a", step: { ...steps[1] } } });
    assert.equal(await code(other), "validation_failed", "another step's id");
    for (const each of steps) {
      await editor.app.sequences.saveStep.mutate({ params, body: { step_id: each.id, step: { ...each } } });
    }
    assert.equal((await editor.app.sequences.countMembers.query({ params })).data.members, 2);

    const start = { params, body: { include_members: true } };
    assert.equal(await code(editor.app.sequences.start.mutate(start)), "role_insufficient");
    await admin.app.sequences.start.mutate(start);
    await untilEnrolled(sender, params.sequenceId, (people) => people.length === 2);
    const shown = (await viewer.app.sequences.show.query({ params })).data;
    assert.deepEqual([shown.status, shown.list_name, shown.steps[1]?.send_days], ["ACTIVE", "Readers", [1, 5]]);
    const [listed] = (await viewer.app.sequences.page.query({ query: { q: "Welcome" } })).data.sequences;
    assert.deepEqual(listed?.people, { ACTIVE: 2 });
    assert.deepEqual([shown.people, shown.steps[0]?.waiting, shown.steps[0]?.body], [{ ACTIVE: 2 }, 2, step("a").body]);
    // Its steps are mailed without another confirmation.
    const change = { params, body: { step_id: "b", step: null } };
    assert.equal(await code(editor.app.sequences.saveStep.mutate(change)), "role_insufficient");
    await admin.app.sequences.saveStep.mutate(change);
    const left = (await viewer.app.sequences.show.query({ params })).data.steps;
    assert.deepEqual(
      left.map(({ id }) => id),
      ["a"],
    );
    assert.equal(
      await code(admin.app.sequences.saveStep.mutate({ params, body: { step_id: "a", step: null } })),
      "validation_failed",
    );

    assert.equal(await code(editor.app.sequences.pause.mutate({ params })), "role_insufficient");
    assert.equal((await admin.app.sequences.pause.mutate({ params })).data.status, "PAUSED");
    const resumed = await admin.app.sequences.resume.mutate({ params, body: { with_own_key: true } });
    assert.deepEqual(resumed.data, { skipped: 0, due: 0, spread: 0 });
    assert.equal((await admin.app.sequences.stop.mutate({ params })).data.status, "STOPPED");
    assert.ok((await enrolmentsOf(sender.em, params.sequenceId)).every(({ state }) => state === "LEFT"));
  });

  it("have their own choice of tracking: an EDITOR's while they are a DRAFT, then an ADMIN's", async () => {
    const params = await create(editor, "Tracked");
    const choose = (client: Client, tracking: boolean | null) =>
      client.app.sequences.changeTracking.mutate({ params, body: { tracking } });
    const chosen = async ({ sequenceId } = params) => {
      const { tracking, team_tracking } = (await viewer.app.sequences.show.query({ params: { sequenceId } })).data;
      return [tracking, team_tracking];
    };
    assert.deepEqual(await chosen(), [null, "OFF"]);
    assert.equal(await code(choose(viewer, true)), "role_insufficient");
    await choose(editor, true);
    const body = { type: "sequence", id: params.sequenceId } as const;
    const copy = (await editor.app.content.duplicate.mutate({ body })).data.id;
    assert.deepEqual(await chosen({ sequenceId: copy }), [true, "OFF"]);
    await editor.app.sequences.saveStep.mutate({ params, body: { step_id: "a", step: { ...step("a") } } });
    await admin.app.sequences.start.mutate({ params, body: { include_members: false } });
    assert.equal(await code(choose(editor, false)), "role_insufficient");
    await choose(admin, false);
    assert.deepEqual(await chosen(), [false, "OFF"]);
    await admin.app.sequences.stop.mutate({ params });
    assert.equal(await code(choose(admin, null)), "resource_state_invalid");
  });

  it("take an EDITOR's steps only while they are a DRAFT, also where the start commits during the save", async () => {
    const params = await create(editor, "Raced");
    await editor.app.sequences.saveStep.mutate({
      params,
      body: { step_id: "a", step: step("a", { subject: "Approved" }) },
    });
    const change = { params, body: { step_id: "a", step: step("a", { subject: "Not approved" }) } };
    const saved = await transaction(sender.em, async (tx) => {
      const start = { key: sender.liveKey.record.id, includeMembers: false };
      await startSequence(forTenant(tx, tenantOf(sender)), tenantOf(sender), params.sequenceId, start);
      const saving = code(editor.app.sequences.saveStep.mutate(change));
      await untilBlocked(sender, "%sequences q join campaigns c%for update%");
      return { saving };
    });
    assert.equal(await saved.saving, "role_insufficient");
    const shown = (await viewer.app.sequences.show.query({ params })).data;
    assert.deepEqual([shown.status, shown.steps.map(({ subject }) => subject)], ["ACTIVE", ["Approved"]]);
  });

  it("are resumed by a member as sends are: not what an operator, complaints or a restore has paused", async () => {
    const sequenceId = await makeSequence(sender);
    const params = { sequenceId };
    const { sequences } = admin.app;
    const resume = () => code(sequences.resume.mutate({ params, body: { due: "mail" } }));
    for (const [reason, refusal] of [
      [null, "resource_state_invalid"],
      ["database_restored", "resource_state_invalid"],
      ["workflow_ended", "resource_state_invalid"],
      ["complaint_rate_exceeded", "complaint_rate_exceeded"],
      ["credits", "answered"],
    ] as const) {
      await pauseSequence(sender.em, sequenceId, reason);
      const { data } = await sequences.show.query({ params });
      assert.equal(data.may_resume, refusal === "answered", `${reason}: ${data.problem}`);
      await sequences.pause.mutate({ params });
      assert.equal(await resume(), refusal, `${reason}`);
      if (refusal !== "answered") await resumeSequence(sender.em, sequenceId);
    }
    assert.equal((await sequences.pause.mutate({ params })).data.status_reason, "paused_by_client");
    assert.equal(await resume(), "answered");
  });

  it("are listed by name and status", async () => {
    const { sequenceId } = await create(editor, "Birthday 100%");
    const list = async (query: { q?: string; status?: "DRAFT" | "ACTIVE" }) =>
      (await viewer.app.sequences.page.query({ query })).data.sequences.map(({ id }) => id);
    assert.deepEqual(await list({ q: "birthday 100%" }), [sequenceId]);
    const addPeople = (state: string, from: number, to: number) =>
      sql`insert into sequence_enrolments (campaign_id, address_hash, member_id, state)
        select ${sequenceId}, 'hash ' || n, 'sub_' || n, ${state} from generate_series(${from}::int, ${to}::int) n`.execute(
        kysely(sender.em),
      );
    const people = async () =>
      (await viewer.app.sequences.page.query({ query: { q: "birthday" } })).data.sequences[0]?.people;
    assert.deepEqual(await people(), {});
    await addPeople("COMPLETED", 1, 900);
    await addPeople("LEFT", 901, 999);
    assert.deepEqual(await people(), { COMPLETED: 900, LEFT: 99 });
    await addPeople("LEFT", 1_000, 1_000);
    assert.equal(await people(), null);
    assert.deepEqual(await list({ q: "birthday_" }), []);
    await sql`insert into analytics_days (team_id, environment, resource_id, day, sent, tracked, opened_unique, clicked_unique)
      select ${sender.team.id}, 'LIVE', ${sequenceId}, date '2026-01-01' + n, 10, 5, 2, 1 from generate_series(0, 1) n`.execute(
      kysely(sender.em),
    );
    const [listed] = (await viewer.app.sequences.page.query({ query: { q: "birthday" } })).data.sequences;
    assert.deepEqual([listed?.sent, listed?.opened, listed?.clicked], [20, 0.4, 0.2]);
    assert.deepEqual(await list({ q: "Birthday", status: "ACTIVE" }), []);
    assert.equal(await code(create(viewer, "No")), "role_insufficient");
    assert.equal(await code(create(editor, " ")), "validation_failed");
  });

  it("show a VIEWER who is in them, by state and step, page by page, and deleted people without an address", async () => {
    const own = await makeSender({ recipients: 0 });
    const client = await clientAs(own, "VIEWER");
    const sequenceId = await makeSequence(own, { steps: [step("a"), step("b")] });
    const params = { sequenceId };
    type Query = Parameters<typeof client.app.sequences.people.query>[0]["query"];
    const read = async (query: Query) => (await client.app.sequences.people.query({ params, query })).data;
    const [waiting, last] = [uniqueEmail(), uniqueEmail()];
    await addPerson(own, waiting);
    const [gone, passed] = [await addPerson(own), await addPerson(own, last)];
    await untilEnrolled(own, sequenceId, (people) => people.length === 3);
    await (await clientAs(own, "EDITOR")).api.subscribers.remove.mutate({ params: { subscriberId: gone.id } });
    await sql`update sequence_enrolments set step_id = 'b', passed_step_id = 'a'
      where campaign_id = ${sequenceId} and member_id = ${passed.id}`.execute(kysely(own.em));
    const shown = async (query: Query) =>
      (await read(query)).people.map(({ email, state, reason, step: at, due_at }) => [
        ...[email, state, reason, at, due_at !== null],
      ]);
    const [waits, hasGone, passedWaits] = [
      [waiting, "ACTIVE", null, 1, true],
      [null, "LEFT", "subscriber_deleted", 1, false],
      [last, "ACTIVE", null, 2, true],
    ];
    assert.deepEqual(await shown({}), [passedWaits, hasGone, waits]);
    assert.deepEqual(await shown({ state: "ACTIVE", step_id: "a" }), [hasGone, waits]);
    assert.deepEqual(await shown({ step_id: "b" }), [passedWaits]);
    assert.deepEqual(await read({ state: "COMPLETED" }), { people: [], next: null });

    // More than one page walks; their ids stand before the others, and the row of a new address is no person.
    await sql`insert into sequence_enrolments (campaign_id, address_hash, member_id, state)
      select ${sequenceId}, 'hash ' || n, 'a' || lpad(n::text, 5, '0'), case when n % 100 = 0 then 'LEFT' else 'COMPLETED' end
      from generate_series(1, 10000) n union all select ${sequenceId}, 'z', 'z', 'LEFT'`.execute(kysely(own.em));
    const left = await read({ state: "LEFT" });
    assert.deepEqual([left.people.length, left.people[0]?.id, left.next], [50, "a10000", "a05100"]);
    const others = await read({ state: "LEFT", after: left.next ?? "" });
    assert.deepEqual([others.people.length, others.people[49]?.id, others.next], [50, "a00100", null]);
    assert.deepEqual(await read({ state: "PRESENT" }), { people: [], next: "a00004" });
    assert.deepEqual(await read({ state: "PRESENT", after: "a00004" }), { people: [], next: null });
    await stopSequence(own.em, sequenceId);
    assert.deepEqual((await shown({ step_id: "b" }))[0], [last, "LEFT", "stopped", 2, false]);
  });

  it("are renamed and deleted by an EDITOR", async () => {
    const params = await create(editor, "Wrong name");
    await editor.app.sequences.rename.mutate({ params, body: { name: "Right name" } });
    const { name, merge_tags } = (await viewer.app.sequences.show.query({ params })).data;
    assert.equal(name, "Right name");
    assert.ok(merge_tags.includes("list_name"));
    await editor.app.sequences.remove.mutate({ params });
    assert.equal(await code(viewer.app.sequences.show.query({ params })), "not_found");
  });
});

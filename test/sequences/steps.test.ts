import assert from "node:assert/strict";
import { sql } from "kysely";
import { type EntityManager, forTenant, kysely } from "../../db/orm.ts";
import { transaction } from "../../db/transaction.ts";
import { revokeKey } from "../../domain/access/keys.ts";
import { deleteList } from "../../domain/audience/lists.ts";
import {
  createSequence,
  deleteSequence,
  mailDueNow,
  resumeSequence,
  startSequence,
  stopSequence,
} from "../../domain/sequences/sequences.ts";
import { holdSequences, pauseSequence } from "../../domain/sequences/state.ts";
import { saveSteps } from "../../domain/sequences/steps.ts";
import { tenantOf } from "../support/factories.ts";
import { makeCampaignSender, makeSender, type Sender } from "../support/sending.ts";
import { enrolmentsOf, makeSequence, stateOf, step } from "../support/sequences.ts";

let sender: Sender;
before(async () => {
  sender = await makeSender({ recipients: 0 });
});

/** Runs work whose effects no worker may see. */
const undone = (work: (em: EntityManager) => Promise<void>) => transaction(sender.em, work, { isRolledBack: true });

let people = 0;
/** People in a sequence who have passed these steps. */
async function enter(em: EntityManager, id: string, ...passed: (string | null)[]): Promise<void> {
  for (const stepId of passed) {
    await sql`insert into sequence_enrolments (campaign_id, address_hash, member_id, state, passed_step_id, passed_at, step_id, due_at)
      values (${id}, ${people}, ${`sub_${people++}`}, 'ACTIVE', ${stepId}, case when ${stepId}::text is not null then now() end,
        'a', now() + interval '1 day')`.execute(kysely(em));
  }
}

describe("the steps of a sequence", () => {
  const save = (id: string, steps: unknown, em = sender.em) => saveSteps(em, tenantOf(sender), id, steps);
  const waiting = async (em: EntityManager, id: string) =>
    Object.fromEntries(
      (await enrolmentsOf(em, id)).map(({ passed, step: waited, state }) => [passed, waited ?? state]),
    );

  it("are got by those who have not passed their place", async () => {
    const id = await makeSequence(sender);
    await undone(async (em) => {
      await enter(em, id, null, "a", "b");
      const inserted = await save(id, [step("new"), step("a"), step("a2"), step("b"), step("c")], em);
      assert.deepEqual(inserted, { steps: 5, added: 2, changed: 0, removed: 0 });
      assert.deepEqual(await waiting(em, id), { null: "new", a: "a2", b: "c" });
      const removed = await save(id, [step("new"), step("a"), step("b")], em);
      assert.deepEqual(removed, { steps: 3, added: 0, changed: 0, removed: 2 });
      assert.deepEqual(await waiting(em, id), { null: "new", a: "b", b: "COMPLETED" });
      await save(id, [step("a2"), step("z")], em);
      assert.deepEqual(await waiting(em, id), { null: "a2", a: "a2", b: "COMPLETED" });
    });
  });

  it("are waited for anew when their time changes, and keep their version when nothing does", async () => {
    const id = await makeSequence(sender);
    await undone(async (em) => {
      await enter(em, id, null);
      const at = async () => Math.round((await enrolmentsOf(em, id))[0]?.minutes ?? 0);
      assert.equal(await at(), 1_440);
      const later = [step("a", { wait_minutes: 60 }), step("b"), step("c")];
      assert.deepEqual(await save(id, later, em), { steps: 3, added: 0, changed: 1, removed: 0 });
      assert.equal(await at(), 60);
      assert.deepEqual(await save(id, later, em), { steps: 3, added: 0, changed: 0, removed: 0 });
      const { rows } = await sql`select from sequence_step_versions where campaign_id = ${id}`.execute(kysely(em));
      assert.equal(rows.length, 4);
    });
  });

  const faults: [string, unknown, RegExp][] = [
    ["no list", {}, /^steps: /],
    ["none", [], /^steps: /],
    ["51", Array.from({ length: 51 }, (_, i) => step(`s${i}`)), /^steps: /],
    ["a wait of more than a year", [step("a", { wait_minutes: 525_601 })], /^steps\[0\]\.wait_minutes: /],
    ["an unknown field", [step("a", { send_at: 1 })], /^steps\[0\]: .*send_at/],
    ["an id twice", [step("a"), step("a")], /^steps\[1\]\.id: /],
    ["an hour that there is not", [step("a", { time_of_day: "24:00" })], /^steps\[0\]\.time_of_day: /],
    ["an unknown merge tag", [step("a"), step("b", { body: "{{ fields.city }}" })], /^steps\[1\]\.body: .*city/],
    ["a template that is broken", [step("a", { subject: "{{ first_name" })], /^steps\[0\]\.subject: /],
    [
      "a condition of more values than are compiled",
      [step("a", { skip_if: { field: "email", op: "in", value: Array(2_001).fill(1) } })],
      /^steps\[0\]\.skip_if: .*at most 2000 conditions/,
    ],
    ["a condition of no known kind", [step("a", { stop_if: { some: [] } })], /^steps\[0\]\.stop_if: .*no known kind/],
    ["another order of known steps", [step("b"), step("a"), step("c")], /^steps: the step a would change its place/],
  ];
  it("are refused with the part at fault", async () => {
    const id = await makeSequence(sender, { isStarted: false });
    for (const [name, steps, message] of faults) {
      await assert.rejects(save(id, steps), { code: "validation_failed", message }, name);
    }
  });
});

describe("a sequence", () => {
  const makeDue = (em: EntityManager, id: string, count: number) =>
    sql`
    insert into sequence_enrolments (campaign_id, address_hash, member_id, state, step_id, due_at)
    select ${id}, n, 'sub_' || n, 'ACTIVE', 'a', now() - make_interval(mins => n) from generate_series(1, ${count}::int) n`.execute(
      kysely(em),
    );

  it("mails a thousand of those who fell due during a pause at once, and the others within the hour", async () => {
    const id = await makeSequence(sender);
    await undone(async (em) => {
      await makeDue(em, id, 1_600);
      await pauseSequence(em, id, "quota_exceeded");
      const { due, spread } = await resumeSequence(em, id);
      assert.deepEqual([due, spread], [1_600, 600]);
      const found = await enrolmentsOf(em, id);
      const later = found.filter(({ fellMinutes }) => fellMinutes !== null);
      assert.equal(later.length, 600);
      // Those who have waited longest come first.
      assert.ok(later.every(({ fellMinutes }) => (fellMinutes ?? 0) > -601));
      const minutes = later.map((each) => each.minutes ?? 0);
      assert.deepEqual(
        [minutes[0], minutes[299], minutes[599]].map((at) => at?.toFixed(1)),
        ["0.1", "30.0", "60.0"],
      );
      assert.equal(await mailDueNow(em, id), 600);
      assert.ok(
        (await enrolmentsOf(em, id)).every(({ minutes: at, fellMinutes }) => (at ?? 1) < 0.01 && fellMinutes === null),
      );
    });
  });

  it("is resumed after a restore only with a word about those who were due, at this step and at steps soon after it", async () => {
    const id = await makeSequence(sender, { steps: [step("a"), step("b", { wait_minutes: 0 }), step("c")] });
    await undone(async (em) => {
      await makeDue(em, id, 3);
      await pauseSequence(em, id, "database_restored");
      await assert.rejects(resumeSequence(em, id), {
        code: "resource_state_invalid",
        message: /3 people .*--skip-due/,
      });
      assert.equal((await resumeSequence(em, id, { due: "skip" })).skipped, 3);
      const people = await enrolmentsOf(em, id);
      assert.deepEqual(
        people.map((each) => [each.passed, each.step, Math.round(each.minutes ?? 0)]),
        [3, 2, 1].map((minutes) => ["b", "c", 1_440 - minutes]),
      );
      await pauseSequence(em, id, "database_restored");
      assert.equal((await resumeSequence(em, id)).due, 0);
    });
  });

  it("is moved from its states only", async () => {
    const { em } = sender;
    const tenant = tenantOf(sender);
    const id = await makeSequence(sender, { isStarted: false });
    const invalid = { code: "resource_state_invalid" };
    const start = () =>
      transaction(em, (tx) => startSequence(tx, tenant, id, { key: sender.liveKey.record.id, includeMembers: false }));
    const moves = [
      () => pauseSequence(em, id, null),
      () => resumeSequence(em, id),
      () => stopSequence(em, id),
      () => mailDueNow(em, id),
    ];
    for (const move of moves) await assert.rejects(move(), invalid);
    await start();
    await assert.rejects(start(), invalid);
    await assert.rejects(resumeSequence(em, id), invalid);
    assert.equal((await pauseSequence(em, id, "quota_exceeded")).reason, "quota_exceeded");
    assert.equal((await pauseSequence(em, id, null)).reason, "quota_exceeded");
    await resumeSequence(em, id);
    assert.equal((await pauseSequence(em, id, "paused_by_client")).reason, "paused_by_client");
    assert.equal((await pauseSequence(em, id, null)).reason, null, "a client cannot resume it then");
    assert.equal((await pauseSequence(em, id, "paused_by_client")).reason, null);
    assert.equal((await stopSequence(em, id)).status, "STOPPED");
    await assert.rejects(resumeSequence(em, id), invalid);
    await assert.rejects(saveSteps(em, tenant, id, [step("a")]), invalid);
  });

  it("is PAUSED when its key is revoked, and resumed with another one", async () => {
    const { em, liveKey, mint, team } = sender;
    const { record } = await mint();
    const id = await makeSequence(sender, { apiKeyId: record.id });
    await revokeKey(em, { teamId: team.id, key: record.id });
    const { status, reason } = await stateOf(em, id);
    assert.deepEqual([status, reason], ["PAUSED", "api_key_revoked"]);
    await assert.rejects(resumeSequence(em, id), { code: "api_key_revoked" });
    await resumeSequence(em, id, { key: liveKey.record.id });
    assert.equal((await stateOf(em, id)).status, "ACTIVE");
  });

  it("is PAUSED with all others before a restored database is mailed", async () => {
    const id = await makeSequence(sender);
    await undone(async (em) => {
      assert.ok((await holdSequences(em)) >= 1);
      const { status, reason } = await stateOf(em, id);
      assert.deepEqual([status, reason], ["PAUSED", "database_restored"]);
    });
  });

  it("is PAUSED when its list is deleted, and not resumed", async () => {
    const id = await makeSequence(sender);
    await undone(async (em) => {
      await deleteList(forTenant(em, tenantOf(sender)), tenantOf(sender), sender.listId);
      const { status, reason } = await stateOf(em, id);
      assert.deepEqual([status, reason], ["PAUSED", "not_found"]);
      await assert.rejects(resumeSequence(em, id), { code: "not_found", message: /no list .*: sequence:stop ends it/ });
    });
  });

  it("is deleted while no person was mailed: a DRAFT, or one that was STOPPED", async () => {
    const { em } = sender;
    const id = await makeSequence(sender);
    await assert.rejects(deleteSequence(em, id), { message: /ACTIVE: sequence:stop/ });
    await stopSequence(em, id);
    for (const unused of [id, await makeSequence(sender, { isStarted: false })]) {
      await deleteSequence(em, unused);
      await assert.rejects(deleteSequence(em, unused), { code: "not_found", message: "No sequence has this id." });
      assert.deepEqual(await enrolmentsOf(em, unused), []);
    }
  });

  it("starts with steps, a key that may send and an account that works", async () => {
    const { em } = sender;
    const tenant = tenantOf(sender);
    const id = await makeSequence(sender, { isStarted: false });
    const start = (campaignId: string, key: string) =>
      transaction(em, (tx) => startSequence(tx, tenant, campaignId, { key, includeMembers: false }));
    const target = { listId: sender.listId, name: "Welcome" };
    const make = (fields: object) =>
      transaction(em, (tx) => createSequence(tx, tenant, { ...target, fromEmail: sender.fromEmail, ...fields }, 1_000));
    const empty = await make({});
    await assert.rejects(start(empty, sender.liveKey.record.id), { code: "resource_state_invalid", message: /steps/ });
    const { record: reader } = await sender.mint({ scopes: ["newsletters:read"] });
    await assert.rejects(start(id, reader.id), { code: "insufficient_scope" });
    const { record: elsewhere } = await sender.mint({ sendDomains: ["other.example"] });
    await assert.rejects(start(id, elsewhere.id), { code: "send_domain_not_allowed" });
    await assert.rejects(start(id, sender.testKey.record.id), { code: "not_found" });
    await assert.rejects(make({ fromEmail: "news@nowhere.example" }), { code: "sending_domain_unverified" });
    const other = await makeCampaignSender();
    await assert.rejects(make({ listId: undefined, segmentId: other.segmentId }), { code: "not_found" });
    await assert.rejects(make({ segmentId: other.segmentId }), { code: "validation_failed" });
  });
});

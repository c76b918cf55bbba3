import assert from "node:assert/strict";
import fc from "fast-check";
import { sql } from "kysely";
import { type EntityManager, kysely } from "../../db/orm.ts";
import { transaction } from "../../db/transaction.ts";
import { cancelSend, finishSend } from "../../domain/sends/ledger/lifecycle.ts";
import { enrolConfirmed } from "../../domain/sequences/enrolments.ts";
import { resumeSequence } from "../../domain/sequences/sequences.ts";
import { pauseSequence } from "../../domain/sequences/state.ts";
import { saveSteps } from "../../domain/sequences/steps.ts";
import { advanceWaves, claimWave } from "../../domain/sequences/waves.ts";
import { tenantOf } from "../support/factories.ts";
import { isLong } from "../support/long.ts";
import { SEED } from "../support/seed.ts";
import { addSubscribers, makeSender, people, type Sender } from "../support/sending.ts";
import { enrolmentsOf, makeSequence, stateOf, step } from "../support/sequences.ts";

const RUNS = isLong() ? 50 : 10;
const DAYS = 60;

/** A list of steps that follow each other with waits, out of ten that never change their order. */
const script = fc
  .subarray([..."abcdefghij"], { minLength: 1, maxLength: 5 })
  .chain((ids) => fc.tuple(...ids.map((id) => fc.integer({ min: 0, max: 3 }).map((days) => ({ id, days })))));
const outcome = fc.constantFrom("SENT", "SENT", "SENT", "UNKNOWN", "EXPIRED", "REJECTED", "SUPPRESSED");
const action = fc.oneof(
  fc.constant({ kind: "join" as const }),
  fc.record({
    kind: fc.constant("mail" as const),
    outcome,
    cancelled: fc.boolean(),
    rare: fc.integer({ min: 0, max: 4 }),
  }),
  fc.record({ kind: fc.constant("pass" as const), hours: fc.integer({ min: 1, max: 72 }) }),
  fc.record({ kind: fc.constant("steps" as const), steps: script }),
  fc.record({ kind: fc.constant("optOut" as const), person: fc.nat() }),
  fc.record({ kind: fc.constantFrom("pause" as const, "resume" as const) }),
);

type Action = typeof action extends fc.Arbitrary<infer Value> ? Value : never;

interface Person {
  /** Steps of mails that may have gone out, in their order. */
  got: string[];
  left: boolean;
}

/** Times pass by shifting those of the rows. */
const pass = (em: EntityManager, id: string, hours: number) =>
  sql`update sequence_enrolments set due_at = due_at - make_interval(hours => ${hours}), entered_at = entered_at - make_interval(hours => ${hours}),
    passed_at = passed_at - make_interval(hours => ${hours}), fell_due_at = fell_due_at - make_interval(hours => ${hours})
    where campaign_id = ${id}`.execute(kysely(em));

/** The steps in their order; those that were removed keep their place. */
async function orderOf(em: EntityManager, id: string) {
  const { rows } = await sql<{ id: string; removed: boolean }>`
    select step_id as id, removed_at is not null as removed from sequence_steps where campaign_id = ${id} order by place`.execute(
    kysely(em),
  );
  return rows;
}

const stepsOf = (given: readonly { id: string; days: number }[]) =>
  given.map(({ id, days }) => step(id, { wait_minutes: days * 1_440 }));

describe("A sequence, beside a model of it", () => {
  let sender: Sender;
  let ids: string[];
  before(async () => {
    sender = await makeSender({ recipients: [], credits: 10_000, dailySendCap: 10_000 });
    ids = await addSubscribers(sender, sender.listId, people(8, sender.audience));
  });

  async function play(first: readonly { id: string; days: number }[], actions: readonly Action[]) {
    const playIn = async (em: EntityManager) => {
      const tenant = tenantOf(sender);
      await sql`delete from subscriptions where list_id = ${sender.listId}`.execute(kysely(em));
      const id = await makeSequence({ ...sender, em }, { steps: stepsOf(first) });
      const model = new Map<string, Person>();

      const mail = async (state: string, cancelled = false, rare = 0) => {
        await sql`update sequences set claimed_at = null where campaign_id = ${id}`.execute(kysely(em));
        const { sendId } = await claimWave(em, id, 0);
        if (!sendId) return false;
        const { rows } = await sql<{ member: string; seq: number; step: string }>`
          select r.member_id as member, r.seq, v.step_id as step from send_recipients r join sends s on s.id = r.send_id
          join sequence_step_versions v on v.id = s.step_version_id where r.send_id = ${sendId} order by r.member_id`.execute(
          kysely(em),
        );
        for (const [n, { member, seq, step: stepId }] of rows.entries()) {
          const person = model.get(member);
          assert.ok(person && !person.left, `${member} is mailed and ${person ? "has left" : "never entered"}`);
          const result = n === rare ? state : "SENT";
          if (cancelled && n > rare) continue;
          await sql`update send_recipients set state = ${result}, reason = ${result === "SUPPRESSED" ? "opted_out" : null}
            where send_id = ${sendId} and seq = ${seq}`.execute(kysely(em));
          if (result === "SUPPRESSED") person.left = true;
          else person.got.push(stepId);
        }
        if (cancelled) await cancelSend(em, sendId);
        await sql`update sends set status = 'SENDING' where id = ${sendId} and status = 'SCHEDULED'`.execute(
          kysely(em),
        );
        await finishSend(em, sendId);
        await advanceWaves(em, id);
        return true;
      };

      const check = async () => {
        const order = await orderOf(em, id);
        const placeOf = (stepId: string | undefined) => order.findIndex((each) => each.id === stepId);
        const enrolments = await enrolmentsOf(em, id);
        assert.equal(enrolments.length, model.size);
        for (const { memberId, state, step: waited } of enrolments) {
          const { got = [], left = true } = model.get(memberId) ?? {};
          assert.deepEqual(got, [...new Set(got)], "a step twice");
          const next = order.find((each, place) => !each.removed && place > placeOf(got.at(-1)));
          if (left) assert.equal(state, "LEFT");
          // Who has completed the sequence stays so when steps are added behind.
          else if (state !== "COMPLETED") assert.deepEqual([state, waited], ["ACTIVE", next?.id]);
        }
      };

      const take = async (each: Action) => {
        switch (each.kind) {
          case "join": {
            const member = ids[model.size];
            if (member === undefined) return;
            await sql`insert into subscriptions (list_id, subscriber_id, team_id, environment, status)
              values (${sender.listId}, ${member}, ${tenant.teamId}, 'LIVE', 'CONFIRMED')`.execute(kysely(em));
            await enrolConfirmed(em, sender.vault, tenant, sender.listId, [member]);
            model.set(member, { got: [], left: false });
            return;
          }
          case "mail":
            return void (await mail(each.outcome, each.cancelled, each.rare));
          case "pass":
            return void (await pass(em, id, each.hours));
          case "steps":
            return void (await saveSteps(em, tenant, id, stepsOf(each.steps)).catch((error: Error) => {
              // Its place may be another one than among the ten, after a step between was removed.
              if (!/would change its place/.test(error.message)) throw error;
            }));
          case "optOut": {
            const [member, person] = [...model][each.person % Math.max(1, model.size)] ?? [];
            if (!person || person.left) return;
            await sql`update subscriptions set status = 'UNSUBSCRIBED' where subscriber_id = ${member}`.execute(
              kysely(em),
            );
            // They leave when they are due, or stay COMPLETED.
            const waiting =
              (await enrolmentsOf(em, id)).find(({ memberId }) => memberId === member)?.state === "ACTIVE";
            if (waiting) {
              await pass(em, id, 24 * 4);
              if ((await stateOf(em, id)).status !== "ACTIVE") await resumeSequence(em, id);
              while (
                (await enrolmentsOf(em, id)).some(({ memberId, state }) => memberId === member && state === "ACTIVE")
              ) {
                await mail("SENT");
              }
              person.left = true;
            }
            return;
          }
          case "pause":
            return void (await pauseSequence(em, id, null));
          case "resume":
            if ((await stateOf(em, id)).status === "PAUSED") await resumeSequence(em, id);
        }
      };

      for (const each of actions) {
        await take(each);
        await check();
      }
      if ((await stateOf(em, id)).status === "PAUSED") await resumeSequence(em, id);
      for (let day = 0; day < DAYS; day++) {
        await pass(em, id, 24);
        while (await mail("SENT"));
        await check();
      }
      for (const { state } of await enrolmentsOf(em, id)) assert.match(state, /COMPLETED|LEFT/);
    };
    await transaction(sender.em, playIn, { isRolledBack: true });
  }

  it(`gives no person a step twice, loses none, and mails none who left, through ${DAYS} days (seed ${SEED})`, async () => {
    const plays = fc.asyncProperty(script, fc.array(action, { maxLength: 25 }), play);
    await fc.assert(plays, { numRuns: RUNS, seed: SEED });
  });
});

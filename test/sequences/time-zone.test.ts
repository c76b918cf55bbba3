import assert from "node:assert/strict";
import { sql } from "kysely";
import { DateTime } from "luxon";
import { type EntityManager, kysely } from "../../db/orm.ts";
import { transaction } from "../../db/transaction.ts";
import { saveSteps } from "../../domain/sequences/steps.ts";
import { changeTeam } from "../../domain/teams/teams.ts";
import { app } from "../support/command.ts";
import { consoleClient, signIn } from "../support/console.ts";
import { makeMember, tenantOf } from "../support/factories.ts";
import { makeSender, type Sender, untilBlocked } from "../support/sending.ts";
import { addPerson, makeSequence, soon } from "../support/sequences.ts";

const BERLIN = "Europe/Berlin";
const NEW_YORK = "America/New_York";

/** Half a day from now, so that no worker mails the person of a test; `Etc` counts hours west of UTC. */
const inHalfADay = () => DateTime.utc().plus({ hours: 12 }).startOf("minute");
const timeOf = (at: DateTime) => at.toFormat("HH:mm");

/** The next time of day, and day of the week if one is given, in a time zone. */
function next(timeOfDay: string, zone: string, weekday?: number): string {
  const [hour = 0, minute = 0] = timeOfDay.split(":").map(Number);
  const now = DateTime.now().setZone(zone);
  const days = Array.from({ length: 9 }, (_, n) =>
    now.plus({ days: n }).set({ hour, minute, second: 0, millisecond: 0 }),
  );
  return (
    days
      .find((day) => day > now && (weekday === undefined || day.weekday === weekday))
      ?.toUTC()
      .toISO() ?? ""
  );
}

describe("A change of the team's time zone", () => {
  let sender: Sender;
  beforeEach(async () => {
    sender = await makeSender({ recipients: 0 });
    await sql`update teams set time_zone = ${BERLIN} where id = ${sender.team.id}`.execute(kysely(sender.em));
  });

  const change = (timeZone: string, em: EntityManager = sender.em) =>
    transaction(em, (tx) => changeTeam(tx, sender.team.id, { timeZone }));
  const dueOf = async (id: string, em: EntityManager = sender.em.fork()) =>
    (
      await sql<{
        at: string;
      }>`select due_at as at from sequence_enrolments where campaign_id = ${id} order by address_hash`.execute(
        kysely(em),
      )
    ).rows.map(({ at }) => DateTime.fromSQL(at).toUTC().toISO());
  /** Runs work whose effects no worker may see. */
  const undone = (work: (em: EntityManager) => Promise<void>) => transaction(sender.em, work, { isRolledBack: true });
  const sequenceOf = (...steps: object[]) => makeSequence(sender, { steps });

  it("moves those who wait for a time of day or a day, by the command as by the console", async () => {
    const timeOfDay = timeOf(inHalfADay().setZone(BERLIN));
    const weekday = DateTime.utc().plus({ days: 3 }).weekday;
    const atTime = await sequenceOf(soon("a", { time_of_day: timeOfDay }));
    const onDay = await sequenceOf(soon("a", { time_of_day: timeOfDay, send_days: [weekday] }));
    const atOnce = await sequenceOf(soon("a", { wait_minutes: 600 }));
    await addPerson(sender);
    const expected = (zone: string) => [[next(timeOfDay, zone)], [next(timeOfDay, zone, weekday)]];
    const found = () => Promise.all([atTime, onDay].map((id) => dueOf(id)));
    const plain = await dueOf(atOnce);
    assert.deepEqual(await found(), expected(BERLIN));
    await app("team:time-zone", NEW_YORK, "--team", sender.team.id);
    assert.deepEqual(await found(), expected(NEW_YORK));
    const admin = await makeMember(sender.em, sender.team.id, "ADMIN");
    const { changeSettings } = (await consoleClient(await signIn(admin.id), sender.team.id)).app.team;
    await changeSettings.mutate({ body: { time_zone: "Asia/Tokyo" } });
    assert.deepEqual(await found(), expected("Asia/Tokyo"));
    assert.deepEqual(await dueOf(atOnce), plain);
  });

  it("lets none of them be due at once: the time of the new zone may have passed today", async () => {
    const timeOfDay = timeOf(DateTime.utc().plus({ hours: 2 }));
    const steps = [soon("a", { time_of_day: timeOfDay })];
    const id = await sequenceOf(...steps);
    const inAWeek = await sequenceOf(soon("a", { time_of_day: timeOfDay, wait_minutes: 7 * 1_440 }));
    await addPerson(sender);
    await undone(async (em) => {
      await change("Etc/UTC", em);
      await sql`update sequence_enrolments set entered_at = now() - interval '20 hours' where campaign_id = ${id}`.execute(
        kysely(em),
      );
      await saveSteps(em, tenantOf(sender), id, steps);
      assert.deepEqual(await dueOf(id, em), [next(timeOfDay, "Etc/UTC")]);
      // UTC+4: two hours ago.
      await change("Etc/GMT-4", em);
      assert.deepEqual(await dueOf(id, em), [next(timeOfDay, "Etc/GMT-4")]);
      const [later] = await dueOf(inAWeek, em);
      assert.ok(DateTime.fromISO(later ?? "") > DateTime.now().plus({ days: 6, hours: 23 }), "their wait is kept");
    });
  });

  it("leaves those who are due, are spread after a pause, or are in a wave", async () => {
    const id = await sequenceOf(soon("a", { time_of_day: timeOf(inHalfADay()) }));
    await undone(async (em) => {
      await sql`
        insert into sequence_enrolments (campaign_id, address_hash, member_id, state, step_id, due_at, fell_due_at, send_id, seq)
        values (${id}, '1', 'sub_1', 'ACTIVE', 'a', now() - interval '1 hour', null, null, null),
          (${id}, '2', 'sub_2', 'ACTIVE', 'a', now() + interval '1 hour', now() - interval '1 day', null, null),
          (${id}, '3', 'sub_3', 'ACTIVE', 'a', now() + interval '1 hour', null, 'snd_1', 1),
          (${id}, '4', 'sub_4', 'ACTIVE', 'a', now() + interval '1 hour', null, null, null)`.execute(kysely(em));
      const before = await dueOf(id, em);
      await change(NEW_YORK, em);
      const after = await dueOf(id, em);
      assert.deepEqual(after.slice(0, 3), before.slice(0, 3));
      assert.notEqual(after[3], before[3]);
      const { rows } = await sql`select from sequence_wakes where campaign_id = ${id}`.execute(kysely(em));
      assert.ok(rows.length >= 1, "its workflow looks again");
    });
  });

  it("moves also a person who enters at the same moment", async () => {
    const timeOfDay = timeOf(inHalfADay().setZone(BERLIN));
    const id = await sequenceOf(soon("a", { time_of_day: timeOfDay }));
    const holder = sender.em.fork();
    await holder.begin();
    await addPerson({ ...sender, em: holder });
    const changed = change(NEW_YORK);
    await untilBlocked(sender, "%teams%for update%");
    await holder.commit();
    await changed;
    assert.deepEqual(await dueOf(id), [next(timeOfDay, NEW_YORK)]);
  });
});

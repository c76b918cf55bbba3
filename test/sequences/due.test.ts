import assert from "node:assert/strict";
import { sql } from "kysely";
import { kysely } from "../../db/orm.ts";
import { nextStep } from "../../domain/sequences/due.ts";
import { saveSteps } from "../../domain/sequences/steps.ts";
import { tenantOf } from "../support/factories.ts";
import { makeSender, type Sender } from "../support/sending.ts";
import { makeSequence, soon } from "../support/sequences.ts";

const MONDAY = [1];
const AT_NIGHT = { time_of_day: "02:30" };

/** What a step says, when a person passed the one before, and when it is due. All UTC, for Europe/Berlin. */
const CASES: [what: string, timing: object, passed: string, due: string][] = [
  ["at the time that the clocks leave out", AT_NIGHT, "2026-03-28T12:00:00Z", "2026-03-29T01:30:00Z"],
  ["the night after, once that has passed", AT_NIGHT, "2026-03-29T01:30:01Z", "2026-03-30T00:30:00Z"],
  ["at the time that comes twice", AT_NIGHT, "2026-10-24T12:00:00Z", "2026-10-25T01:30:00Z"],
  ["at the same one when passed at its first coming", AT_NIGHT, "2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z"],
  ["the night after, once both have passed", AT_NIGHT, "2026-10-25T01:30:01Z", "2026-10-26T01:30:00Z"],
  ["after its wait to the minute", { wait_minutes: 1_440 }, "2026-10-24T12:00:00Z", "2026-10-25T12:00:00Z"],
  ["at the beginning of its day", { send_days: MONDAY }, "2026-10-23T12:00:00Z", "2026-10-25T23:00:00Z"],
  ["at once on its day", { send_days: MONDAY }, "2026-03-30T10:00:00Z", "2026-03-30T10:00:00Z"],
  [
    "a week later when the time of its day has passed",
    { send_days: MONDAY, time_of_day: "09:00" },
    "2026-03-23T10:00:00Z",
    "2026-03-30T07:00:00Z",
  ],
];

describe("a step is due", () => {
  let sender: Sender;
  let id: string;
  before(async () => {
    sender = await makeSender({ recipients: [] });
    await sql`update teams set time_zone = 'Europe/Berlin' where id = ${sender.team.id}`.execute(kysely(sender.em));
    id = await makeSequence(sender, { isStarted: false });
  });

  for (const [what, timing, passed, due] of CASES) {
    it(`${what}: passed at ${passed}`, async () => {
      await saveSteps(sender.em, tenantOf(sender), id, [soon("a", timing)]);
      const { rows } = await sql<{ at: string }>`
        select n.due_at as at from (${nextStep(sql`${id}::text`, sql`null`, sql`${passed}::timestamptz`)}) n`.execute(
        kysely(sender.em),
      );
      assert.equal(new Date(rows[0]?.at ?? "").toISOString(), new Date(due).toISOString());
    });
  }
});

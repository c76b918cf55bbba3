import assert from "node:assert/strict";
import { sql } from "kysely";
import { kysely } from "../../db/orm.ts";
import { transaction } from "../../db/transaction.ts";
import { newId } from "../../domain/ids.ts";
import { mostInFlight } from "../../domain/sends/ledger/account-capacity.ts";
import { wakeSequence } from "../../domain/sequences/state.ts";
import { claimWave } from "../../domain/sequences/waves.ts";
import { RECONCILER_ID, sequenceWorkflowId } from "../../temporal/ids.ts";
import { sequenceStart } from "../../temporal/starts.ts";
import { eventually } from "../support/eventually.ts";
import { kill } from "../support/processes.ts";
import { type AnySender, caughtMails, credits, makeSender, setFaults, untilBlocked } from "../support/sending.ts";
import {
  type Enrolment,
  makeDue,
  makeSequence,
  soon,
  stateOf,
  step,
  stepMailsOf,
  untilEnrolled,
} from "../support/sequences.ts";
import { temporalClient } from "../support/temporal.ts";

const areDone = (people: Enrolment[]) => people.every(({ state }) => state === "COMPLETED");

/** Everybody got each step once, or has an unknown outcome and got it once at most. @returns how many are unknown */
async function assertHonest(sender: AnySender, id: string, mails: number): Promise<number> {
  const rows = await stepMailsOf(sender, id);
  assert.equal(rows.length, mails);
  assert.equal(
    new Set(rows.map(({ email, step: name }) => `${email} ${name}`)).size,
    mails,
    "a step was claimed twice",
  );
  const isHonest = ({ state, caught }: (typeof rows)[number]) =>
    state === "SENT" ? caught === 1 : state === "UNKNOWN" && caught <= 1;
  assert.deepEqual(
    rows.filter((row) => !isHonest(row)),
    [],
  );
  return rows.filter(({ state }) => state === "UNKNOWN").length;
}

describe("A sequence", () => {
  afterEach(() => setFaults([]));

  it("mails a wave once whose process died between its claim and its start", async () => {
    const sender = await makeSender({ recipients: 3, credits: 3 });
    const id = await makeSequence(sender, { steps: [step("a")], includeMembers: true });
    // The workflow sleeps: nothing wakes it before the claim is committed.
    const claimed = await transaction(sender.em.fork(), async (em) => {
      await sql`update sequence_enrolments set due_at = now() - interval '1 second' where campaign_id = ${id}`.execute(
        kysely(em),
      );
      return claimWave(em, id, 0);
    });
    assert.ok(claimed.sendId);
    await transaction(sender.em, (em) => wakeSequence(em, id));
    await (await temporalClient()).client.schedule.getHandle(RECONCILER_ID).trigger();
    await untilEnrolled(sender, id, areDone);
    assert.equal(await assertHonest(sender, id, 3), 0);
    await eventually(async () => (await credits(sender)).reserved === 0, { what: "the settlement" });
    assert.deepEqual(await credits(sender), { available: 0, reserved: 0, mismatch: false });
  });

  it("mails each person once when Postgres dies during a claim", async () => {
    const sender = await makeSender({ recipients: 3, credits: 3 });
    const id = await makeSequence(sender, { steps: [step("a")], includeMembers: true });
    const holding = sender.em.fork();
    await holding.begin();
    await sql`select from credit_balances where team_id = ${sender.team.id} for update`.execute(kysely(holding));
    await makeDue(sender, id);
    await untilBlocked(sender, "%credit_balances%");
    const { again } = kill("postgres", "SIGQUIT");
    await holding.rollback().catch(() => undefined);
    await again;
    await untilEnrolled(sender, id, areDone);
    assert.equal(await assertHonest(sender, id, 3), 0);
    await eventually(async () => (await credits(sender)).reserved === 0, { what: "the settlement" });
    assert.deepEqual(await credits(sender), { available: 0, reserved: 0, mismatch: false });
  });

  it("loses no person and mails none twice when a dispatch worker is killed in a wave", async () => {
    const [people, connections] = [150, 10];
    const sender = await makeSender({ recipients: people, account: { maxConnections: connections } });
    await setFaults([{ stage: "data", match: sender.audience, delayMs: 20 }]);
    const id = await makeSequence(sender, { steps: [soon("a"), soon("b")], includeMembers: true });
    await eventually(async () => (await caughtMails(sender)).length > 30, { what: "30 mails" });
    const { again } = kill("dispatch");
    // Its connections would be free after twelve seconds.
    await sql`update account_leases set expires_at = now() where account_id = ${sender.accountId}`.execute(
      kysely(sender.em),
    );
    await untilEnrolled(sender, id, areDone);
    const unknown = await assertHonest(sender, id, 2 * people);
    assert.ok(unknown <= mostInFlight(connections), `${unknown} unknown`);
    await again;
  });

  it("whose waves Postgres has forgotten in a restore is PAUSED, and mails no person again unless an operator says so", async () => {
    const sender = await makeSender({ recipients: 3 });
    const id = await makeSequence(sender, { steps: [soon("a"), step("b")], includeMembers: true });
    await untilEnrolled(sender, id, (people) => people.every(({ passed }) => passed === "a"));
    await transaction(sender.em, async (em) => {
      await sql`update sequences set wave = 0, open_waves = '{}' where campaign_id = ${id}`.execute(kysely(em));
      await sql`update sequence_enrolments set step_id = 'a', passed_step_id = null, passed_at = null where campaign_id = ${id}`.execute(
        kysely(em),
      );
    });
    await makeDue(sender, id);
    await eventually(async () => (await stateOf(sender.em.fork(), id)).reason === "database_restored", {
      what: "the pause",
    });
    const handle = (await temporalClient()).client.workflow.getHandle(sequenceWorkflowId(id));
    const needsOperator = async () => (await handle.describe()).searchAttributes["NeedsOperator"]?.[0] === true;
    await eventually(needsOperator, { what: "NeedsOperator" });
    await assert.rejects(handle.executeUpdate("resume"));
    await assert.rejects(handle.executeUpdate("resume", { args: ["--skip-due"] }));
    assert.equal(await handle.executeUpdate("resume", { args: ["skip"] }), "ACTIVE");
    await untilEnrolled(sender, id, (people) => people.every(({ passed }) => passed === "a"));
    assert.equal((await caughtMails(sender)).length, 3);
    await handle.executeUpdate("stop");
  });

  it("that was stopped after a backup is PAUSED once the backup is restored", async () => {
    const sender = await makeSender({ recipients: 3 });
    const id = await makeSequence(sender, { steps: [soon("a"), step("b")], includeMembers: true });
    await untilEnrolled(sender, id, (people) => people.every(({ passed }) => passed === "a"));
    const { client } = await temporalClient();
    const handle = client.workflow.getHandle(sequenceWorkflowId(id));
    await handle.executeUpdate("stop");
    await handle.result();
    await transaction(sender.em, async (em) => {
      await sql`update campaigns set status = 'ACTIVE' where id = ${id}`.execute(kysely(em));
      await sql`update sequences set wave = 0, open_waves = '{}' where campaign_id = ${id}`.execute(kysely(em));
      await sql`update sequence_enrolments set state = 'WAITING', step_id = 'a', passed_step_id = null, passed_at = null, due_at = now()
        where campaign_id = ${id}`.execute(kysely(em));
    });
    await eventually(
      async () => {
        await client.schedule.getHandle(RECONCILER_ID).trigger();
        return (await stateOf(sender.em.fork(), id)).reason === "database_restored";
      },
      { what: "the pause" },
    );
    assert.equal((await caughtMails(sender)).length, 3);
    // Its workflow is started after the pause is in Postgres.
    await eventually(async () => (await handle.describe()).status.name === "RUNNING", { what: "the workflow" });
    await handle.executeUpdate("stop");
  });

  it("whose status a restore has changed shows operators the status of Postgres", async () => {
    const sender = await makeSender({ recipients: [] });
    const id = await makeSequence(sender, { steps: [step("a")] });
    const { client } = await temporalClient();
    const untilShown = (status: string) =>
      eventually(
        async () => {
          await client.schedule.getHandle(RECONCILER_ID).trigger();
          const { searchAttributes } = await client.workflow.getHandle(sequenceWorkflowId(id)).describe();
          return searchAttributes["SendStatus"]?.[0] === status;
        },
        { what: `${status} in the UI` },
      );
    await untilShown("ACTIVE");
    for (const status of ["PAUSED", "ACTIVE"]) {
      await sql`update campaigns set status = ${status} where id = ${id}`.execute(kysely(sender.em.fork()));
      await untilShown(status);
    }
    await client.workflow.getHandle(sequenceWorkflowId(id)).executeUpdate("stop");
  });

  it("that Postgres has forgotten ends its workflow", async () => {
    const { team } = await makeSender({ recipients: [] });
    const input = { campaignId: newId("campaign"), teamId: team.id, wave: 3 };
    await (await temporalClient()).client.workflow.execute("sequenceWorkflow", sequenceStart(input));
  });
});

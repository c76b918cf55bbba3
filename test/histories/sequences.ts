import type { Client } from "@temporalio/client";
import { sql } from "kysely";
import { kysely } from "../../db/orm.ts";
import { sequenceWorkflowId } from "../../temporal/ids.ts";
import { sequenceStart } from "../../temporal/starts.ts";
import { eventually } from "../support/eventually.ts";
import { makeSender, type Sender } from "../support/sending.ts";
import { addPerson, makeDue, makeSequence, soon, stateOf, step, untilEnrolled } from "../support/sequences.ts";
import { untilDetails } from "../support/temporal.ts";

/** Each takes a workflow to its path and gives its id; the history is read once the workflow has ended. */
export function sequencePaths(temporal: Client): Record<string, () => Promise<string>> {
  async function begun(steps: object[], people: number): Promise<{ sender: Sender; id: string }> {
    const sender = await makeSender({ recipients: [] });
    const id = await makeSequence(sender, { steps });
    for (let n = 0; n < people; n++) await addPerson(sender);
    const handle = temporal.workflow.getHandle(sequenceWorkflowId(id));
    await eventually(() => handle.describe(), { what: "the workflow" });
    return { sender, id };
  }
  const untilCompleted = (sender: Sender, id: string) =>
    untilEnrolled(sender, id, (people) => people.length > 0 && people.every(({ state }) => state === "COMPLETED"));
  async function after(id: string, ...updates: string[]): Promise<string> {
    const handle = temporal.workflow.getHandle(sequenceWorkflowId(id));
    for (const update of updates) await handle.executeUpdate(update);
    return handle.workflowId;
  }
  const setTime = ({ em }: Sender, id: string, time: string | null) =>
    sql`update sequence_step_versions v set time_of_day = ${time} from sequence_steps s
      where s.campaign_id = ${id} and s.step_id = 'b' and v.id = s.version_id`.execute(kysely(em));

  return {
    "sequence-entered-and-mailed": async () => {
      const { sender, id } = await begun([soon("a"), soon("b")], 2);
      await untilCompleted(sender, id);
      return after(id, "stop");
    },

    "sequence-paused-resumed-stopped": async () => {
      const { id } = await begun([step("a")], 1);
      return after(id, "pause", "resume", "mailDueNow", "stop");
    },

    "sequence-cancelled-in-the-ui": async () => {
      const { id } = await begun([step("a")], 1);
      await temporal.workflow.getHandle(sequenceWorkflowId(id)).cancel();
      await untilDetails(temporal.workflow.getHandle(sequenceWorkflowId(id)), /PAUSED/);
      return after(id, "stop");
    },

    "sequence-step-failing": async () => {
      const { sender, id } = await begun([step("a"), soon("b")], 1);
      // Nobody can be given a time for the step.
      await setTime(sender, id, "?");
      await makeDue(sender, id);
      await untilDetails(temporal.workflow.getHandle(sequenceWorkflowId(id)), /failed three times/);
      await setTime(sender, id, null);
      await untilCompleted(sender, id);
      return after(id, "stop");
    },

    "sequence-paused-when-failing": async () => {
      const { sender, id } = await begun([step("a"), soon("b")], 1);
      await setTime(sender, id, "?");
      await makeDue(sender, id);
      await untilDetails(temporal.workflow.getHandle(sequenceWorkflowId(id)), /failed three times/);
      const failingSince = Date.now() - 3_600_000;
      await temporal.workflow.start("sequenceWorkflow", {
        ...sequenceStart({ campaignId: id, teamId: sender.team.id, wave: 0, failingSince }),
        workflowIdConflictPolicy: "TERMINATE_EXISTING",
      });
      await eventually(async () => (await stateOf(sender.em.fork(), id)).reason === "claim_failed", {
        what: "the pause",
      });
      await setTime(sender, id, null);
      return after(id, "stop");
    },

    "sequence-continued-as-new": async () => {
      const { id } = await begun([step("a")], 1);
      const handle = temporal.workflow.getHandle(sequenceWorkflowId(id));
      const { runId } = await handle.describe();
      await eventually(
        async () => {
          await handle.executeUpdate("mailDueNow");
          return (await handle.describe()).runId !== runId;
        },
        { what: "a second run" },
      );
      return after(id, "stop");
    },
  };
}

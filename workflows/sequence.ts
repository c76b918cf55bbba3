import { continueAsNew, proxyActivities } from "@temporalio/workflow";
import type { SequenceActivities, SequenceCommand, SequenceRun } from "../activities/sequences.ts";
import { PAUSE_REASONS } from "../domain/sends/pause-reasons.ts";
import { TASK_QUEUES } from "../temporal/ids.ts";
import type { SequenceInput } from "../temporal/starts.ts";
import { HEARTBEAT_TIMEOUT } from "./heartbeat.ts";
import { OperatorView } from "./operator-view.ts";
import { failingStep, STEP_RETRY } from "./steps.ts";
import { runWhenWoken } from "./wake-loop.ts";

/** Operators' updates, as the UI explains them. */
export const OPERATOR_UPDATES: readonly [SequenceCommand, string][] = [
  ["pause", "Claim no more people. A wave under way ends by itself; pause its send to hold it."],
  [
    "resume",
    'Claim again who is due: 1,000 at once, the others over an hour. After a restore of Postgres it needs an input: "mail" mails those who are due, perhaps twice, "skip" lets them pass the step.',
  ],
  ["stop", "End the sequence for good: people who wait leave it."],
  ["mailDueNow", "Mail at once those whom the last resume has spread over an hour."],
];

/** So long the runs of a sequence may fail before it is paused, so that its team hears of it. */
const FAILING_MS = 3_600_000;

const OF_THE_SERVICE: readonly string[] = ["dependency_unavailable", "internal_error", "worker_lost"];

/** Has waves of a sequence claimed and mailed, and sleeps between them. All state is in Postgres. ID: sequence/{campaign}. */
export function sequenceWorkflow(input: SequenceInput): Promise<void> {
  const { campaignId } = input;
  const steps = proxyActivities<SequenceActivities>({
    taskQueue: TASK_QUEUES.maintenance,
    // As long as a large plan, because a wave counts and copies.
    startToCloseTimeout: "1 hour",
    scheduleToCloseTimeout: "1 hour",
    heartbeatTimeout: HEARTBEAT_TIMEOUT,
    retry: STEP_RETRY,
    priority: { fairnessKey: input.teamId },
  });
  const ui = new OperatorView();
  let { wave, failingSince } = input;
  const show = (details: string, needsOperator: boolean, status?: string) =>
    ui.show({ details: `Sequence ${campaignId}. ${details}`, needsOperator, ...(status !== undefined && { status }) });

  return runWhenWoken<SequenceCommand>({
    updates: OPERATOR_UPDATES,
    onCancel: "pause",
    step: "mail",
    waitSummary: "until someone is due",
    command: (kind, due) => steps.commandSequence(campaignId, kind, due),
    run: async () => {
      const run = await steps.runSequence({ campaignId, wave });
      ({ wave } = run);
      failingSince = undefined;
      const needsOperator = run.isBlocked || (run.reason !== null && run.reason !== PAUSE_REASONS.client);
      show(runText(run), needsOperator, run.status);
      const hasEnded = run.status === "STOPPED" || run.status === "DRAFT";
      return hasEnded && !run.hasWaves ? undefined : (run.nextInMs ?? Number.POSITIVE_INFINITY);
    },
    onFailing: async (failing) => {
      show(failingStep(failing, "pause, stop"), true);
      // An outage of Postgres, or a fault of the service, is no failure of the sequence: it would pause those of all teams.
      if (OF_THE_SERVICE.includes(failing.code)) failingSince = undefined;
      else failingSince ??= Date.now();
      if (failingSince === undefined || Date.now() - failingSince < FAILING_MS) return;
      try {
        await steps.pauseFailing(campaignId, failing.code);
        failingSince = undefined;
      } catch {
        // The next failing run tries it again.
      }
    },
    continueAsNew: () => continueAsNew<typeof sequenceWorkflow>({ ...input, wave, failingSince }),
  });
}

const UPDATES: Readonly<Record<string, string>> = {
  PAUSED: " Updates: resume, stop.",
  ACTIVE: " Updates: pause, stop, mailDueNow.",
};

function runText({ status, reason, wave, waiting, mailedToday, isBlocked, nextDueAt }: SequenceRun): string {
  const people = Object.entries(waiting).map(([step, count]) => `${count} for ${step}`);
  const state = `${wave} waves, ${mailedToday} mails today (UTC); waiting: ${people.join(", ") || "none"}`;
  const blocked = isBlocked ? " A wave is PAUSED: sequence:show names it; resume or cancel its send." : "";
  const next = status === "ACTIVE" && nextDueAt !== null ? ` Next due at ${nextDueAt}.` : "";
  return `${status}${reason === null ? "" : ` (${reason})`}: ${state}.${next}${blocked}${UPDATES[status] ?? ""}`;
}

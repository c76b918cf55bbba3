/** The smallest workflow with an update. The cost of a preview beyond it is caused by our code. */
import { condition, defineUpdate, proxyActivities, setHandler } from "@temporalio/workflow";

/** Activities of the trivial workflow. */
export interface TrivialActivities {
  nothing(): Promise<void>;
}

/** Answers at once, or after one activity that does nothing. */
export const touchUpdate = defineUpdate<void, [{ activity: boolean }]>("touch");

const { nothing } = proxyActivities<TrivialActivities>({ startToCloseTimeout: "10 seconds" });

/** Ends when its update is done. */
export async function trivialWorkflow(): Promise<void> {
  let touched = false;
  setHandler(touchUpdate, async ({ activity }) => {
    if (activity) await nothing();
    touched = true;
  });
  await condition(() => touched);
}

import type { Client, DataOf } from "../../api.ts";
import { When } from "../page.tsx";
import { reasonText } from "../send/words.ts";

type Enrolment = DataOf<Client["app"]["audience"]["enrolments"]["query"]>[number];
type ShownProps = Pick<Enrolment, "state" | "step" | "due_at" | "reason">;

/** Where a person is in a sequence, in words. @param isStopped they get no mail at present */
export function EnrolmentState({ state, step, due_at: at, reason, isStopped }: ShownProps & { isStopped?: boolean }) {
  if (state === "COMPLETED") return "Finished";
  if (state === "PRESENT") return "Did not enter: joined before the start";
  if (state === "LEFT") return `Left${step ? ` before step ${step}` : ""}: ${reasonText(reason ?? "unknown")}`;
  if (!at) return `Step ${step} is being sent`;
  return (
    <>
      Waiting for step {step} until <When at={at} />
      {isStopped && ", and not emailed while they get no emails"}
    </>
  );
}

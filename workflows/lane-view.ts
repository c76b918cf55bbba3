import type { SliceResult } from "../activities/dispatch.ts";

/** Account failures in a row after which operators see the send. */
const FAILURES_TO_OPERATOR = 3;

/** The facts that the workflow of a send knows about one lane. */
export interface LaneView {
  accountId: string;
  /** `retried`: an operator wants another slice after this one at once. */
  slice: "none" | "under way" | "retried" | "ending";
  /** Undefined when the next slice may begin at once. */
  lastSlice?: (SliceResult & { at: number }) | undefined;
  /** The last failure since its account mailed, for operators; it outlives commands and runs. */
  lastFailure?: { reason: string; reply?: string | undefined; at: number } | undefined;
  accountFailures: number;
  /** Another lane failed, used up its limit or put recipients back since the last slice began. */
  mayFindMore: boolean;
  /** The next slice does not wait although the account was refused a moment ago. */
  triesNow?: boolean;
}

export const isUnderWay = ({ slice }: Pick<LaneView, "slice">): boolean => slice !== "none";

/** Whether an operator should look at the account: it failed for good, or several times in a row. */
export const isCallingOperator = ({ lastSlice, accountFailures }: LaneView): boolean =>
  accountFailures >= FAILURES_TO_OPERATOR || (lastSlice?.next === "failure" && !lastSlice.temporary);

export const isLimitUsedUp = (result: SliceResult | undefined): boolean =>
  result?.next === "account_full" && result.byLimit === true;

/** The accounts whose deferred recipients a lane may take. */
export const takenOverBy = (accountId: string, lanes: readonly LaneView[]): string[] =>
  lanes
    .filter((lane) => lane.accountId !== accountId && (lane.accountFailures > 0 || isLimitUsedUp(lane.lastSlice)))
    .map((lane) => lane.accountId);

import type { SliceResult } from "../activities/dispatch.ts";
import { FAILURES_TO_OPERATOR } from "./account-failure.ts";

/** The facts that the workflow of a send knows about one lane, which is one account's part in the send. */
export interface LaneView {
  accountId: string;
  /** `retried`: an operator wants another slice after this one at once. */
  slice: "none" | "under way" | "retried" | "ending";
  /** The result of the last slice and its time; undefined when the next one may begin at once. */
  lastSlice?: (SliceResult & { at: number }) | undefined;
  /** The last failure since its account mailed, for operators; it outlives commands and runs. */
  lastFailure?: { reason: string; reply?: string | undefined; at: number } | undefined;
  /** Account failures in a row. */
  accountFailures: number;
  /**
   * Since the last slice began, another lane failed, used up its account's limit or put recipients back: this lane may
   * find recipients that it did not find before.
   */
  mayFindMore: boolean;
  /**
   * An operator has commanded to try now: the next slice does not wait although the account was refused a moment ago. The
   * run that carries the command out may be the one that follows.
   */
  triesNow?: boolean;
}

export const isUnderWay = ({ slice }: Pick<LaneView, "slice">): boolean => slice !== "none";

/** Whether an operator should look at the account: it failed for good, or several times in a row. */
export const isCallingOperator = ({ lastSlice, accountFailures }: LaneView): boolean =>
  accountFailures >= FAILURES_TO_OPERATOR || (lastSlice?.next === "failure" && !lastSlice.temporary);

/** Whether the hourly or daily limit of the slice's account is used up. */
export const isLimitUsedUp = (result: SliceResult | undefined): boolean =>
  result?.next === "account_full" && result.byLimit === true;

/**
 * The accounts whose deferred recipients a lane may take: those of other lanes that have failed since their last mail, or
 * whose hourly or daily limit is used up.
 */
export const takenOverBy = (accountId: string, lanes: readonly LaneView[]): string[] =>
  lanes
    .filter((lane) => lane.accountId !== accountId && (lane.accountFailures > 0 || isLimitUsedUp(lane.lastSlice)))
    .map((lane) => lane.accountId);

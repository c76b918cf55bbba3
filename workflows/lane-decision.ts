import type { LaneView } from "./lane-view.ts";
import { LANE_STATES } from "./send-messages.ts";
import { accountFailureWaitMs } from "./steps.ts";

/** `state`: a clause that operators read behind the id of its account. */
export type LaneStep = { state: string } & (
  | { kind: "dispatch" }
  | { kind: "slice" }
  | { kind: "wait"; ms: number; summary: string }
  /** Its account must be repaired: it is not tried again before a command. */
  | { kind: "failed"; reason: string }
  /** Nothing is left to it. `held`: other lanes keep recipients that they deferred. */
  | { kind: "done"; held: boolean }
);

export function decideLane({ slice, lastSlice, accountFailures, mayFindMore }: LaneView, now: number): LaneStep {
  if (slice !== "none") return { kind: "slice", state: slice === "ending" ? LANE_STATES.ending : LANE_STATES.mailing };
  const dispatch: LaneStep = { kind: "dispatch", state: LANE_STATES.mailing };
  const waitFor = (ms: number, summary: string, stateUntil: (at: number) => string): LaneStep => {
    const at = (lastSlice?.at ?? now) + ms;
    return at > now ? { kind: "wait", ms: at - now, summary, state: stateUntil(at) } : dispatch;
  };
  switch (lastSlice?.next) {
    case "done":
      if (mayFindMore) return dispatch;
      return { kind: "done", held: lastSlice.held === true, state: LANE_STATES.done };
    case "deferred":
      if (mayFindMore) return dispatch;
      return waitFor(lastSlice.waitMs, "until a deferred recipient is due", LANE_STATES.deferred);
    case "account_full":
      return waitFor(lastSlice.waitMs, "until the account has room", LANE_STATES.accountFull);
    case "failure": {
      const { reason, temporary, retryInMs } = lastSlice;
      if (!temporary) return { kind: "failed", reason, state: LANE_STATES.failed(reason) };
      const waitMs = retryInMs ?? accountFailureWaitMs(accountFailures);
      return waitFor(waitMs, "until the next try", (at) => LANE_STATES.accountFails(reason, at));
    }
    default:
      return dispatch;
  }
}

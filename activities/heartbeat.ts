import { Context } from "@temporalio/activity";

/** Heartbeats within a heartbeat timeout: a busy machine may be late with some of them. */
const BEATS = 5;
const WITHOUT_TIMEOUT_MS = 10_000;
/** A cancellation reaches an activity with the answer to a heartbeat. */
const LONGEST_BEAT_MS = 2_000;

/**
 * With a heartbeat, long work is given to another worker soon after its own is lost. @param work is given a function
 * that takes its progress
 */
export async function whileBeating<T>(
  work: (report: (progress: Readonly<Record<string, number | string>>) => void) => Promise<T>,
): Promise<T> {
  const context = Context.current();
  let progress: Readonly<Record<string, number | string>> | undefined;
  const { heartbeatTimeoutMs = WITHOUT_TIMEOUT_MS } = context.info;
  const beat = setInterval(() => context.heartbeat(progress), Math.min(LONGEST_BEAT_MS, heartbeatTimeoutMs / BEATS));
  try {
    return await work((reported) => {
      progress = reported;
    });
  } finally {
    clearInterval(beat);
  }
}

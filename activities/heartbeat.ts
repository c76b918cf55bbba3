import { Context } from "@temporalio/activity";

const HEARTBEAT_MS = 2_000;

/** Work that may take long: with a heartbeat it is given to another worker soon after its own is lost. */
export async function whileBeating<T>(work: () => Promise<T>): Promise<T> {
  const context = Context.current();
  const beat = setInterval(() => context.heartbeat(), HEARTBEAT_MS);
  try {
    return await work();
  } finally {
    clearInterval(beat);
  }
}

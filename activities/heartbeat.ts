import { Context } from "@temporalio/activity";

const HEARTBEAT_MS = 2_000;

/**
 * Work that may take long: with a heartbeat it is given to another worker soon after its own is lost.
 * @param work is given a function that takes its progress, in counts; operators read it in the UI
 */
export async function whileBeating<T>(
  work: (report: (progress: Readonly<Record<string, number>>) => void) => Promise<T>,
): Promise<T> {
  const context = Context.current();
  let progress: Readonly<Record<string, number>> | undefined;
  const beat = setInterval(() => context.heartbeat(progress), HEARTBEAT_MS);
  try {
    return await work((reported) => {
      progress = reported;
    });
  } finally {
    clearInterval(beat);
  }
}

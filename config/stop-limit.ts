import type { Logger } from "pino";

/** Beyond the grace time for the work in flight. */
export const CLOSE_MARGIN_MS = 5_000;

/**
 * Ends this process once it has been stopping for too long: a supervisor does not restart one that hangs.
 * @returns a function to be called with each step, so that the log names the one that hung
 */
export function limitStop(log: Logger, graceMs: number): (step: string) => void {
  let current = "finishing the work in flight";
  setTimeout(() => {
    log.error({ step: current }, "could not stop in time and ends now");
    process.exit(1);
  }, graceMs + CLOSE_MARGIN_MS).unref();
  return (step) => {
    current = step;
  };
}

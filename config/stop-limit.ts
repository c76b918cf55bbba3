import type { Logger } from "pino";

/** Time of a stopping process to close its connections, beyond its grace time for the work in flight. */
export const CLOSE_MARGIN_MS = 5_000;

/**
 * Ends this process once it has been stopping for too long: a supervisor starts a process that has ended again, but not
 * one that hangs. Work that is cut off is found by its timeouts, as after a crash.
 * @param graceMs how long the work in flight may take
 * @returns told each step of stopping, so that the log names the one that hung
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

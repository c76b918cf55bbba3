import type { Logger } from "pino";

export const CLOSE_MARGIN_MS = 5_000;

/** A supervisor does not restart a process that hangs. @returns a function to be called with each step, for the log */
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

declare global {
  /** Set by the worker that runs the workflows (`workers/bundle.ts`), from its setting of the same name. */
  var HEARTBEAT_TIMEOUT_MS: number | undefined;
}

const DEFAULT_MS = 10_000;

/** How long an activity may go without a heartbeat before its worker is presumed dead, in milliseconds. */
export const HEARTBEAT_TIMEOUT = globalThis.HEARTBEAT_TIMEOUT_MS ?? DEFAULT_MS;

declare global {
  /** Set by the worker that runs the workflows (`workers/bundle.ts`), from its setting of the same name. */
  var HEARTBEAT_TIMEOUT_MS: number | undefined;
}

/** How long an activity may go without a heartbeat before its worker is presumed dead, in milliseconds; 0 is no limit. */
export const HEARTBEAT_TIMEOUT = globalThis.HEARTBEAT_TIMEOUT_MS ?? 0;

/** A wall clock that gains this much between two looks did not drift: the machine was suspended. */
const SUSPENDED_FROM_MS = 100;

let offsetMs = Date.now() - performance.now();
let suspendedMs = 0;

/**
 * Ms since the process began, with the time for which its machine was suspended: `performance.now()` stands still then.
 */
export function elapsedMs(): number {
  const monotonicMs = performance.now();
  const nowOffsetMs = Date.now() - monotonicMs;
  const gainedMs = nowOffsetMs - offsetMs;
  if (gainedMs >= SUSPENDED_FROM_MS) suspendedMs += gainedMs;
  offsetMs = nowOffsetMs;
  return monotonicMs + suspendedMs;
}

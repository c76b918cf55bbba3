/** A wall clock that gains this much on the monotonic one between two looks did not drift: the machine was suspended. */
const SUSPENDED_FROM_MS = 100;

let offsetMs = Date.now() - performance.now();
let suspendedMs = 0;

/**
 * Milliseconds since the process began, with the time for which its machine was suspended: `performance.now()` stands
 * still meanwhile, and work from before would look as if it had just begun. A wall clock that is set forward counts as a
 * suspension too; one that is set back changes nothing.
 */
export function elapsedMs(): number {
  const monotonicMs = performance.now();
  const nowOffsetMs = Date.now() - monotonicMs;
  const gainedMs = nowOffsetMs - offsetMs;
  if (gainedMs >= SUSPENDED_FROM_MS) suspendedMs += gainedMs;
  offsetMs = nowOffsetMs;
  return monotonicMs + suspendedMs;
}

/** A wall clock that gains this much between two looks did not drift: the machine was suspended. */
const SUSPENDED_FROM_MS = 100;

let offsetMs = Date.now() - performance.now();
let suspendedMs = 0;

/** `performance.now()` stands still while the machine is suspended; this counts that time, too. */
export function elapsedMs(): number {
  const monotonicMs = performance.now();
  const nowOffsetMs = Date.now() - monotonicMs;
  const gainedMs = nowOffsetMs - offsetMs;
  if (gainedMs >= SUSPENDED_FROM_MS) suspendedMs += gainedMs;
  offsetMs = nowOffsetMs;
  return monotonicMs + suspendedMs;
}

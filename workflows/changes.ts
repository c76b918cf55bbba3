import { patched, workflowInfo } from "@temporalio/workflow";

/**
 * Changes of the commands of workflows since 1.0, by a name each. One takes two minors, so that an upgrade may be taken back: a
 * workflow with a command that its worker does not know is stuck. The first minor names it in `Change` alone: it knows the command
 * in the history of a workflow, and gives it in none. The next adds it to `TAKEN`, and workflows give it from there on.
 */
export type Change = "list-forgotten-pauses";

const TAKEN: readonly Change[] = [];

const met = new Set<Change>();

/** Whether this workflow gives the commands of a change. Both branches stay for as long as the major. */
export function isTaken(change: Change, taken = TAKEN): boolean {
  if (taken.includes(change)) return patched(change);
  // While a history is replayed, `patched` only looks whether it has the change; else it would take it.
  if (workflowInfo().unsafe.isReplaying && !met.has(change) && patched(change)) met.add(change);
  return met.has(change);
}

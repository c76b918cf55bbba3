import type { SendState } from "../domain/sends/ledger/lifecycle.ts";
import { PAUSE_REASONS } from "../domain/sends/pause-reasons.ts";

/** How far a send was when its workflow last heard of it. */
export interface KnownProgress {
  /** Missing while a step that takes the send back is under way: its effect may be known to Postgres alone. */
  status?: SendState["status"] | undefined;
  /** After a restore and a resume also the mails that left before it. */
  sent: number;
  resumes: number;
  closedEpochs: Record<string, number>;
}

/** How far a send is by a state of Postgres, and at least as far as `known`. */
export function progressOf({ status, sent, resumes, closedEpochs }: SendState, known?: KnownProgress): KnownProgress {
  const closed = { ...closedEpochs };
  for (const [accountId, epoch] of Object.entries(known?.closedEpochs ?? {})) {
    closed[accountId] = Math.max(epoch, closed[accountId] ?? 0);
  }
  return { status, sent: Math.max(sent, known?.sent ?? 0), resumes, closedEpochs: closed };
}

const OPEN: ReadonlySet<SendState["status"]> = new Set(["SCHEDULED", "SENDING", "PAUSED"]);

export const isOpen = (status: SendState["status"]): boolean => OPEN.has(status);

/**
 * Whether Postgres is behind the facts that a workflow knows, after a restore or a failover. It is not seen when it
 * lost nothing but outcomes of a slice under way.
 */
export function isSetBack(known: KnownProgress, state: SendState): boolean {
  const { status, resumes, closedEpochs } = state;
  // An operator has held all sends after the restore.
  if (state.pauseReason === PAUSE_REASONS.databaseRestored && state.sent < known.sent) return true;
  if (Object.entries(known.closedEpochs).some(([accountId, epoch]) => epoch > (closedEpochs[accountId] ?? 0)))
    return true;
  switch (known.status) {
    case undefined:
    case "SCHEDULED":
      return false;
    case "SENDING":
      return status === "SCHEDULED";
    case "PAUSED":
      return (status === "SCHEDULED" || status === "SENDING") && resumes <= known.resumes;
    default:
      return isOpen(status);
  }
}

import type { Logger } from "pino";
import type { SendStatus } from "../../db/entities/send.ts";

/** A change of a send's status. */
export interface SendMove {
  sendId: string;
  /** Where the process knows it. */
  teamId?: string;
  /** Missing when it was confirmed just now. */
  from?: SendStatus;
  status: SendStatus;
  /** The failures that paused it, as codes. */
  reason?: string | null;
  /** The team's complaint rate, a fraction of the delivered mail, if that paused it. */
  complaintRate?: number;
}

/** Logs a change of a send's status in a line of its own. */
export function logMove(log: Logger, { reason, ...move }: SendMove): void {
  log.info({ ...move, ...(reason && { reason }) }, `a send is ${move.status}`);
}

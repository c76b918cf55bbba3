import type { Logger } from "pino";
import type { SendStatus } from "../../db/entities/send.ts";

export interface SendMove {
  sendId: string;
  teamId?: string;
  /** Missing when it was confirmed just now. */
  from?: SendStatus;
  status: SendStatus;
  reason?: string | null;
  /** Where a member moved its start: ISO 8601. */
  startsAt?: string;
  /** A fraction, if that paused it. */
  complaintRate?: number;
}

export function logMove(log: Logger, { reason, ...move }: SendMove): void {
  log.info({ ...move, ...(reason && { reason }) }, `a send is ${move.status}`);
}

import { sql } from "kysely";
import type { BroadcastStatus } from "../../db/entities/send.ts";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../db/orm.ts";
import { ApiError, notFound } from "../errors.ts";
import { sequenceRefusal } from "./drafts/drafts.ts";
import {
  type ChangedSend,
  cancelSend,
  pauseSend,
  rescheduleSend,
  resumeForClient,
  TERMINAL,
} from "./ledger/lifecycle.ts";
import { PAUSE_REASONS } from "./pause-reasons.ts";
import type { SendResource } from "./resource.ts";
import type { SendMove } from "./send-log.ts";

export type ClientCommand = "pause" | "resume" | "cancel";

interface Rule {
  from: readonly BroadcastStatus[];
  done: string;
  change(em: EntityManager, sendId: string): Promise<ChangedSend>;
}

const RULES: Readonly<Record<ClientCommand, Rule>> = {
  pause: {
    from: ["SCHEDULED", "SENDING"],
    done: "paused",
    change: (em, sendId) => pauseSend(em, sendId, PAUSE_REASONS.client),
  },
  resume: { from: ["PAUSED"], done: "resumed", change: resumeForClient },
  cancel: { from: ["SCHEDULED", "SENDING", "PAUSED"], done: "cancelled", change: cancelSend },
};

/** Pauses that an operator alone lifts; null is an operator's own. All others are a client's, or for failed accounts. */
const OF_OPERATORS: ReadonlySet<string | null> = new Set([
  null,
  PAUSE_REASONS.databaseRestored,
  PAUSE_REASONS.workflowEnded,
]);

/** Of a client's resume of a send or sequence; undefined where it is not refused. @param reason of its pause */
export function resumeRefusal(reason: string | null): ApiError | undefined {
  if (reason === PAUSE_REASONS.complaints) {
    return new ApiError("complaint_rate_exceeded", "Complaints paused it: an operator of the service resumes it.");
  }
  if (!OF_OPERATORS.has(reason)) return undefined;
  return new ApiError("resource_state_invalid", "An operator of the service paused it, and resumes it.");
}

/** Undefined where it is not refused. */
export function commandRefusal(
  command: ClientCommand,
  status: BroadcastStatus,
  reason: string | null,
): ApiError | undefined {
  const { from, done } = RULES[command];
  if (!from.includes(status)) {
    const message = `It is ${status}: it can be ${done} while it is ${from.join(" or ")}.`;
    return new ApiError("resource_state_invalid", message, { isFinal: TERMINAL.has(status) });
  }
  return command === "resume" ? resumeRefusal(reason) : undefined;
}

/**
 * Carries out a client's command in Postgres alone; wake the workflow up after the commit. A resource that is SENT
 * stays so while its unknown recipients are mailed again.
 * @returns undefined on a dry run
 * @throws {ApiError} `not_found`; `resource_state_invalid` for a sequence; as `commandRefusal`
 */
export const commandSend = (
  em: EntityManager,
  tenant: Tenant,
  resource: SendResource,
  command: ClientCommand,
  isDryRun: boolean,
): Promise<SendMove | undefined> => {
  const refusalOf = ({ status, status_reason }: Commanded) => commandRefusal(command, status, status_reason);
  return changeSend(em, tenant, resource, { refusalOf, change: RULES[command].change, isDryRun });
};

/** Undefined where it is not refused. */
export function rescheduleRefusal({ status, started_at }: Omit<Commanded, "status_reason">): ApiError | undefined {
  const isFinal = TERMINAL.has(status);
  if (status !== "SCHEDULED" && status !== "PAUSED") {
    const message = `It is ${status}: its time can be changed while it is SCHEDULED or PAUSED.`;
    return new ApiError("resource_state_invalid", message, { isFinal });
  }
  if (started_at === null) return undefined;
  return new ApiError("resource_state_invalid", "It has begun: its time cannot be changed any more.", {
    isFinal: true,
  });
}

/**
 * Gives a send that has not begun another time, as `commandSend` carries out a command.
 * @param zone in which members see it @throws {ApiError} as `commandSend`, and as `rescheduleRefusal`
 */
export const rescheduleForMember = async (
  em: EntityManager,
  tenant: Tenant,
  resource: SendResource,
  { due, zone }: { due: Date; zone: string },
): Promise<SendMove | undefined> => {
  const change = async (tx: EntityManager, sendId: string) => {
    const rescheduled = await rescheduleSend(tx, sendId, due);
    const table = kysely(tx).updateTable(`${resource.type}s`).set({ send_zone: zone });
    await table.where("id", "=", resource.id).where(ofTenant(tenant)).execute();
    return rescheduled;
  };
  const move = await changeSend(em, tenant, resource, { refusalOf: rescheduleRefusal, change, isDryRun: false });
  return move && { ...move, startsAt: due.toISOString() };
};

interface Commanded {
  status: BroadcastStatus;
  status_reason: string | null;
  started_at: string | null;
}

interface Change extends Pick<Rule, "change"> {
  refusalOf(record: Commanded): ApiError | undefined;
  isDryRun: boolean;
}

async function changeSend(
  em: EntityManager,
  tenant: Tenant,
  { type, id }: SendResource,
  { refusalOf, change, isDryRun }: Change,
): Promise<SendMove | undefined> {
  const readAllowed = async () => {
    const record = await kysely(em)
      .selectFrom(`${type}s`)
      .select(["send_id", "status", "status_reason", "started_at"])
      .select(sql<boolean>`${type === "campaign" ? sql.ref("is_drip") : sql.lit(false)}`.as("isDrip"))
      .where("id", "=", id)
      .where(ofTenant(tenant))
      .executeTakeFirstOrThrow(() => notFound());
    if (record.isDrip) throw sequenceRefusal();
    const refusal = refusalOf(record);
    if (refusal) throw refusal;
    return record.send_id;
  };
  const sendId = await readAllowed();
  if (isDryRun || sendId === null) return undefined;
  // As every change of a send does, before that of its resource.
  await kysely(em)
    .selectFrom("sends")
    .select("id")
    .where("id", "=", sendId)
    .where(ofTenant(tenant))
    .forUpdate()
    .execute();
  await readAllowed();
  const { changed, state, from = state?.status } = await change(em, sendId);
  if (!changed || !from || !state) throw new Error(`the send of a ${type} is not where the ${type} is`);
  return { sendId, teamId: tenant.teamId, from, status: state.status, reason: state.pauseReason };
}

import { sql } from "kysely";
import type { BroadcastStatus } from "../../db/entities/send.ts";
import { Team } from "../../db/entities/team.ts";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../db/orm.ts";
import { ApiError, notFound } from "../errors.ts";
import { sequenceRefusal } from "./drafts/drafts.ts";
import { type ChangedSend, cancelSend, pauseSend, resumeForClient, TERMINAL } from "./ledger/lifecycle.ts";
import { PAUSE_REASONS } from "./pause-reasons.ts";
import { nextSendAt } from "./plan/send-time.ts";
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
  return new ApiError("resource_state_invalid", "An operator of the service paused it, and has to resume it.");
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
export async function commandSend(
  em: EntityManager,
  tenant: Tenant,
  resource: SendResource,
  command: ClientCommand,
  isDryRun: boolean,
): Promise<SendMove | undefined> {
  const refusalOf = ({ status, status_reason }: Commanded) => commandRefusal(command, status, status_reason);
  const { send_id: sendId } = await lockCommanded(em, tenant, resource, refusalOf, isDryRun);
  return isDryRun ? undefined : carryOut(em, tenant, resource, command, sendId);
}

/** @throws {ApiError} as `commandSend`, and `resource_state_invalid` for a send that has begun */
export async function cancelUnbegun(
  em: EntityManager,
  tenant: Tenant,
  resource: SendResource,
): Promise<SendMove | undefined> {
  const { send_id: sendId } = await lockCommanded(em, tenant, resource, unbegunRefusal("a copy can replace it"));
  return carryOut(em, tenant, resource, "cancel", sendId);
}

async function carryOut(
  em: EntityManager,
  tenant: Tenant,
  resource: SendResource,
  command: ClientCommand,
  sendId: string | null,
): Promise<SendMove | undefined> {
  if (sendId === null) return undefined;
  const { from, state } = await RULES[command].change(em, sendId);
  if (!from || !state) throw new Error(`the send of a ${resource.type} is not where the ${resource.type} is`);
  return { sendId, teamId: tenant.teamId, from, status: state.status, reason: state.pauseReason };
}

/** @param may the act that is possible before the send begins */
function unbegunRefusal(may: string): (record: Commanded) => ApiError | undefined {
  return ({ status, started_at: startedAt }) => {
    if ((status === "SCHEDULED" || status === "PAUSED") && startedAt === null) return undefined;
    const message = `It is ${status}: ${may} while it is SCHEDULED or PAUSED, until it begins.`;
    return new ApiError("resource_state_invalid", message, { isFinal: TERMINAL.has(status) || startedAt !== null });
  };
}

/**
 * Gives a send that has not begun another time, as `commandSend` carries out a command.
 * @param due when it is to start, if its days allow that; see `nextSendAt` @param zone in which members see it
 * @throws {ApiError} as `commandSend`, and as `unbegunRefusal`
 */
export async function rescheduleSend(
  em: EntityManager,
  tenant: Tenant,
  resource: SendResource,
  { due, zone }: { due: Date; zone: string },
): Promise<SendMove | undefined> {
  const { send_id: sendId, ...draft } = await lockCommanded(
    em,
    tenant,
    resource,
    unbegunRefusal("its time can be changed"),
  );
  if (sendId === null) return undefined;
  const { timeZone } = await em.findOneOrFail(Team, { id: tenant.teamId });
  const sendAt = nextSendAt(due, draft.send_days, timeZone);
  const db = kysely(em);
  await db.updateTable("sends").set({ send_at: sendAt }).where("id", "=", sendId).where(ofTenant(tenant)).execute();
  const table = db.updateTable(`${resource.type}s`).set({ send_at: sendAt, send_zone: zone });
  await table.where("id", "=", resource.id).where(ofTenant(tenant)).execute();
  const move = { sendId, teamId: tenant.teamId, status: draft.status as SendMove["status"] };
  return { ...move, reason: draft.status_reason, startsAt: sendAt.toISOString() };
}

type Commanded = Awaited<ReturnType<typeof readCommanded>>;

const readCommanded = (em: EntityManager, tenant: Tenant, { type, id }: SendResource) =>
  kysely(em)
    .selectFrom(`${type}s`)
    .select(["send_id", "status", "status_reason", "started_at", "send_days"])
    .select(sql<boolean>`${type === "campaign" ? sql.ref("is_drip") : sql.lit(false)}`.as("isDrip"))
    .where("id", "=", id)
    .where(ofTenant(tenant))
    .executeTakeFirstOrThrow(() => notFound());

/** Locks the send, unless on a dry run, where it is not refused. */
async function lockCommanded(
  em: EntityManager,
  tenant: Tenant,
  resource: SendResource,
  refusalOf: (record: Commanded) => ApiError | undefined,
  isDryRun = false,
): Promise<Commanded> {
  const readAllowed = async () => {
    const record = await readCommanded(em, tenant, resource);
    const refusal = record.isDrip ? sequenceRefusal() : refusalOf(record);
    if (refusal) throw refusal;
    return record;
  };
  const record = await readAllowed();
  if (isDryRun || record.send_id === null) return record;
  // As every change of a send does, before that of its resource.
  await kysely(em)
    .selectFrom("sends")
    .select("id")
    .where("id", "=", record.send_id)
    .where(ofTenant(tenant))
    .forUpdate()
    .execute();
  return readAllowed();
}

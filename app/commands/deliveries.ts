import { DELIVERY_STATUSES } from "../../db/entities/webhook.ts";
import { transaction } from "../../db/transaction.ts";
import { ApiError } from "../../domain/errors.ts";
import {
  countReplayable,
  DEFAULT_PER_SECOND,
  REPLAYABLE,
  type ReplayCount,
  type ReplayFilter,
  replayDeliveries,
} from "../../domain/webhooks/bulk-replay.ts";
import { commandEndpoint, retryWaiting } from "../../domain/webhooks/commands.ts";
import { notifyDue } from "../../domain/webhooks/emit.ts";
import { listDeliveries, readDeliveryFacts } from "../../domain/webhooks/log.ts";
import { endpointWorkflowId } from "../../temporal/ids.ts";
import { argument, type Commands, command, flag, LIMIT, OF_ANY_TEAM, option } from "../command.ts";
import { collect, eventNames, listOf, pastInstant, wholeNumber } from "../options.ts";
import { progressLine, table, toJson } from "../output.ts";
import { anyTeamOf, noteTenant, type Outcome, ownerOf, type Session, uiOf } from "../session.ts";

/** Webhook deliveries: their attempts, the workflow that one waits in, attempts at once, and replays in bulk. */
export const commands: Commands = {
  "delivery:list": command(
    "list webhook deliveries by their last attempts, the newest first; those that were replayed are left out",
    {
      ...LIMIT,
      webhook: option("<id>", "of one endpoint; all unless given"),
      status: option("<statuses>", ...listOf(DELIVERY_STATUSES)),
      ...OF_ANY_TEAM,
    },
    async (session, { webhook: webhookId, status: statuses, limit, ...options }) => {
      const teamId = await anyTeamOf(session, options);
      if (webhookId !== undefined) await ownerOf(session, "webhook_endpoints", webhookId);
      const deliveries = await listDeliveries(session.orm.em.fork(), { teamId, webhookId, statuses, limit });
      return {
        text: table(deliveries, "No delivery", {
          DELIVERY: ({ id }) => id,
          AT: ({ at }) => at,
          TEAM: ({ team }) => team,
          ENDPOINT: ({ webhook }) => webhook,
          EVENT: ({ eventType }) => eventType,
          STATUS: ({ status }) => status,
          ATTEMPT: ({ attempt }) => attempt,
          ANSWER: ({ responseStatus }) => responseStatus,
          ERROR: ({ error }) => error,
        }),
        data: { deliveries: deliveries.map(toJson) },
      };
    },
  ),

  "delivery:show": command(
    "print a webhook delivery: its outcome, its attempts and the workflow that it waits in",
    { id: argument("the delivery") },
    async (session, { id }) => {
      const delivery = await readDeliveryFacts(session.orm.em.fork(), id);
      const shown = delivery.attempts.find((one) => one.id === id);
      if (!shown) throw new ApiError("not_found", `There is no delivery ${id}.`);
      const { status, attempt, nextAttemptAt } = shown;
      const isWaiting = status === "PENDING" || status === "RETRYING";
      const workflow = isWaiting ? endpointWorkflowId(delivery.webhookId) : null;
      const ui = workflow && uiOf(session, workflow);
      const attempts = delivery.attempts.map(({ at, attempt, id, status, responseStatus, durationMs, error }) => {
        const answer = responseStatus === null ? null : `HTTP ${responseStatus}`;
        const took = durationMs === null ? null : `${durationMs} ms`;
        const parts = [at, `attempt ${attempt}`, id, status, answer, took, error];
        return parts.filter((part) => part !== null).join("  ");
      });
      return {
        text: [
          `${delivery.eventType} ${delivery.eventId} to ${delivery.webhookId}, team ${delivery.teamId}`,
          workflow ?? "no workflow: it has ended",
          `${status}, attempt ${attempt}${nextAttemptAt ? `, next at ${nextAttemptAt}` : ""}`,
          ...(ui ? [ui] : []),
          ...attempts,
        ].join("\n"),
        data: {
          delivery: id,
          workflow,
          webhook: delivery.webhookId,
          event: delivery.eventId,
          event_type: delivery.eventType,
          team: delivery.teamId,
          environment: delivery.environment,
          status,
          attempt,
          next_attempt_at: nextAttemptAt,
          replay_of: delivery.replayOfId,
          attempts: delivery.attempts.map(({ nextAttemptAt: _, ...attempt }) => toJson(attempt)),
          ui,
        },
      };
    },
  ),

  "delivery:retry": command(
    "attempt deliveries that wait for their next attempt now; it uses up none of their attempts",
    {
      ids: { ...argument("deliveries that wait for their next attempt", collect), value: "[ids...]" },
      webhook: option("<id>", "all of one endpoint; with a probe of one that is failing"),
    },
    (session, { ids = [], webhook }) => retry(session, ids, webhook),
  ),

  "webhook:replay": command(
    "replay many webhook deliveries; those that are queued when this command is stopped are sent",
    {
      since: option("<instant>", "deliveries made from then, ISO 8601", pastInstant),
      until: option("<instant>", "deliveries made before then; now unless given", pastInstant),
      status: option("<statuses>", ...listOf(REPLAYABLE), [...REPLAYABLE]),
      event: option("<names>", "comma-separated events; all unless given", eventNames, []),
      ...OF_ANY_TEAM,
      webhook: option("<id>", "of one endpoint; all unless given"),
      perSecond: option("<n>", "deliveries a second to each endpoint", wholeNumber(1, 5_000), DEFAULT_PER_SECOND),
      dryRun: flag("count only"),
    },
    async (session, { since, until = new Date(), webhook, perSecond, ...options }) => {
      const em = session.orm.em.fork();
      const teamId = (await anyTeamOf(session, options)) ?? null;
      if (webhook !== undefined) await ownerOf(session, "webhook_endpoints", webhook);
      if (!since) throw new ApiError("validation_failed", "Say from when on with --since, e.g. 2026-01-31T12:00:00Z.");
      if (until <= since) throw new ApiError("validation_failed", "--until is not after --since.");
      const range = { since, until, eventTypes: options.event, statuses: options.status };
      const filter: ReplayFilter = { teamId, webhookId: webhook ?? null, ...range };
      const counts = await countReplayable(em, filter);
      const total = sumOf(counts, true);
      if (options.dryRun || total === 0) return wouldReplay(counts, total, options.dryRun);
      const line = progressLine();
      let [replayed, lastDueAt, hasMore] = [0, "", true];
      while (hasMore) {
        const queued = await transaction(em, (tx) => replayDeliveries(tx, filter, perSecond));
        replayed += queued.replayed;
        lastDueAt = [lastDueAt, queued.lastDueAt ?? ""].toSorted().at(-1) ?? "";
        hasMore = queued.hasMore;
        line.show(`${replayed} of about ${total} queued`);
      }
      line.clear();
      const text = `${replayed} replayed; the last is due at ${lastDueAt}`;
      return { text, data: { replayed, last_due_at: lastDueAt } };
    },
  ),
};

async function retry(session: Session, ids: readonly string[], webhook: string | undefined): Promise<Outcome> {
  const em = session.orm.em.fork();
  if ((ids.length === 0) === (webhook === undefined)) {
    const problem = webhook === undefined ? "" : " Both are named.";
    throw new ApiError("validation_failed", `Name either deliveries or, with --webhook, their endpoint.${problem}`);
  }
  let retried = 0;
  if (webhook !== undefined) {
    await ownerOf(session, "webhook_endpoints", webhook);
    retried = await commandEndpoint(em, webhook, "retryNow");
  }
  for (const id of ids) {
    const { webhookId, attempts, ...tenant } = await readDeliveryFacts(em, id);
    if (attempts.at(-1)?.status !== "RETRYING") {
      const way = "it has ended (webhook:replay repeats it), or is on its way (delivery:show says where)";
      throw new ApiError("resource_state_invalid", `${id} does not wait for its next attempt: ${way}.`);
    }
    retried += await retryWaiting(em, webhookId, [attempts.at(-1)?.id ?? id]);
    await notifyDue(em, [webhookId]);
    noteTenant(session, tenant);
  }
  return { text: `${retried} attempted now`, data: { webhook: webhook ?? null, deliveries: retried } };
}

/** @param isActive of endpoints that are on, or of those that are off */
const sumOf = (counts: readonly ReplayCount[], isActive: boolean): number =>
  counts.reduce((sum, { active, deliveries }) => sum + (active === isActive ? deliveries : 0), 0);

function wouldReplay(counts: readonly ReplayCount[], total: number, isDryRun: boolean): Outcome {
  const off = sumOf(counts, false);
  const lines = counts.map(
    ({ webhookId, status, deliveries, active }) =>
      `${webhookId}  ${status}  ${deliveries}${active ? "" : "  left alone: the endpoint is off"}`,
  );
  const summary = `${total} would be replayed${off > 0 ? `, ${off} left alone because their endpoint is off` : ""}`;
  return {
    text: [...lines, summary].join("\n"),
    data: {
      dry_run: isDryRun,
      would_replay: total,
      left_alone: off,
      endpoints: counts.map(({ webhookId, teamId, ...count }) => ({ webhook: webhookId, team: teamId, ...count })),
    },
  };
}

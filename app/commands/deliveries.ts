import { setTimeout as delay } from "node:timers/promises";
import type { Command } from "commander";
import { kysely } from "../../db/orm.ts";
import { ApiError } from "../../domain/errors.ts";
import {
  countReplayable,
  REPLAYABLE,
  type ReplayCount,
  type ReplayFilter,
  readReplay,
  requestReplay,
} from "../../domain/webhooks/bulk-replay.ts";
import { probeNow } from "../../domain/webhooks/endpoint-health.ts";
import { groupsOf, readDeliveryFacts, retryingGroups } from "../../domain/webhooks/inspection.ts";
import { isWaiting, nextProbeAt } from "../../domain/webhooks/waiting.ts";
import { deliveryWorkflowId, replayWorkflowId } from "../../workflows/ids.ts";
import { instant, listOf, pastInstant, wholeNumber } from "../options.ts";
import { progressLine } from "../output.ts";
import { inTenant, type Outcome, ownerOf, type Run, type Session, teamOf } from "../session.ts";
import { uiOf, updateWorkflow, withTemporal } from "../workflows.ts";

const PROGRESS_EVERY_MS = 500;
const DEFAULT_PER_SECOND = 100;

interface ReplayOptions {
  since?: Date;
  until?: Date;
  status: (typeof REPLAYABLE)[number][];
  team?: string;
  webhook?: string;
  perSecond: number;
  dryRun?: boolean;
  detach?: boolean;
  resume?: string;
}

/** Webhook deliveries: their attempts, the workflow that carries one, attempts at once, and replays in bulk. */
export function deliveryCommands(program: Command, run: Run): void {
  program
    .command("delivery:where")
    .description("print the workflow that carries a webhook delivery")
    .argument("<id>", "the delivery")
    .action((id: string) => run((session) => where(session, id)));

  program
    .command("delivery:show")
    .description("print a webhook delivery: its outcome, its attempts and the workflow that carries it")
    .argument("<id>", "the delivery")
    .action((id: string) => run((session) => show(session, id)));

  program
    .command("delivery:retry")
    .description("attempt the deliveries that wait for their next attempt now")
    .argument("[ids...]", "deliveries that workflows carry; each is attempted with the others of its group")
    .option("--webhook <id>", "all of one endpoint; with the next probe of one that is failing")
    .action((ids: string[], options: { webhook?: string }) => run((session) => retry(session, ids, options)));

  program
    .command("webhook:replay")
    .description("replay many webhook deliveries; the replay continues when this command is stopped")
    .option("--since <instant>", "deliveries made from then, ISO 8601", pastInstant)
    .option("--until <instant>", "deliveries made before then; now unless given", instant)
    .option("--status <statuses>", `comma-separated, of ${REPLAYABLE.join(", ")}`, listOf(REPLAYABLE), [...REPLAYABLE])
    .option("--team <id>", "of one team; all unless given")
    .option("--webhook <id>", "of one endpoint; all unless given")
    .option("--per-second <n>", "deliveries queued a second", wholeNumber(1, 5_000), DEFAULT_PER_SECOND)
    .option("--dry-run", "count only")
    .option("--detach", "do not wait for the end")
    .option("--resume <id>", "watch a replay that was asked for before")
    .action((options: ReplayOptions) => run((session) => replay(session, options)));
}

async function where(session: Session, id: string): Promise<Outcome> {
  const row = await kysely(session.orm.em.fork())
    .selectFrom("webhook_deliveries")
    .select(["webhook_id", "event_id", "group_id", "status", "attempt", "next_attempt_at"])
    .select([nextProbeAt("webhook_deliveries").as("next_probe_at"), isWaiting("webhook_deliveries").as("waits")])
    .where("id", "=", id)
    .executeTakeFirst();
  if (!row) throw new ApiError("not_found", `There is no delivery ${id}.`);
  const workflow = row.group_id === null ? null : deliveryWorkflowId(row.group_id);
  const next = row.next_probe_at ?? row.next_attempt_at;
  const nextAt = next === null ? null : new Date(next).toISOString();
  const waits =
    row.next_probe_at === null ? "waits for a workflow" : "waits for the next probe of its failing endpoint";
  const ui = workflow && uiOf(session, workflow);
  const state = `${row.status}, attempt ${row.attempt}${nextAt ? `, next at ${nextAt}` : ""}`;
  return {
    text: [workflow ?? (row.waits ? waits : "no workflow"), state, ui].filter(Boolean).join("\n"),
    data: {
      delivery: id,
      workflow,
      webhook: row.webhook_id,
      event: row.event_id,
      status: row.status,
      attempt: row.attempt,
      next_attempt_at: nextAt,
      ui,
    },
  };
}

async function show(session: Session, id: string): Promise<Outcome> {
  const found = await where(session, id);
  const delivery = await readDeliveryFacts(session.orm.em.fork(), id);
  const attempts = delivery.attempts.map(({ id: attemptId, attempt, status, at, responseStatus, error, durationMs }) =>
    [
      ...[at, `attempt ${attempt}`, attemptId, status],
      responseStatus === null ? null : `HTTP ${responseStatus}`,
      durationMs === null ? null : `${durationMs} ms`,
      error,
    ]
      .filter((part) => part !== null)
      .join("  "),
  );
  return {
    text: [
      `${delivery.eventType} ${delivery.eventId} to ${delivery.webhookId}, team ${delivery.teamId}`,
      found.text,
      ...attempts,
    ].join("\n"),
    data: {
      ...found.data,
      event_type: delivery.eventType,
      team: delivery.teamId,
      environment: delivery.environment,
      replay_of: delivery.replayOfId,
      attempts: delivery.attempts.map(({ responseStatus, durationMs, ...attempt }) => ({
        ...attempt,
        response_status: responseStatus,
        duration_ms: durationMs,
      })),
    },
  };
}

/** Attempts that are asked for at once. */
const RETRIED_AT_ONCE = 20;

async function retry(session: Session, ids: readonly string[], { webhook }: { webhook?: string }): Promise<Outcome> {
  const em = session.orm.em.fork();
  if ((ids.length === 0) === (webhook === undefined)) {
    const problem = webhook === undefined ? "" : " Both are named.";
    throw new ApiError("validation_failed", `Name either deliveries or, with --webhook, their endpoint.${problem}`);
  }
  let probed = false;
  if (webhook !== undefined) {
    const tenant = await ownerOf(session, "webhook_endpoints", webhook);
    probed = await inTenant(session, tenant, (tx) => probeNow(tx, tenant, webhook));
  }
  const groups = webhook === undefined ? await groupsOf(em, ids) : await retryingGroups(em, webhook);
  let retried = 0;
  await withTemporal(session, async (temporal) => {
    for (let i = 0; i < groups.length; i += RETRIED_AT_ONCE) {
      const answers = await Promise.all(
        groups
          .slice(i, i + RETRIED_AT_ONCE)
          .map((groupId) => updateWorkflow(temporal, deliveryWorkflowId(groupId), "retryNow")),
      );
      retried += answers.filter((answer) => answer !== undefined).length;
    }
  });
  const noun = retried === 1 ? "workflow attempts" : "workflows attempt";
  return {
    text: `${retried} ${noun} the deliveries left to it now${probed ? "; the next probe is sent within a second" : ""}`,
    data: { webhook: webhook ?? null, workflows: retried, probed },
  };
}

async function replay(session: Session, options: ReplayOptions): Promise<Outcome> {
  const em = session.orm.em.fork();
  if (options.team !== undefined) await teamOf(session, options);
  if (options.webhook !== undefined) await ownerOf(session, "webhook_endpoints", options.webhook);
  if (options.resume !== undefined) return watch(session, options.resume);
  if (!options.since)
    throw new ApiError("validation_failed", "Say from when on with --since, e.g. 2026-01-31T12:00:00Z.");
  const filter: ReplayFilter = {
    teamId: options.team ?? null,
    webhookId: options.webhook ?? null,
    statuses: options.status,
    since: options.since,
    until: options.until ?? new Date(),
  };
  if (filter.until <= filter.since) throw new ApiError("validation_failed", "--until is not after --since.");
  const counts = await countReplayable(em, filter);
  const sum = (of: ReplayCount[]) => of.reduce((total, { deliveries }) => total + deliveries, 0);
  const total = sum(counts.filter(({ active }) => active));
  const off = sum(counts.filter(({ active }) => !active));
  if (options.dryRun || total === 0) {
    const lines = counts.map(
      ({ webhookId, status, deliveries, active }) =>
        `${webhookId}  ${status}  ${deliveries}${active ? "" : "  left alone: the endpoint is off"}`,
    );
    return {
      text: [
        ...lines,
        `${total} would be replayed${off > 0 ? `, ${off} left alone because their endpoint is off` : ""}`,
      ].join("\n"),
      data: {
        dry_run: Boolean(options.dryRun),
        would_replay: total,
        left_alone: off,
        endpoints: counts.map(({ webhookId, teamId, environment, status, active, deliveries }) => ({
          webhook: webhookId,
          team: teamId,
          environment,
          status,
          active,
          deliveries,
        })),
      },
    };
  }
  const id = await requestReplay(session.orm.em, filter, { perSecond: options.perSecond, total });
  if (options.detach) {
    return {
      text: `${total} are being replayed by ${replayWorkflowId(id)}; watch with --resume ${id}`,
      data: { replay: id, workflow: replayWorkflowId(id), total },
    };
  }
  return watch(session, id);
}

async function watch({ orm }: Session, id: string): Promise<Outcome> {
  const line = progressLine();
  for (;;) {
    const progress = await readReplay(orm.em.fork(), id);
    if (!progress) throw new ApiError("not_found", `There is no replay ${id}.`);
    const { replayed, total, done } = progress;
    line.show(`${replayed} of about ${total} queued (${replayWorkflowId(id)}); stopping this command does not stop it`);
    if (done) {
      line.clear();
      return { text: `${replayed} replayed`, data: { replay: id, workflow: replayWorkflowId(id), replayed } };
    }
    await delay(PROGRESS_EVERY_MS);
  }
}

import { setTimeout as delay } from "node:timers/promises";
import type { Command } from "commander";
import { ApiError } from "../../domain/errors.ts";
import {
  countReplayable,
  DEFAULT_PER_SECOND,
  REPLAYABLE,
  type ReplayCount,
  type ReplayFilter,
  readReplay,
  requestReplay,
} from "../../domain/webhooks/bulk-replay.ts";
import type { EventName } from "../../domain/webhooks/catalogue.ts";
import { commandEndpoint, retryWaiting } from "../../domain/webhooks/commands.ts";
import { readDeliveryFacts } from "../../domain/webhooks/log.ts";
import { notifyDue } from "../../domain/webhooks/notify.ts";
import { endpointWorkflowId, replayWorkflowId } from "../../workflows/ids.ts";
import { eventNames, instant, listOf, pastInstant, wholeNumber } from "../options.ts";
import { progressLine } from "../output.ts";
import { type Outcome, ownerOf, type Run, type Session, teamOf } from "../session.ts";
import { uiOf } from "../workflows.ts";

const PROGRESS_EVERY_MS = 500;

interface ReplayOptions {
  since?: Date;
  until?: Date;
  status: (typeof REPLAYABLE)[number][];
  event: EventName[];
  team?: string;
  webhook?: string;
  perSecond: number;
  dryRun?: boolean;
  detach?: boolean;
  resume?: string;
}

/** Webhook deliveries: their attempts, the workflow that one waits in, attempts at once, and replays in bulk. */
export function deliveryCommands(program: Command, run: Run): void {
  program
    .command("delivery:where")
    .description("print the workflow that a webhook delivery waits in")
    .argument("<id>", "the delivery")
    .action((id: string) => run((session) => where(session, id)));

  program
    .command("delivery:show")
    .description("print a webhook delivery: its outcome, its attempts and the workflow that it waits in")
    .argument("<id>", "the delivery")
    .action((id: string) => run((session) => show(session, id)));

  program
    .command("delivery:retry")
    .description("attempt deliveries that wait for their next attempt now; it uses up none of their attempts")
    .argument("[ids...]", "deliveries that wait for their next attempt")
    .option("--webhook <id>", "all of one endpoint; with a probe of one that is failing")
    .action((ids: string[], options: { webhook?: string }) => run((session) => retry(session, ids, options)));

  program
    .command("webhook:replay")
    .description("replay many webhook deliveries; the replay continues when this command is stopped")
    .option("--since <instant>", "deliveries made from then, ISO 8601", pastInstant)
    .option("--until <instant>", "deliveries made before then; now unless given", instant)
    .option("--status <statuses>", `comma-separated, of ${REPLAYABLE.join(", ")}`, listOf(REPLAYABLE), [...REPLAYABLE])
    .option("--event <names>", "comma-separated events; all unless given", eventNames, [])
    .option("--team <id>", "of one team; all unless given")
    .option("--webhook <id>", "of one endpoint; all unless given")
    .option("--per-second <n>", "deliveries queued a second", wholeNumber(1, 5_000), DEFAULT_PER_SECOND)
    .option("--dry-run", "count only")
    .option("--detach", "do not wait for the end")
    .option("--resume <id>", "watch a replay that was asked for before")
    .action((options: ReplayOptions) => run((session) => replay(session, options)));
}

async function where(session: Session, id: string): Promise<Outcome> {
  const { webhookId, eventId, attempts } = await readDeliveryFacts(session.orm.em.fork(), id);
  const attempt = attempts.find((one) => one.id === id);
  if (!attempt) throw new ApiError("not_found", `There is no delivery ${id}.`);
  const { status, nextAttemptAt } = attempt;
  const workflow = status === "PENDING" || status === "RETRYING" ? endpointWorkflowId(webhookId) : null;
  const ui = workflow && uiOf(session, workflow);
  const state = `${status}, attempt ${attempt.attempt}${nextAttemptAt ? `, next at ${nextAttemptAt}` : ""}`;
  return {
    text: [workflow ?? "no workflow: it has ended", state, ui].filter(Boolean).join("\n"),
    data: {
      delivery: id,
      workflow,
      webhook: webhookId,
      event: eventId,
      status,
      attempt: attempt.attempt,
      next_attempt_at: nextAttemptAt,
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
      attempts: delivery.attempts.map(({ responseStatus, durationMs, nextAttemptAt: _, ...attempt }) => ({
        ...attempt,
        response_status: responseStatus,
        duration_ms: durationMs,
      })),
    },
  };
}

async function retry(session: Session, ids: readonly string[], { webhook }: { webhook?: string }): Promise<Outcome> {
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
    const { webhookId, attempts } = await readDeliveryFacts(em, id);
    if (attempts.at(-1)?.status !== "RETRYING") {
      const way = "it has ended (webhook:replay repeats it), or is on its way (delivery:where says where)";
      throw new ApiError("resource_state_invalid", `${id} does not wait for its next attempt: ${way}.`);
    }
    retried += await retryWaiting(em, webhookId, [attempts.at(-1)?.id ?? id]);
    await notifyDue(em, [webhookId]);
  }
  return { text: `${retried} attempted now`, data: { webhook: webhook ?? null, deliveries: retried } };
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
    eventTypes: options.event,
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
  const id = await requestReplay(em, filter, { perSecond: options.perSecond, total });
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

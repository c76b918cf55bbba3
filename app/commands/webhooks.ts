import type { Command } from "commander";
import { CURRENT_API_VERSION } from "../../domain/api-version.ts";
import { ApiError, notFound } from "../../domain/errors.ts";
import type { EventName } from "../../domain/webhooks/catalogue.ts";
import { commandEndpoint } from "../../domain/webhooks/commands.ts";
import { probeNow } from "../../domain/webhooks/endpoint-health.ts";
import {
  ENDPOINT_STATES,
  type EndpointState,
  type ListedEndpoint,
  listEndpoints,
} from "../../domain/webhooks/endpoint-list.ts";
import { createEndpoint } from "../../domain/webhooks/endpoints.ts";
import { notifyDue } from "../../domain/webhooks/notify.ts";
import { MOST_COUNTED, type Rest, readRest } from "../../domain/webhooks/queue.ts";
import { DEFAULT_OVERLAP_HOURS, MAX_OVERLAP_HOURS, rotateSecret } from "../../domain/webhooks/rotate.ts";
import { endpointWorkflowId } from "../../workflows/ids.ts";
import { absoluteUrl, eventNames, listOf, recordName, wholeNumber, withListLimit, withTenant } from "../options.ts";
import {
  inTenant,
  type Outcome,
  ownerOf,
  type Run,
  type Session,
  type TenantOptions,
  teamOf,
  tenantOf,
} from "../session.ts";

interface ListOptions {
  state?: EndpointState[];
  team?: string;
  limit: number;
}

interface ConnectOptions extends TenantOptions {
  url: string;
  event: EventName[];
  name?: string;
}

/** Webhook endpoints: those the app makes for itself, the secrets of all, and what waits for one that fails. */
export function webhookCommands(program: Command, run: Run): void {
  withTenant(program.command("webhook:connect"))
    .description("make an endpoint of the app's own, which the API does not list; its secret is shown this once")
    .requiredOption("--url <url>", "where deliveries go", absoluteUrl)
    .requiredOption("--event <names>", "comma-separated events, or * for all there are now", eventNames)
    .option("--name <name>", "its name; the URL's host unless given", recordName)
    .action(({ url, event: events, name, ...options }: ConnectOptions) =>
      run(async (session) => {
        const tenant = await tenantOf(session, options);
        await session.checkWebhookUrl(url);
        const registration = { ...tenant, origin: "APP", apiVersion: CURRENT_API_VERSION } as const;
        const { endpoint, secret } = await inTenant(session, tenant, (em) =>
          createEndpoint(em, session.vault, registration, { url, events, name, description: null, headers: {} }),
        );
        return {
          text: `${secret}\nWebhook endpoint ${endpoint.id}. Keep the secret: it is not shown again.`,
          data: { webhook: { id: endpoint.id, url, events: endpoint.events, secret } },
        };
      }),
    );

  withListLimit(program.command("webhook:list"))
    .description("list endpoints: those that fail first, then those that the platform switched off")
    .option("--state <states>", `comma-separated, of ${ENDPOINT_STATES.join(", ")}`, listOf(ENDPOINT_STATES))
    .option("--team <id>", "of one team; all unless given")
    .action((options: ListOptions) => run((session) => list(session, options)));

  program
    .command("webhook:show")
    .description("print an endpoint's health, its next probe and how many deliveries wait for it")
    .argument("<id>", "the webhook endpoint")
    .action((id: string) => run((session) => show(session, id)));

  program
    .command("webhook:probe")
    .description("send one of the deliveries that wait for a failing endpoint now; when it succeeds, the others follow")
    .argument("<id>", "the webhook endpoint")
    .action((id: string) => run((session) => probe(session, id)));

  program
    .command("webhook:give-up")
    .description("end the deliveries that wait for an endpoint: FAILED, to be replayed")
    .argument("<id>", "the webhook endpoint")
    .action((id: string) => run((session) => giveUp(session, id)));

  program
    .command("webhook:pause")
    .description("hold the deliveries to an endpoint; requests in flight end by themselves")
    .argument("<id>", "the webhook endpoint")
    .action((id: string) => run((session) => pause(session, id, true)));

  program
    .command("webhook:resume")
    .description("send the deliveries that were held")
    .argument("<id>", "the webhook endpoint")
    .action((id: string) => run((session) => pause(session, id, false)));

  program
    .command("webhook:rotate-secret")
    .description("give an endpoint a new secret; it is shown this once")
    .argument("<id>", "the webhook endpoint")
    .option(
      "--overlap-hours <hours>",
      "how long deliveries are signed with the old secret too; 0 for one that leaked",
      wholeNumber(0, MAX_OVERLAP_HOURS),
      DEFAULT_OVERLAP_HOURS,
    )
    .action((id: string, { overlapHours }: { overlapHours: number }) =>
      run(async (session) => {
        const tenant = await ownerOf(session, "webhook_endpoints", id);
        const { secret, previousExpiresAt } = await inTenant(session, tenant, (em) =>
          rotateSecret(em, session.vault, tenant, id, overlapHours),
        );
        const until = previousExpiresAt?.toISOString() ?? null;
        const old = until === null ? "The old one no longer signs" : `The old one signs too until ${until}`;
        return {
          text: `${secret}\nKeep it: it is not shown again. ${old}.`,
          data: { webhook: { id, secret, previous_secret_expires_at: until } },
        };
      }),
    );
}

async function list(session: Session, { state: states, team, limit }: ListOptions): Promise<Outcome> {
  const teamId = team === undefined ? undefined : await teamOf(session, { team });
  const endpoints = await listEndpoints(session.orm.em.fork(), { states, teamId, limit });
  return {
    text: endpoints.map(listedText).join("\n") || "No endpoint",
    data: {
      webhooks: endpoints.map((endpoint) => ({
        id: endpoint.id,
        team: endpoint.teamId,
        environment: endpoint.environment,
        origin: new URL(endpoint.url).origin,
        state: endpoint.state,
        disabled_reason: endpoint.reason,
        consecutive_failures: endpoint.failures,
        failing_since: endpoint.failingSince,
      })),
    },
  };
}

/** Without the path and the query of the URL, which may hold a token of the receiver's. */
function listedText({ id, teamId, url, state, reason, failures, failingSince }: ListedEndpoint): string {
  const since = failingSince === null ? "" : ` since ${failingSince}`;
  const why = reason === null ? "" : ` (${reason})`;
  return `${id}  ${teamId}  ${new URL(url).origin}  ${state}${why}${since}, ${failures} failures in a row`;
}

/** @throws {ApiError} `not_found` */
async function restOf(session: Session, id: string): Promise<Rest> {
  await ownerOf(session, "webhook_endpoints", id);
  const rest = await readRest(session.orm.em.fork(), id);
  if (!rest) throw notFound();
  return rest;
}

async function show(session: Session, id: string): Promise<Outcome> {
  const { active, health, failures, failingSince, paused, waiting, nextAt } = await restOf(session, id);
  const workflow = waiting > 0 ? endpointWorkflowId(id) : null;
  const state = [active ? undefined : "off", paused ? "PAUSED" : undefined].filter(Boolean).map((word) => `, ${word}`);
  const many = waiting === MOST_COUNTED ? `${waiting} or more` : waiting;
  return {
    text: [
      `${health}${failingSince === null ? "" : ` since ${failingSince}`}${state.join("")}; ${failures} failures in a row`,
      `${many} deliveries wait${nextAt === null ? "" : `, the next attempt is at ${nextAt}`}${workflow ? `: ${workflow}` : ""}`,
    ].join("\n"),
    data: {
      webhook: id,
      active,
      health,
      paused,
      consecutive_failures: failures,
      failing_since: failingSince,
      next_attempt_at: nextAt,
      waiting,
      workflow,
    },
  };
}

async function probe(session: Session, id: string): Promise<Outcome> {
  const tenant = await ownerOf(session, "webhook_endpoints", id);
  const { active } = await restOf(session, id);
  if (!active) throw new ApiError("resource_state_invalid", `${id} is off: nothing is sent to it.`);
  const isFailing = await inTenant(session, tenant, (em) => probeNow(em, tenant, id));
  await notifyDue(session.orm.em.fork(), [id]);
  return {
    text: isFailing
      ? "The next delivery is sent within a second."
      : "The endpoint is not failing: its deliveries are on their way.",
    data: { webhook: id, probed: isFailing },
  };
}

async function pause(session: Session, id: string, isPaused: boolean): Promise<Outcome> {
  await ownerOf(session, "webhook_endpoints", id);
  await commandEndpoint(session.orm.em.fork(), id, isPaused ? "pause" : "resume");
  return {
    text: isPaused ? "Paused; webhook:resume sends what waits" : "Resumed",
    data: { webhook: id, paused: isPaused },
  };
}

async function giveUp(session: Session, id: string): Promise<Outcome> {
  await ownerOf(session, "webhook_endpoints", id);
  const ended = await commandEndpoint(session.orm.em.fork(), id, "cancelWaiting");
  return { text: `${ended} given up; webhook:replay replays them`, data: { webhook: id, given_up: ended } };
}

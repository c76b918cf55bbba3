import { DELIVERY_FAILURES } from "../../db/entities/webhook.ts";
import { CURRENT_API_VERSION } from "../../domain/api-version.ts";
import { ApiError, notFound } from "../../domain/errors.ts";
import { commandEndpoint } from "../../domain/webhooks/commands.ts";
import { notifyDue } from "../../domain/webhooks/emit.ts";
import { probeNow } from "../../domain/webhooks/endpoint-health.ts";
import { ENDPOINT_STATES, listEndpoints } from "../../domain/webhooks/endpoint-list.ts";
import { createEndpoint, endpointRow, guardedUrl } from "../../domain/webhooks/endpoints.ts";
import { listDeliveries } from "../../domain/webhooks/log.ts";
import { MOST_COUNTED, type Rest, readRest } from "../../domain/webhooks/queue.ts";
import { DEFAULT_OVERLAP_HOURS, MAX_OVERLAP_HOURS, rotateSecret } from "../../domain/webhooks/rotate.ts";
import { openUrlGuard } from "../../lib/url-guard.ts";
import { endpointWorkflowId } from "../../temporal/ids.ts";
import { argument, type Commands, command, LIMIT, OF_ANY_TEAM, OF_TENANT, option, required } from "../command.ts";
import { absoluteUrl, eventNames, listOf, recordName, wholeNumber } from "../options.ts";
import { table, toJson } from "../output.ts";
import { anyTeamOf, inOwnersTenant, inTenant, ownerOf, type Session, tenantOf } from "../session.ts";

const ENDPOINT = { id: argument("the webhook endpoint") };

/** Webhook endpoints: those the app makes for itself, the secrets of all, and what waits for one that fails. */
export const commands: Commands = {
  "webhook:connect": command(
    "make an endpoint of the app's own, which the API does not list; its secret is shown this once",
    {
      ...OF_TENANT,
      url: required("<url>", "where deliveries go", absoluteUrl),
      event: required("<names>", "comma-separated events, or * for all there are now", eventNames),
      name: option("<name>", "its name; the URL's host unless given", recordName),
    },
    async (session, { url, event: events, name, ...options }) => {
      const tenant = await tenantOf(session, options);
      await guardedUrl(openUrlGuard(session.env))(url);
      const registration = { ...tenant, origin: "APP", apiVersion: CURRENT_API_VERSION } as const;
      const { id, secret } = await inTenant(session, tenant, (em) =>
        createEndpoint(em, session.vault, registration, { url, events, name, description: null, headers: {} }),
      );
      return {
        text: `${secret}\nWebhook endpoint ${id}. Keep the secret: it is not shown again.`,
        data: { webhook: { id, url, events, secret } },
      };
    },
  ),

  "webhook:list": command(
    "list endpoints: those that fail first, then those that the platform switched off",
    {
      ...LIMIT,
      state: option("<states>", ...listOf(ENDPOINT_STATES)),
      ...OF_ANY_TEAM,
    },
    async (session, { state: states, limit, ...options }) => {
      const teamId = await anyTeamOf(session, options);
      const endpoints = await listEndpoints(session.orm.em.fork(), { states, teamId, limit });
      return {
        text: table(endpoints, "No endpoint", {
          ENDPOINT: ({ id }) => id,
          TEAM: ({ teamId }) => teamId,
          URL: ({ url }) => originOf(url),
          STATE: ({ state, reason }) => (reason === null ? state : `${state} (${reason})`),
          SINCE: ({ failingSince }) => failingSince,
          FAILURES: ({ failures }) => failures,
        }),
        data: {
          webhooks: endpoints.map(({ teamId: team, url, reason, failures, ...endpoint }) =>
            toJson({
              ...{ ...endpoint, team, origin: originOf(url) },
              ...{ disabledReason: reason, consecutiveFailures: failures },
            }),
          ),
        },
      };
    },
  ),

  "webhook:show": command(
    "print an endpoint's URL without its path, its health, its last failure, its next probe and how many deliveries wait for it",
    ENDPOINT,
    async (session, { id }) => {
      const em = session.orm.em.fork();
      const { active, health, failures, failingSince, paused, waiting, nextAt } = await restOf(session, id);
      const owner = await ownerOf(session, "webhook_endpoints", id);
      const { url } = await endpointRow(em, owner, id).executeTakeFirstOrThrow();
      const [last] = await listDeliveries(em, { webhookId: id, statuses: DELIVERY_FAILURES, limit: 1 });
      const workflow = waiting > 0 ? endpointWorkflowId(id) : null;
      const since = failingSince === null ? "" : ` since ${failingSince}`;
      const state = `${health}${since}${active ? "" : ", off"}${paused ? ", PAUSED" : ""}`;
      const many = waiting === MOST_COUNTED ? `${waiting} or more` : waiting;
      const next = nextAt === null ? "" : `, the next attempt is at ${nextAt}`;
      return {
        text: [
          originOf(url),
          `${state}; ${failures} failures in a row`,
          ...(last ? [`${last.id} ${last.status} at ${last.at}: ${last.error ?? `HTTP ${last.responseStatus}`}`] : []),
          `${many} deliveries wait${next}${workflow ? `: ${workflow}` : ""}`,
        ].join("\n"),
        data: {
          webhook: id,
          origin: originOf(url),
          active,
          health,
          paused,
          consecutive_failures: failures,
          failing_since: failingSince,
          last_failure: last ? toJson(last) : null,
          next_attempt_at: nextAt,
          waiting,
          workflow,
        },
      };
    },
  ),

  "webhook:probe": command(
    "send one of the deliveries that wait for a failing endpoint now; when it succeeds, the others follow",
    ENDPOINT,
    async (session, { id }) => {
      const { active } = await restOf(session, id);
      if (!active) throw new ApiError("resource_state_invalid", `${id} is off: nothing is sent to it.`);
      const isFailing = await inOwnersTenant(session, "webhook_endpoints", id, (em, tenant) =>
        probeNow(em, tenant, id),
      );
      await notifyDue(session.orm.em.fork(), [id]);
      return {
        text: isFailing
          ? "The next delivery is sent within a second."
          : "The endpoint is not failing: its deliveries are on their way.",
        data: { webhook: id, probed: isFailing },
      };
    },
  ),

  "webhook:give-up": command(
    "end the deliveries that wait for an endpoint: FAILED, to be replayed",
    ENDPOINT,
    async (session, { id }) => {
      const ended = await carryOut(session, id, "cancelWaiting");
      return { text: `${ended} given up; webhook:replay replays them`, data: { webhook: id, given_up: ended } };
    },
  ),

  "webhook:pause": command(
    "hold the deliveries to an endpoint; requests in flight end by themselves",
    ENDPOINT,
    async (session, { id }) => {
      await carryOut(session, id, "pause");
      return { text: "Paused; webhook:resume sends what waits", data: { webhook: id, paused: true } };
    },
  ),

  "webhook:resume": command("send the deliveries that were held", ENDPOINT, async (session, { id }) => {
    await carryOut(session, id, "resume");
    return { text: "Resumed", data: { webhook: id, paused: false } };
  }),

  "webhook:rotate-secret": command(
    "give an endpoint a new secret; it is shown this once",
    {
      ...ENDPOINT,
      overlapHours: option(
        "<hours>",
        "how long deliveries are signed with the old secret too; 0 for one that leaked",
        wholeNumber(0, MAX_OVERLAP_HOURS),
        DEFAULT_OVERLAP_HOURS,
      ),
    },
    async (session, { id, overlapHours }) => {
      const { secret, previousExpiresAt } = await inOwnersTenant(session, "webhook_endpoints", id, (em, tenant) =>
        rotateSecret(em, session.vault, tenant, id, overlapHours),
      );
      const until = previousExpiresAt?.toISOString() ?? null;
      const old = until === null ? "The old one no longer signs" : `The old one signs too until ${until}`;
      return {
        text: `${secret}\nKeep it: it is not shown again. ${old}.`,
        data: { webhook: { id, secret, previous_secret_expires_at: until } },
      };
    },
  ),
};

/** Without the path and the query of the URL, which may hold a token of the receiver's. */
const originOf = (url: string): string => new URL(url).origin;

/** @throws {ApiError} `not_found` */
async function restOf(session: Session, id: string): Promise<Rest> {
  await ownerOf(session, "webhook_endpoints", id);
  const rest = await readRest(session.orm.em.fork(), id);
  if (!rest) throw notFound();
  return rest;
}

/** @returns how many deliveries it changed @throws {ApiError} `not_found` */
async function carryOut(session: Session, id: string, name: Parameters<typeof commandEndpoint>[2]): Promise<number> {
  await ownerOf(session, "webhook_endpoints", id);
  return commandEndpoint(session.orm.em.fork(), id, name);
}

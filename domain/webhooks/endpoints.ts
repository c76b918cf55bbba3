import { LockMode, raw } from "@mikro-orm/postgresql";
import { type RawBuilder, sql } from "kysely";
import { type EndpointOrigin, WebhookEndpoint } from "../../db/entities/webhook.ts";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../db/orm.ts";
import { AddressRefused, NameNotResolved } from "../../lib/address-guard.ts";
import { effectivePort, type UrlGuard } from "../../lib/url-guard.ts";
import { type Access, requireScope } from "../access/access.ts";
import { ApiError, notFound } from "../errors.ts";
import { newId } from "../ids.ts";
import { changesOf, isDirty, type Patch } from "../patch.ts";
import type { Vault } from "../secrets/crypto.ts";
import { endpointLimit, readPlanLimits } from "../teams/plans.ts";
import { holdPlace, type LimitedRecords } from "../teams/record-limit.ts";
import type { EventName } from "./catalogue.ts";
import { notifyDue } from "./emit.ts";
import { clearFailures, healthOf, probeNow } from "./endpoint-health.ts";
import type { CustomHeaders } from "./headers.ts";
import { deleteDeliveries } from "./retention.ts";
import { newSecret, openHeaders, sealHeaders, sealSecret } from "./secrets.ts";
import { CONTACT_EVENTS, CONTACT_SCOPES, carriesContactData } from "./subscription.ts";

const registered = sql<boolean>`origin = ${"API" satisfies EndpointOrigin}`;
/** Those the app makes for itself are not counted. */
const OWN_ENDPOINTS: LimitedRecords = { table: "webhook_endpoints", name: "webhook endpoints", condition: registered };
/** Deliveries that are deleted together with their endpoint; retention deletes the others. */
const MAX_DELETED_AT_ONCE = 10_000;

/** Lets a URL pass to which deliveries may be sent. @throws {ApiError} `validation_failed` naming `url` */
export type CheckUrl = (url: string) => Promise<void>;

/** The check by the address guard: of the text, then of every address its host has. */
export const guardedUrl =
  (guard: UrlGuard): CheckUrl =>
  async (url) => {
    try {
      const parsed = guard.checkUrl(url);
      await guard.resolve(parsed.hostname, effectivePort(parsed));
    } catch (error) {
      if (!(error instanceof AddressRefused || error instanceof NameNotResolved)) throw error;
      throw new ApiError("validation_failed", error.message, { param: "url" });
    }
  };

export interface EndpointFields {
  url: string;
  events: EventName[];
  /** The URL's host unless given. */
  name?: string | undefined;
  description: string | null;
  headers: CustomHeaders;
}

export interface EndpointPatch extends Required<EndpointFields> {
  name: string;
  active: boolean;
}

interface Registration extends Tenant {
  origin: EndpointOrigin;
  apiVersion: string;
}

/** Endpoints with their health, as the API shows them: no secret and no header's value is read. */
export const endpointRows = (em: EntityManager) =>
  kysely(em)
    .selectFrom("webhook_endpoints")
    .innerJoin("webhook_health", "webhook_health.webhook_id", "webhook_endpoints.id")
    .select([
      "webhook_endpoints.id",
      "webhook_endpoints.name",
      "webhook_endpoints.description",
      "webhook_endpoints.url",
      "webhook_endpoints.events",
      "webhook_endpoints.active",
      "webhook_endpoints.api_version",
      "webhook_endpoints.header_names",
      "webhook_endpoints.disabled_at",
      "webhook_endpoints.disabled_reason",
      "webhook_endpoints.created_at",
      "webhook_endpoints.updated_at",
      "webhook_health.consecutive_failures",
      "webhook_health.last_success_at",
      "webhook_health.last_failure_at",
      healthOf("webhook_health").as("health"),
      // Only a failing endpoint has one.
      sql<string | null>`case when webhook_endpoints.active then webhook_health.probe_at end`.as("next_probe_at"),
    ]);

export const endpointRow = (em: EntityManager, tenant: Tenant, webhookId: string) =>
  endpointRows(em).where("webhook_endpoints.id", "=", webhookId).where(ofTenant(tenant, "webhook_endpoints"));

/**
 * Whether a key may register an endpoint. Not to be called in a transaction.
 * @throws {ApiError} `insufficient_scope` for contact data; any error of `checkUrl`
 */
export async function checkRegistration(
  access: Access,
  { url, events }: Pick<EndpointFields, "url" | "events">,
  checkUrl: CheckUrl,
): Promise<void> {
  if (carriesContactData(events)) requireScope(access, ...CONTACT_SCOPES);
  await checkUrl(url);
}

export async function countEndpoints(em: EntityManager, tenant: Tenant): Promise<number> {
  const { count } = await kysely(em)
    .selectFrom("webhook_endpoints")
    .select(sql<number>`count(*)::int`.as("count"))
    .where(ofTenant(tenant))
    .where(registered)
    .executeTakeFirstOrThrow();
  return count;
}

/** Registers an endpoint whose URL was checked. @throws {ApiError} `resource_limit_reached` */
export async function createEndpoint(
  em: EntityManager,
  vault: Vault,
  { origin, apiVersion, ...tenant }: Registration,
  fields: EndpointFields,
): Promise<{ id: string; secret: string }> {
  if (origin === "API") {
    await holdPlace(em, tenant, OWN_ENDPOINTS, endpointLimit(await readPlanLimits(em, tenant.teamId)));
  }
  const id = newId("webhook");
  const secret = newSecret();
  const db = kysely(em);
  await db
    .insertInto("webhook_endpoints")
    .values({
      id,
      team_id: tenant.teamId,
      environment: tenant.environment,
      origin,
      name: fields.name ?? new URL(fields.url).host,
      description: fields.description,
      url: fields.url,
      events: fields.events,
      encrypted_secret: sealSecret(vault, id, secret),
      encrypted_headers: sealHeaders(vault, id, fields.headers),
      header_names: Object.keys(fields.headers),
      api_version: apiVersion,
    })
    .execute();
  await db.insertInto("webhook_health").values({ webhook_id: id }).execute();
  return { id, secret };
}

type Stored = Pick<WebhookEndpoint, "id" | "url" | "events">;

const isRepointed = (stored: Stored, { url }: Patch<EndpointPatch>): boolean => url !== undefined && url !== stored.url;

/**
 * Whether a key may make these changes. Not to be called in a transaction; `updateEndpoint` checks all but the URL again.
 * @throws {ApiError} `not_found`; `insufficient_scope` for contact data; for another URL any error of `checkUrl`
 */
export async function checkPatch(
  em: EntityManager,
  access: Access,
  webhookId: string,
  patch: Patch<EndpointPatch>,
  checkUrl: CheckUrl,
): Promise<void> {
  const stored = await em.findOne(WebhookEndpoint, { id: webhookId });
  if (!stored) throw notFound();
  await requireContactScope(em, access, stored, patch);
  if (patch.url !== undefined && isRepointed(stored, patch)) await checkUrl(patch.url);
}

/** A key that may not read contact data cannot direct it anywhere new. Deliveries that wait would go to a new URL too. */
async function requireContactScope(
  em: EntityManager,
  access: Access,
  stored: Stored,
  patch: Patch<EndpointPatch>,
  sentSince?: RawBuilder<string>,
): Promise<void> {
  if (CONTACT_SCOPES.some((scope) => access.scopes.includes(scope))) return;
  const added = (patch.events ?? []).filter((name) => !stored.events.includes(name));
  const concerned =
    carriesContactData(added) ||
    (isRepointed(stored, patch) &&
      (carriesContactData(stored.events) || (await hasSentContactData(em, access.tenant, stored.id, sentSince))));
  if (concerned) requireScope(access, ...CONTACT_SCOPES);
}

async function hasSentContactData(
  em: EntityManager,
  tenant: Tenant,
  webhookId: string,
  since = sql<string>`'-infinity'::timestamptz`,
): Promise<boolean> {
  const found = await kysely(em)
    .selectFrom("webhook_deliveries")
    .select("id")
    .where(ofTenant(tenant))
    .where("webhook_id", "=", webhookId)
    .where("event_type", "in", [...CONTACT_EVENTS])
    .where("created_at", ">", since)
    .limit(1)
    .executeTakeFirst();
  return found !== undefined;
}

/** Earlier than any `checkPatch` of the same request, which searched the log before that: new events wait for the endpoint's lock. */
const SINCE_CHECK = sql<string>`now() - interval '10 minutes'`;

/**
 * Changes an endpoint. A re-activation starts the 72 hours of the switch-off again. Stopping one that is switched off already makes it
 * a stop by hand. @throws {ApiError} `not_found`; `insufficient_scope` as in `checkPatch`
 */
export async function updateEndpoint(
  em: EntityManager,
  vault: Vault,
  access: Access,
  webhookId: string,
  { headers, active, ...fields }: Patch<EndpointPatch>,
): Promise<{ isChanged: boolean; switched?: "on" | "off" }> {
  // The edit may be the repair. Before the endpoint is locked: a settlement locks the two in this order.
  if (fields.url !== undefined || headers !== undefined || active === true) {
    if (await probeNow(em, access.tenant, webhookId)) await notifyDue(em, [webhookId]);
  }
  const endpoint = await em.findOne(
    WebhookEndpoint,
    { id: webhookId },
    { lockMode: LockMode.PESSIMISTIC_WRITE, refresh: true },
  );
  if (!endpoint) throw notFound();
  await requireContactScope(em, access, endpoint, fields, SINCE_CHECK);
  em.assign(endpoint, changesOf(fields));
  if (headers !== undefined) replaceHeaders(vault, endpoint, headers);
  const wasActive = endpoint.active;
  if (active === true && !wasActive) await activate(em, endpoint);
  if (active === false) deactivate(endpoint);
  const isChanged = isDirty(em, endpoint);
  await em.flush();
  return { isChanged, ...(endpoint.active !== wasActive && { switched: endpoint.active ? "on" : "off" }) };
}

function replaceHeaders(vault: Vault, endpoint: WebhookEndpoint, headers: CustomHeaders): void {
  const stored = openHeaders(vault, endpoint.id, endpoint.encryptedHeaders ?? null);
  // The same headers would be sealed into another text, and move `updated_at`.
  if (JSON.stringify(stored) === JSON.stringify(headers)) return;
  endpoint.encryptedHeaders = sealHeaders(vault, endpoint.id, headers);
  endpoint.headerNames = Object.keys(headers);
}

async function activate(em: EntityManager, endpoint: WebhookEndpoint): Promise<void> {
  if (endpoint.disabledReason === "delivery_failures") await clearFailures(em, endpoint.id);
  endpoint.active = true;
  endpoint.disabledAt = null;
  endpoint.disabledReason = null;
  endpoint.enabledAt = raw("now()");
  endpoint.noticeDueAt = null;
  // Deliveries that waited for it can be sent now.
  await notifyDue(em, [endpoint.id]);
}

function deactivate(endpoint: WebhookEndpoint): void {
  if (endpoint.active) endpoint.disabledAt = raw("now()");
  endpoint.active = false;
  endpoint.disabledReason = "manual";
}

/**
 * Deletes an endpoint with its log. What a run has claimed may still be sent to it for two seconds.
 * @throws {ApiError} `not_found`
 */
export async function deleteEndpoint(em: EntityManager, webhookId: string): Promise<void> {
  const endpoint = await em.findOne(WebhookEndpoint, { id: webhookId }, { lockMode: LockMode.PESSIMISTIC_WRITE });
  if (!endpoint) throw notFound();
  await em.remove(endpoint).flush();
  const tenant: Tenant = { teamId: endpoint.teamId, environment: endpoint.environment };
  const db = kysely(em);
  await deleteDeliveries(em, tenant, webhookId, MAX_DELETED_AT_ONCE);
  // Even when no row is left: an attempt that is under way may write another one.
  await db.insertInto("deleted_webhooks").values({ webhook_id: webhookId }).execute();
}

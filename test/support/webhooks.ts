import { type Insertable, sql } from "kysely";
import { type Database, kysely } from "../../db/orm.ts";
import { transaction } from "../../db/transaction.ts";
import { CURRENT_API_VERSION } from "../../domain/api-version.ts";
import { newId } from "../../domain/ids.ts";
import { EVENT_NAMES, type EventName } from "../../domain/webhooks/catalogue.ts";
import { emit, type Rows } from "../../domain/webhooks/emit.ts";
import { createEndpoint, type EndpointFields } from "../../domain/webhooks/endpoints.ts";
import { newSecret, sealHeaders, sealSecret } from "../../domain/webhooks/secrets.ts";
import type { Json } from "./api.ts";
import { eventually } from "./eventually.ts";
import { makeTeam, type TestTeam, tenantOf } from "./factories.ts";

export interface TestEndpoint {
  id: string;
  secret: string;
}

interface EndpointOptions {
  url: string;
  events?: readonly EventName[];
  headers?: Record<string, string>;
  /** Columns that differ. */
  set?: Record<string, unknown>;
}

/** An endpoint past the API, which would look its name up. */
export async function makeEndpoint(
  team: Pick<TestTeam, "em" | "vault"> & { team: { id: string } },
  { url, events = EVENT_NAMES, headers = {}, set = {} }: EndpointOptions,
): Promise<TestEndpoint> {
  const id = newId("webhook");
  const secret = newSecret();
  const db = kysely(team.em);
  await db
    .insertInto("webhook_endpoints")
    .values({
      id,
      team_id: team.team.id,
      environment: "LIVE",
      origin: "API",
      name: "Test",
      url,
      events: [...events],
      encrypted_secret: sealSecret(team.vault, id, secret),
      encrypted_headers: sealHeaders(team.vault, id, headers),
      header_names: Object.keys(headers),
      api_version: CURRENT_API_VERSION,
      ...set,
    })
    .execute();
  await db.insertInto("webhook_health").values({ webhook_id: id }).execute();
  return { id, secret };
}

/** Records of any shape, as an event's statement would select them. */
export const recordsOf = (objects: object[]): Rows<never> => ({
  record: sql<never>`value`,
  from: sql`json_array_elements(${JSON.stringify(objects)}::json)`,
});

/** Makes changes that emit one event each. */
export async function emitSome(
  team: Pick<TestTeam, "team" | "em">,
  count: number,
  name: EventName = "newsletter.started",
  from = 0,
) {
  const objects = Array.from({ length: count }, (_, n) => ({
    object: "newsletter",
    id: `nl_${from + n}`,
    n: from + n,
  }));
  await transaction(team.em, async (tx) => {
    for (const object of objects) await emit(tx, tenantOf(team), name, recordsOf([object]));
  });
}

/** The log of an endpoint, oldest first. */
export function logOf(team: Pick<TestTeam, "em">, webhookId: string) {
  return kysely(team.em)
    .selectFrom("webhook_deliveries")
    .selectAll()
    .where("webhook_id", "=", webhookId)
    .orderBy("created_at")
    .orderBy("id")
    .execute();
}

/** Waits until nothing of an endpoint is PENDING or RETRYING. */
export async function untilSettled(team: Pick<TestTeam, "em">, webhookId: string) {
  return eventually(
    async () => {
      const log = await logOf(team, webhookId);
      const settled = log.length > 0 && log.every(({ status }) => status !== "PENDING" && status !== "RETRYING");
      if (!settled) throw new Error(JSON.stringify(log.map(({ id, status }) => [id, status])));
      return log;
    },
    { what: `no delivery of ${webhookId} under way` },
  );
}

export { makeTeam };

/** No test makes this event, so an endpoint that subscribes to it alone is never called. */
export const QUIET_EVENT = "campaign.started" satisfies EventName;
/** The same, of contact data. */
export const QUIET_CONTACT_EVENT = "contact.deleted" satisfies EventName;

/** A public address, so that no test waits for the DNS. */
export const PUBLIC_URL = "https://1.1.1.1/hooks";

/** The body that registers an endpoint that is never called. */
export const webhookBody = (fields: Json = {}): Json => ({ url: PUBLIC_URL, events: [QUIET_EVENT], ...fields });

/** An endpoint the app made for itself. */
export async function insertAppEndpoint(team: TestTeam, fields: Partial<EndpointFields> = {}): Promise<string> {
  const registration = {
    teamId: team.team.id,
    environment: "LIVE",
    origin: "APP",
    apiVersion: "2026-08-15",
  } as const;
  const { id } = await transaction(team.em, (em) =>
    createEndpoint(em, team.vault, registration, {
      url: PUBLIC_URL,
      events: [QUIET_EVENT],
      description: null,
      headers: {},
      ...fields,
    }),
  );
  return id;
}

type DeliveryFields = Partial<Insertable<Database["webhook_deliveries"]>>;

/** A delivery of an event that is kept; SUCCEEDED by default, so that no relay takes it up. */
export async function insertDelivery(team: TestTeam, webhookId: string, fields: DeliveryFields = {}) {
  const db = kysely(team.em.fork());
  const tenant = { team_id: team.team.id, environment: "LIVE" } as const;
  const id = newId("delivery");
  const event = {
    id: newId("event"),
    type: QUIET_EVENT,
    object: "{}",
    created_at: new Date(),
    kept_until: new Date(Date.now() + 31 * 86_400_000),
  };
  await db
    .insertInto("webhook_events")
    .values({ ...event, ...tenant })
    .execute();
  return db
    .insertInto("webhook_deliveries")
    .values({
      id,
      ...tenant,
      webhook_id: webhookId,
      event_id: event.id,
      event_type: event.type,
      status: "SUCCEEDED",
      response_status: 200,
      response_body: "ok",
      duration_ms: 12,
      ...fields,
    })
    .returningAll()
    .executeTakeFirstOrThrow();
}

/** Many deliveries of one event that have failed for good. */
export async function insertFailed(team: TestTeam, webhookId: string, count: number): Promise<void> {
  const { event_id } = await insertDelivery(team, webhookId);
  await sql`
    insert into webhook_deliveries (id, team_id, environment, webhook_id, event_id, event_type, status)
    select 'dlv_' || gen_random_uuid(), team_id, environment, webhook_id, event_id, event_type, 'FAILED'
    from webhook_deliveries cross join generate_series(1, ${count}) where event_id = ${event_id}`.execute(
    kysely(team.em),
  );
}

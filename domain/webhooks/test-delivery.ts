import { sql } from "kysely";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../db/orm.ts";
import { ApiError } from "../errors.ts";
import { newId } from "../ids.ts";
import { MAX_ENDPOINTS } from "../teams/plans.ts";
import { type EventName, isEventName } from "./catalogue.ts";
import { notifyDue } from "./emit.ts";
import { TEST_DUE } from "./queue.ts";
import { holdEndpoint, refuseInactive } from "./replay-delivery.ts";
import { EVENT_KEPT } from "./retention.ts";

/** Per team and environment: one for each endpoint that it may have. */
export const TESTS_PER_MINUTE = MAX_ENDPOINTS;

/**
 * Queues the example of an event, the first that the endpoint is subscribed to unless given, as a delivery that waits for no other.
 * @param exampleOf makes the record
 * @throws {ApiError} `not_found`, `resource_state_invalid`, `validation_failed`, `rate_limit_exceeded`
 */
export async function queueTest(
  em: EntityManager,
  tenant: Tenant,
  webhookId: string,
  exampleOf: (type: EventName) => object,
  type?: EventName,
) {
  const endpoint = await holdEndpoint(em, tenant, webhookId);
  refuseInactive(endpoint);
  const subscribed = endpoint.events.filter(isEventName);
  const [sent] = type === undefined ? subscribed : subscribed.filter((name) => name === type);
  if (sent === undefined) {
    throw new ApiError("validation_failed", "type must be an event that the endpoint is subscribed to.", {
      param: "type",
    });
  }
  await refuseTooManyTests(em, tenant);
  return insertTest(em, tenant, webhookId, sent, exampleOf(sent));
}

/** The lock, which ends with the transaction, lets racing requests count one after the other. */
async function refuseTooManyTests(em: EntityManager, tenant: Tenant): Promise<void> {
  const db = kysely(em);
  const lock = `webhook_tests/${tenant.teamId}/${tenant.environment}`;
  await sql`select pg_advisory_xact_lock(hashtextextended(${lock}, 0))`.execute(db);
  const { rows } = await sql<{ count: number; waitSeconds: number | null }>`
    select count(*)::int as count,
      ceil(extract(epoch from min(created_at) + interval '1 minute' - clock_timestamp()))::int as "waitSeconds"
    from (
      select created_at from webhook_events
      where ${ofTenant(tenant)} and is_test and created_at > clock_timestamp() - interval '1 minute'
      order by created_at desc limit ${TESTS_PER_MINUTE}
    ) latest`.execute(db);
  const { count = 0, waitSeconds = null } = rows[0] ?? {};
  if (count < TESTS_PER_MINUTE) return;
  throw new ApiError("rate_limit_exceeded", `A team may send ${TESTS_PER_MINUTE} test deliveries a minute.`, {
    retryAfterSeconds: Math.max(1, waitSeconds ?? 1),
  });
}

async function insertTest(em: EntityManager, tenant: Tenant, webhookId: string, type: EventName, record: object) {
  const db = kysely(em);
  const owner = { team_id: tenant.teamId, environment: tenant.environment };
  const eventId = newId("event");
  await db
    .insertInto("webhook_events")
    .values({
      ...owner,
      id: eventId,
      type,
      object: JSON.stringify(record),
      is_test: true,
      created_at: sql<string>`clock_timestamp()`,
      kept_until: sql<string>`now() + ${EVENT_KEPT}`,
    })
    .execute();
  await notifyDue(em, [webhookId]);
  return db
    .insertInto("webhook_deliveries")
    .values({
      ...owner,
      id: newId("delivery"),
      webhook_id: webhookId,
      event_id: eventId,
      event_type: type,
      next_attempt_at: TEST_DUE,
    })
    .returning("id")
    .executeTakeFirstOrThrow();
}

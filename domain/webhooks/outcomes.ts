import { sql } from "kysely";
import type { DeliveryStatus } from "../../db/entities/webhook.ts";
import { type EntityManager, kysely } from "../../db/orm.ts";
import { type EndpointChange, type Noted, noteAttempts, switchOffDead } from "./endpoint-health.ts";

/** The statuses an attempt can give a delivery. */
export const ATTEMPT_OUTCOMES = ["SUCCEEDED", "FAILED", "RETRYING", "BLOCKED"] as const satisfies DeliveryStatus[];

export interface AttemptOutcome {
  id: string;
  status: (typeof ATTEMPT_OUTCOMES)[number];
  responseStatus: number | null;
  responseBody: string | null;
  errorMessage: string | null;
  durationMs: number;
  /** Of a test delivery, which says nothing about the endpoint's health. */
  isTest: boolean;
}

export interface EndpointOutcome extends AttemptOutcome {
  webhookId: string;
  /** It counts for the health of its endpoint; a test never does, nor a success that follows another one at once. */
  isNoted: boolean;
  /** Until the next attempt of a RETRYING one. */
  retryInMs: number | null;
  isProbe: boolean;
  /** How long the endpoint asked to wait; no probe comes earlier. */
  askedWaitMs: number;
}

/**
 * Writes outcomes of any number of endpoints, in the order in which they came, and the health that follows. A row that is not PENDING
 * stays: the next epoch has closed it. Not prepared: a plan of a nearly empty table compares each delivery with each outcome.
 * @returns the endpoints that came into another state
 */
export async function writeOutcomes(
  em: EntityManager,
  outcomes: readonly EndpointOutcome[],
): Promise<Map<string, EndpointChange>> {
  const counted = Map.groupBy(
    outcomes.filter(({ isNoted }) => isNoted),
    ({ webhookId }) => webhookId,
  );
  // It waits for the disk: an outcome that a crash of Postgres took back would be repeated without a row that says why.
  const written = sql`
      update webhook_deliveries d
      set status = o.status, response_status = o."responseStatus", response_body = o."responseBody",
        error_message = o."errorMessage", duration_ms = o."durationMs", updated_at = now(),
        next_attempt_at = case when o.status = 'RETRYING' then now() + make_interval(secs => o."retryInMs" / 1000) end
      from json_to_recordset(${JSON.stringify(outcomes)}::json) as o (id text, status text, "responseStatus" smallint,
        "responseBody" text, "errorMessage" text, "durationMs" int, "retryInMs" float8)
      where d.id = o.id and d.status = 'PENDING'`;
  if (counted.size === 0) {
    await written.execute(kysely(em));
    return new Map();
  }
  // Successes switch nothing off: without that part a statement takes Postgres a fifth less time to plan.
  const failed = outcomes.some(({ status }) => status !== "SUCCEEDED");
  const dead = failed ? sql`dead as (${switchOffDead("noted")}),` : sql``;
  const isOff = failed ? sql`"webhookId" in (select id from dead)` : sql`false`;
  const { rows } = await sql<Noted & { isOff: boolean }>`
    with noted as (${noteAttempts(counted)}), ${dead} written as (${written})
    select "webhookId", change, ${isOff} as "isOff" from noted`.execute(kysely(em));
  const changes = new Map<string, EndpointChange>();
  for (const { webhookId, change, isOff } of rows) {
    const changed = isOff ? "off" : change;
    if (changed) changes.set(webhookId, changed);
  }
  const back = [...changes].filter(([, change]) => change === "working").map(([webhookId]) => webhookId);
  // Without it they are sent at their time.
  if (back.length > 0) await makeDue(em, back).catch(() => undefined);
  return changes;
}

/** Retries of an endpoint that works again which are sent at once; further ones, and replays, are sent at their time. */
const MADE_DUE = 1_000;

async function makeDue(em: EntityManager, webhookIds: readonly string[]): Promise<void> {
  await sql`
    update webhook_deliveries set next_attempt_at = now() where id = any(array(
      select d.id from unnest(${[...webhookIds]}::text[]) as w (id) cross join lateral (
        select id from webhook_deliveries where webhook_id = w.id and next_attempt_at > now() and status = 'RETRYING'
        order by next_attempt_at limit ${sql.lit(MADE_DUE)} for update skip locked) d))`.execute(kysely(em));
}

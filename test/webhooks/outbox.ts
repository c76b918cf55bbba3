import assert from "node:assert/strict";
import { sql } from "kysely";
import type { Environment } from "../../db/entities/shared.ts";
import { kysely } from "../../db/orm.ts";
import { newId } from "../../domain/ids.ts";
import { EVENT_NAMES, EVENTS, type EventName } from "../../domain/webhooks/catalogue.ts";
import type { Json } from "../support/api.ts";
import { assertEventDocumented } from "../support/document.ts";
import type { TestTeam } from "../support/factories.ts";

type Owner = Pick<TestTeam, "em" | "team" | "vault">;

interface EndpointOptions {
  /** All there are unless given. */
  events?: readonly EventName[];
  environment?: Environment;
  /** It is inactive, and why. */
  disabled?: "delivery_failures" | "manual";
}

/** Makes an endpoint that subscribes to a team's events. Its host never resolves. */
export async function listen(
  { em, team, vault }: Owner,
  { events = EVENT_NAMES, environment = "LIVE", disabled }: EndpointOptions = {},
): Promise<string> {
  const id = newId("webhook");
  await kysely(em)
    .insertInto("webhook_endpoints")
    .values({
      id,
      team_id: team.id,
      environment,
      origin: "API",
      name: "Receiver",
      url: "https://receiver.invalid/",
      events: [...events],
      active: disabled === undefined,
      encrypted_secret: vault.encrypt("whsec_receiver", `webhook_endpoints/${id}/secret`),
      api_version: "2026-08-15",
      disabled_reason: disabled ?? null,
    })
    .execute();
  return id;
}

export interface EmittedEvent {
  type: EventName;
  object: Json;
}

/**
 * The events of a team, in order: those the relay has come by for, then those that wait for it. One statement, for the
 * relay moves them from the one table to the other.
 */
export async function emittedEvents({ em, team }: Pick<Owner, "em" | "team">): Promise<EmittedEvent[]> {
  const { rows } = await sql<{ type: EventName; object: string }>`
    select type, object from (
      select 0 as place, id as event, 0 as seq, 0 as n, type, object from webhook_events where team_id = ${team.id}
      union all
      select 1, '', o.seq, e.n, o.type, e.object::text
      from webhook_outbox o cross join lateral json_array_elements(o.objects::json) with ordinality as e (object, n)
      where o.team_id = ${team.id}
    ) events order by place, event, seq, n`.execute(kysely(em.fork()));
  return rows.map(({ type, object }) => {
    const record = JSON.parse(object);
    assert.equal(record.object, EVENTS[type].objectType, `the record of ${type}`);
    assertEventDocumented(type, record);
    return { type, object: record };
  });
}

/** Reads a team's events since the last call. */
export function emitted(owner: Pick<Owner, "em" | "team">): () => Promise<EmittedEvent[]> {
  let seen = 0;
  return async () => {
    const events = (await emittedEvents(owner)).slice(seen);
    seen += events.length;
    return events;
  };
}

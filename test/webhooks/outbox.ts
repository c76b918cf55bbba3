import assert from "node:assert/strict";
import { sql } from "kysely";
import type { Environment } from "../../db/entities/shared.ts";
import { kysely } from "../../db/orm.ts";
import { EVENTS, type EventName } from "../../domain/webhooks/catalogue.ts";
import type { Json } from "../support/api.ts";
import { assertEventDocumented } from "../support/document.ts";
import type { TestTeam } from "../support/factories.ts";
import { makeEndpoint } from "../support/webhooks.ts";

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
  owner: Owner,
  { events, environment = "LIVE", disabled }: EndpointOptions = {},
): Promise<string> {
  const set = { environment, active: disabled === undefined, disabled_reason: disabled ?? null };
  const { id } = await makeEndpoint(owner, { url: "https://receiver.invalid/", ...(events && { events }), set });
  return id;
}

export interface EmittedEvent {
  type: EventName;
  object: Json;
}

/** In order; by one statement, for the relay moves them from the one table to the other. */
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

import { type RawBuilder, type SqlBool, sql } from "kysely";
import { SUBSCRIPTION_STATUSES } from "../../../db/entities/audience.ts";
import { ENGAGEMENT_KINDS } from "../../../db/entities/engagement.ts";
import { ofTenant } from "../../../db/orm.ts";
import { type Compilation, setAlias } from "./compilation.ts";
import type { Place } from "./place.ts";
import { startOfDay } from "./team-days.ts";

/** Whether the contact's address is among those of a query, which is joined; see `contactsQuery`. */
function isIn(addresses: RawBuilder<unknown>, place: Place, compilation: Compilation): RawBuilder<SqlBool> {
  compilation.count("joins", place);
  const alias = setAlias(compilation.sets.push(addresses) - 1);
  // Not "is not null", from which Postgres would infer that a full join is not needed.
  return sql`coalesce(${sql.ref(`${alias}.email`)}, '') <> ''`;
}

/**
 * Compiles `{"list": id, "status": "CONFIRMED"}`: the contact's address is that of a subscriber with this status on the
 * list, CONFIRMED unless given.
 * @throws {ConditionProblem}
 */
export function listCondition(place: Place, compilation: Compilation): RawBuilder<SqlBool> {
  place.refuseBeside("list", "status");
  const { tenant } = compilation;
  const list = place.at("list");
  const status = place.at("status");
  compilation.lists.push(list);
  const addresses = sql`
    select s.email from subscriptions m join subscribers s on s.id = m.subscriber_id and ${ofTenant(tenant, "s")}
    where m.list_id = ${list.text()} and ${ofTenant(tenant, "m")}
      and m.status = ${status.value === undefined ? "CONFIRMED" : status.word(SUBSCRIPTION_STATUSES)}`;
  return isIn(addresses, place, compilation);
}

const EVENTS = ["received", ...ENGAGEMENT_KINDS] as const;

/**
 * Compiles `{"event": "received|opened|clicked", "resource": id, "within_days": n}`: the contact's address received a mail,
 * opened one or followed a link in one; of this newsletter or campaign, and within these days, where they are given.
 * @throws {ConditionProblem}
 */
export function eventCondition(place: Place, compilation: Compilation): RawBuilder<SqlBool> {
  place.refuseBeside("event", "resource", "within_days");
  const { tenant } = compilation;
  const event = place.at("event").word(EVENTS);
  const resource = place.at("resource");
  const within = place.at("within_days");
  if (resource.value !== undefined) compilation.resources.push(resource);
  const isOfResource = resource.value !== undefined;
  const conditionOn = (resourceId: RawBuilder<unknown>, at: RawBuilder<unknown>) => sql`
    ${isOfResource ? sql`and ${resourceId} = ${resource.text()}` : sql``}
    ${within.value === undefined ? sql`` : sql`and ${at} >= ${startOfDay(tenant.teamId, -within.days(0))}`}`;
  // A newsletter or a campaign is sent once, and mails an address once.
  const distinct = isOfResource ? sql`` : sql`distinct`;
  const addresses =
    event === "received"
      ? sql`select ${distinct} r.email from sends s join send_recipients r on r.send_id = s.id
          where ${ofTenant(tenant, "s")} and r.state = 'SENT' ${conditionOn(sql`s.resource_id`, sql`r.updated_at`)}`
      : sql`select ${distinct} e.email from engagements e
          where ${ofTenant(tenant, "e")} and e.kind = ${event} ${conditionOn(sql`e.resource_id`, sql`e.last_at`)}`;
  return isIn(addresses, place, compilation);
}

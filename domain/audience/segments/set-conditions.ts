import { type RawBuilder, type SqlBool, sql } from "kysely";
import { SUBSCRIPTION_STATUSES } from "../../../db/entities/audience.ts";
import { ENGAGEMENT_KINDS } from "../../../db/entities/engagement.ts";
import { ofTenant, type Tenant } from "../../../db/orm.ts";
import { ID_PREFIX } from "../../ids.ts";
import { type Compilation, SEGMENT_LIMITS, setAlias } from "./compilation.ts";
import type { Place } from "./place.ts";
import { startOfDay } from "./team-days.ts";

/** `contactsQuery` joins the query. */
function isIn(addresses: RawBuilder<unknown>, place: Place, compilation: Compilation): RawBuilder<SqlBool> {
  if (compilation.sets.length === SEGMENT_LIMITS.joins) {
    throw place.problem(`is beyond the ${SEGMENT_LIMITS.joins} conditions on lists and events that a segment may have`);
  }
  const alias = setAlias(compilation.sets.push(addresses) - 1);
  // From "is not null", Postgres would infer that another join will do.
  return sql`coalesce(${sql.ref(`${alias}.email`)}, '') <> ''`;
}

/** Compiles `{"list": id, "status": "PENDING"}`; CONFIRMED without `status`. @throws {ConditionProblem} */
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

const EVENTS = ["received", "received_tracked", ...ENGAGEMENT_KINDS, "bounced", "unsubscribed"] as const;

/** Mails that bounced after their server had accepted them. */
const bouncedMails = (tenant: Tenant, ofSends: RawBuilder<unknown>) => sql`
  select distinct p.send_id, p.seq, 1 as bounced from sends s join mail_reports p on p.send_id = s.id and ${ofTenant(tenant, "p")}
  where ${ofTenant(tenant, "s")} and p.kind in ('bounce:hard', 'bounce:soft') ${ofSends}`;

/** Mails that analytics count as `delivered`. A full join for the reason that `contactsQuery` gives. */
const receivedMails = (tenant: Tenant, ofSends: RawBuilder<unknown>, when: RawBuilder<unknown>) => sql`
  select m.email from (
    select r.send_id, r.seq, r.email from sends s join send_recipients r on r.send_id = s.id
    where ${ofTenant(tenant, "s")} and (r.state = 'SENT' or (r.state = 'UNKNOWN' and r.responded)) ${ofSends} ${when}
  ) m full join (${bouncedMails(tenant, ofSends)}) b on b.send_id = m.send_id and b.seq = m.seq
  where coalesce(m.email, '') <> '' and coalesce(b.bounced, 0) <> 1`;

/**
 * Compiles `{"event": "opened", "resource": id, "within_days": n}` with one of `EVENTS`: `resource` is a newsletter or a campaign,
 * `within_days` today and the `n` days before. `clicked` takes `link`, a link of a mail, in place of the days.
 * @throws {ConditionProblem}
 */
export function eventCondition(place: Place, compilation: Compilation): RawBuilder<SqlBool> {
  place.refuseBeside("event", "resource", "within_days", "link");
  const { tenant } = compilation;
  const event = place.at("event").word(EVENTS);
  const resource = place.at("resource");
  const within = place.at("within_days");
  const link = place.at("link");
  if (link.value !== undefined && (event !== "clicked" || within.value !== undefined)) {
    throw link.problem("is taken with the event clicked, and without within_days");
  }
  if (resource.value !== undefined) compilation.resources.push(resource);
  if (link.value !== undefined) compilation.links.push(link);
  const named = resource.value === undefined ? compilation.among?.eventsOf : resource.text();
  const ofResource = (resourceId: RawBuilder<unknown>) =>
    named === undefined ? sql`` : sql`and ${resourceId} = ${named}`;
  const since = (at: RawBuilder<unknown>) =>
    within.value === undefined ? sql`` : sql`and ${at} >= ${startOfDay(tenant.teamId, -within.days(0))}`;
  // A newsletter is sent once, and mails an address once; a campaign may be a sequence.
  const distinct = named?.startsWith(`${ID_PREFIX.newsletter}_`) ? sql`` : sql`distinct`;
  const received = (condition = sql``) => sql`
    select ${distinct} email from (
      ${receivedMails(tenant, ofResource(sql`s.resource_id`), sql`${since(sql`r.updated_at`)} ${condition}`)}) r`;
  const engaged = () => sql`
    select ${distinct} e.email from engagements e
    where ${ofTenant(tenant, "e")} and e.kind = ${event} ${ofResource(sql`e.resource_id`)} ${since(sql`e.last_at`)}`;
  const clickers = () => sql`
    select distinct r.email from tracked_links l join sends s on s.resource_id = l.resource_id and ${ofTenant(tenant, "s")}
    join link_clicks k on k.send_id = s.id and k.link_id = l.id
    join send_recipients r on r.send_id = k.send_id and r.seq = k.seq
    where ${ofTenant(tenant, "l")} and l.id = ${link.text()} ${ofResource(sql`l.resource_id`)}`;
  const queries: Record<(typeof EVENTS)[number], () => RawBuilder<unknown>> = {
    received: () => received(),
    received_tracked: () => received(sql`and r.tracked`),
    opened: engaged,
    clicked: link.value === undefined ? engaged : clickers,
    bounced: () => sql`
      select distinct r.email from sends s join mail_reports p on p.send_id = s.id and ${ofTenant(tenant, "p")}
      join send_recipients r on r.send_id = p.send_id and r.seq = p.seq
      where ${ofTenant(tenant, "s")} and p.kind in ('bounce:hard', 'bounce:soft')
        ${ofResource(sql`s.resource_id`)} ${since(sql`p.created_at`)}`,
    unsubscribed: () => sql`
      select distinct u.email from unsubscribes u
      where ${ofTenant(tenant, "u")} ${ofResource(sql`u.campaign_id`)} ${since(sql`u.unsubscribed_at`)}`,
  };
  return isIn(queries[event](), place, compilation);
}

import { type RawBuilder, type SqlBool, sql } from "kysely";
import { type EngagementKind, type MailReportKind, WITHDRAWN } from "../../../db/entities/engagement.ts";
import { ofTenant, type Tenant } from "../../../db/orm.ts";
import { isoInstant } from "../../../db/sql.ts";

export const ACTIVITIES = ["opened", "not_opened", "clicked", "bounced", "unsubscribed", "complained"] as const;
export type Activity = (typeof ACTIVITIES)[number];

/** Rows of the ledger of a send, in a range of their places. */
interface LedgerRange {
  sendId: string;
  first: number;
  last: number;
}

interface LedgerRows extends LedgerRange {
  resourceId: string;
}

/** SQL: a server took the mail of a row `r` of the ledger, as figures count it. */
export const ACCEPTED = sql<SqlBool>`(r.state = 'SENT' or (r.state = 'UNKNOWN' and r.responded))`;

/** SQL: the range has a fact of the row `r` of the ledger that meets the condition. */
function isIn(
  tenant: Tenant,
  { sendId, first, last }: LedgerRange,
  facts: RawBuilder<unknown>,
  condition: RawBuilder<unknown>,
): RawBuilder<SqlBool> {
  // "is true" keeps Postgres from planning a join: it reads the query once, whatever its statistics. The query names the range,
  // so that it reads no whole send, and the tenant of the send: by tenant columns of the facts it could read those of a whole team.
  return sql`(r.seq in (
    select f.seq from sends s join ${facts} f on f.send_id = s.id
    where s.id = ${sendId} and ${ofTenant(tenant, "s")} and f.seq between ${first} and ${last} and ${condition})) is true`;
}

const reportedIn = (tenant: Tenant, range: LedgerRange, ...kinds: (MailReportKind | typeof WITHDRAWN)[]) =>
  isIn(tenant, range, sql`mail_reports`, sql`f.kind in (${sql.join(kinds)})`);

/** SQL: the mail of a row `r` of the ledger came back. */
export const bouncedIn = (tenant: Tenant, range: LedgerRange) =>
  reportedIn(tenant, range, "bounce:hard", "bounce:soft");

// Of a page of rows `r` of the ledger: `hasActivity` reads a range at once.

/** SQL: when the person first or last did so; null where they did not. */
export const engagedAt = (tenant: Tenant, kind: EngagementKind, column: "first_at" | "last_at") => sql<string | null>`(
  select ${isoInstant(sql.ref(`e.${column}`))} from engagements e
  where e.send_id = r.send_id and e.seq = r.seq and e.kind = ${kind} and ${ofTenant(tenant, "e")})`;

/** SQL: the person unsubscribed by the mail. Not by "exists": Postgres would read all who did. */
export const hasOptedOut = (tenant: Tenant, resourceId: string) => sql<boolean>`(
  select true from unsubscribes u where ${ofTenant(tenant, "u")} and u.email = r.email and u.campaign_id = ${resourceId}
  limit 1) is true`;

/**
 * SQL: the mail of a row `r` of the ledger is one that the figure of the activity counts; `not_opened`: it was delivered, is tracked
 * and was not opened.
 * @param linkId of `clicked`, for this link alone
 */
export function hasActivity(
  tenant: Tenant,
  rows: LedgerRows,
  activity: Activity,
  linkId: string | undefined,
): RawBuilder<SqlBool> {
  const engaged = (kind: EngagementKind) => isIn(tenant, rows, sql`engagements`, sql`f.kind = ${kind}`);
  const bounced = bouncedIn(tenant, rows);
  const conditions: Record<Activity, RawBuilder<SqlBool>> = {
    opened: engaged("opened"),
    not_opened: sql`r.tracked and not (${bounced}) and not (${engaged("opened")})`,
    clicked:
      linkId === undefined ? engaged("clicked") : isIn(tenant, rows, sql`link_clicks`, sql`f.link_id = ${linkId}`),
    bounced,
    complained: sql`${reportedIn(tenant, rows, "complaint")} and not (${reportedIn(tenant, rows, WITHDRAWN)})`,
    unsubscribed: sql`(r.email in (
      select u.email from unsubscribes u where ${ofTenant(tenant, "u")} and u.campaign_id = ${rows.resourceId})) is true`,
  };
  const { [activity]: condition } = conditions;
  return sql`${ACCEPTED} and ${condition}`;
}

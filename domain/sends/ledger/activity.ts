import { type RawBuilder, type SqlBool, sql } from "kysely";
import { type EngagementKind, type MailReportKind, WITHDRAWN } from "../../../db/entities/engagement.ts";
import { ofTenant, type Tenant } from "../../../db/orm.ts";

export const ACTIVITIES = ["opened", "not_opened", "clicked", "bounced", "unsubscribed", "complained"] as const;
export type Activity = (typeof ACTIVITIES)[number];

/** Rows of the ledger of a resource's send, in a range of their places. */
export interface LedgerRows {
  resourceId: string;
  sendId: string;
  first: number;
  last: number;
  /** Whether opens can be seen. */
  isTracked: boolean;
}

/**
 * SQL: of a row `r` of the ledger. The rows of an activity are those that the figure of its name counts, and `not_opened` the
 * delivered and tracked mails beside `opened`.
 * @param linkId of `clicked`, for this link alone
 */
export function hasActivity(
  tenant: Tenant,
  { resourceId, sendId, first, last, isTracked }: LedgerRows,
  activity: Activity,
  linkId: string | undefined,
): RawBuilder<SqlBool> {
  // "is true" keeps Postgres from a join: each query is read once, whatever it knows of the tables. The range stands in it, so
  // that it reads no whole send, and the tenant is the send's: by own columns it could read the facts of a whole team.
  const isIn = (facts: RawBuilder<unknown>, condition: RawBuilder<unknown>) => sql<SqlBool>`(r.seq in (
    select f.seq from sends s join ${facts} f on f.send_id = s.id
    where s.id = ${sendId} and ${ofTenant(tenant, "s")} and f.seq between ${first} and ${last} and ${condition})) is true`;
  const engaged = (kind: EngagementKind) => isIn(sql`engagements`, sql`f.kind = ${kind}`);
  const reported = (...kinds: (MailReportKind | typeof WITHDRAWN)[]) =>
    isIn(sql`mail_reports`, sql`f.kind in (${sql.join(kinds)})`);
  const bounced = reported("bounce:hard", "bounce:soft");
  const conditions: Record<Activity, RawBuilder<SqlBool>> = {
    opened: engaged("opened"),
    not_opened: sql`${isTracked} and not (${bounced}) and not (${engaged("opened")})`,
    clicked: linkId === undefined ? engaged("clicked") : isIn(sql`link_clicks`, sql`f.link_id = ${linkId}`),
    bounced,
    complained: sql`${reported("complaint")} and not (${reported(WITHDRAWN)})`,
    unsubscribed: sql`(r.email in (
      select u.email from unsubscribes u where ${ofTenant(tenant, "u")} and u.campaign_id = ${resourceId})) is true`,
  };
  const { [activity]: condition } = conditions;
  return sql`(r.state = 'SENT' or (r.state = 'UNKNOWN' and r.responded)) and ${condition}`;
}

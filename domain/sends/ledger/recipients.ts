import { sql } from "kysely";
import type { RecipientState } from "../../../db/entities/send.ts";
import { type JsonColumns, JsonText, jsonRecord } from "../../../db/json.ts";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../../db/orm.ts";
import { hasPart } from "../../audience/search.ts";
import { ApiError, orNotFound } from "../../errors.ts";
import { emailFields } from "../../webhooks/records.ts";
import type { SendResource } from "../resource.ts";
import { type Activity, engagedAt, hasActivity, hasOptedOut } from "./activity.ts";

/** Rows that a page walks at most in search of a state or an activity. A state stands in no index: each mail would have to write it. */
const MAX_WALKED = 10_000;

export interface LedgerPage {
  state?: RecipientState | undefined;
  activity?: Activity | undefined;
  /** Of `clicked`. */
  linkId?: string | undefined;
  /** A part of their address or name. The whole send is looked through, since they stand in no index either. */
  text?: string | undefined;
  /** Their names, when each first opened the mail and last clicked in it, and whether they unsubscribed by it. */
  withEngagement?: boolean;
  order: "asc" | "desc";
  limit: number;
  /** Undefined for the first page. */
  after?: number | undefined;
}

/**
 * Reads a page of the recipients of a resource; none before its confirm. The `seq` of a send's rows are 1 to their
 * number.
 * @returns `next`: the `seq` behind which the next page begins; undefined on the last one
 * @throws {ApiError} `not_found`; `resource_state_invalid` when the recipients are kept no longer
 */
export async function pageRecipients(
  em: EntityManager,
  tenant: Tenant,
  resource: SendResource,
  { state, activity, linkId, text, withEngagement, order, limit, after }: LedgerPage,
): Promise<{ records: JsonText<unknown>[]; next: number | undefined }> {
  const { rows: found } = await sql<{ sendId: string | null; recipients: number; ledger: string }>`
    select s.id as "sendId", s.recipients, s.ledger_state as ledger
    from ${sql.table(`${resource.type}s`)} r left join sends s on s.id = r.send_id and ${ofTenant(tenant, "s")}
    where r.id = ${resource.id} and ${ofTenant(tenant, "r")}`.execute(kysely(em));
  const { sendId, recipients, ledger } = orNotFound(found[0]);
  if (sendId === null) return { records: [], next: undefined };
  if (ledger !== "COMPLETE" && ledger !== "NAMELESS") {
    throw new ApiError("resource_state_invalid", `The recipients of this ${resource.type} are kept no longer.`);
  }
  const isRising = order === "asc";
  const begin = after ?? (isRising ? 0 : recipients + 1);
  const walked = text === undefined ? MAX_WALKED : recipients;
  const [first, last] = isRising ? [begin + 1, begin + walked] : [begin - walked, begin - 1];
  const ledgerRows = { resourceId: resource.id, sendId, first, last };
  const fields: JsonColumns<string> = {
    ...emailFields("r", { sendId, resource }, sql.ref("r.state")),
    smtp_code: sql`substring(r.reason from ':([0-9]{3})')::int`,
    ...(withEngagement && {
      ...{ first_name: sql.ref("r.first_name"), last_name: sql.ref("r.last_name") },
      opened_at: engagedAt(tenant, "opened", "first_at"),
      clicked_at: engagedAt(tenant, "clicked", "last_at"),
      has_unsubscribed: hasOptedOut(tenant, resource.id),
    }),
  };
  const record = jsonRecord("email", fields);
  const { rows } = await sql<{ seq: number; record: string }>`
    select r.seq, ${record} as record from send_recipients r
    where r.send_id = ${sendId} and r.seq between ${first} and ${last} ${state ? sql`and r.state = ${state}` : sql``}
      ${activity ? sql`and ${hasActivity(tenant, ledgerRows, activity, linkId)}` : sql``}
      ${text === undefined ? sql`` : sql`and ${hasPart(text)}`}
    order by r.seq ${sql.raw(order)} limit ${limit + 1}`.execute(kysely(em));
  const shown = rows.slice(0, limit);
  const walkedTo = isRising ? last : first;
  const isEnd = isRising ? last >= recipients : first <= 1;
  const next = rows.length > limit ? shown.at(-1)?.seq : isEnd ? undefined : walkedTo;
  return { records: shown.map((row) => new JsonText(row.record)), next };
}

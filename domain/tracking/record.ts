import { hash } from "node:crypto";
import { sql } from "kysely";
import type { EngagementKind, HitRule } from "../../db/entities/engagement.ts";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../db/orm.ts";
import { executePrepared } from "../../db/statements.ts";
import { newId } from "../ids.ts";
import type { MailRef } from "../mail/links.ts";
import type { WaitingHit } from "./label.ts";

export interface Hit extends MailRef, WaitingHit {}

/** Hits by what their requests alone show: the rule is null for those that show nothing. */
export interface RecordedHits {
  kind: EngagementKind;
  rule: HitRule | null;
  count: number;
}

const SOURCE_LENGTH = 11;

/**
 * A hash by which hits of one mail are known to come from one network: of 256 addresses, or of 48 bits of IPv6. No address can
 * be compared with it without the mail's token, which is stored nowhere.
 * @param token with its signature
 */
export function sourceOf(token: string, clientAddress: string | null): string {
  const network = clientAddress?.replace(/[.:][^.:]*$/, "") ?? "";
  return hash("sha256", `${token} ${network}`, "base64url").slice(0, SOURCE_LENGTH);
}

/** Stores hits until `settleHits` says who made them; those of mails that no ledger has count nothing then. */
export async function recordHits(em: EntityManager, hits: readonly Hit[]): Promise<RecordedHits[]> {
  await executePrepared(
    em,
    sql`
      insert into pending_hits (id, send_id, seq, kind, at, url, rule, early, source)
      select * from unnest(
        ${hits.map(() => newId("tracking"))}::text[], ${hits.map(({ sendId }) => sendId)}::text[],
        ${hits.map(({ seq }) => seq)}::int[], ${hits.map(({ kind }) => kind)}::text[],
        ${hits.map(({ at }) => new Date(at).toISOString())}::timestamptz(3)[],
        ${hits.map(({ url }) => url)}::text[], ${hits.map(({ rule }) => rule)}::text[],
        ${hits.map(({ early }) => early)}::boolean[], ${hits.map(({ source }) => source)}::text[])`,
  );
  const counts = Map.groupBy(hits, ({ kind, rule }) => `${kind} ${rule}`);
  return [...counts.values()].flatMap((alike) =>
    alike[0] ? [{ kind: alike[0].kind, rule: alike[0].rule, count: alike.length }] : [],
  );
}

/** A provider's word that a program opened its mail or followed a link in it. */
export interface ReportedHit extends MailRef {
  machine: EngagementKind;
  /** Milliseconds since 1970. */
  at: number;
}

/** Stores reports of a provider about hits that are waiting here; about any other they change nothing. */
export async function recordReported(em: EntityManager, tenant: Tenant, hits: readonly ReportedHit[]): Promise<void> {
  if (hits.length === 0) return;
  await sql`
    insert into pending_hits (id, send_id, seq, kind, at, rule, early)
    select h.id, h.send_id, h.seq, h.kind, h.at, 'provider', false from unnest(
      ${hits.map(() => newId("tracking"))}::text[], ${hits.map(({ sendId }) => sendId)}::text[],
      ${hits.map(({ seq }) => seq)}::int[], ${hits.map(({ machine }) => machine)}::text[],
      ${hits.map(({ at }) => new Date(at).toISOString())}::timestamptz(3)[]
    ) as h (id, send_id, seq, kind, at) join sends s on s.id = h.send_id and ${ofTenant(tenant, "s")}`.execute(
    kysely(em),
  );
}

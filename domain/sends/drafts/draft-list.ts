import { type RawBuilder, sql } from "kysely";
import type { BroadcastStatus, ResourceType } from "../../../db/entities/send.ts";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../../db/orm.ts";
import { isoInstant } from "../../../db/sql.ts";

/** A newsletter or campaign without its content. */
export interface ListedDraft {
  id: string;
  name: string;
  status: BroadcastStatus;
  subject: string | null;
  /** Names of its lists, or of its segment. */
  targets: string[];
  /** Of its send; null before it, and where that is kept no longer. */
  recipients: number | null;
  send_at: string | null;
  send_zone: string | null;
  /** When its send ended. */
  completed_at: string | null;
  updated_at: string;
}

interface DraftFilter {
  status?: BroadcastStatus | undefined;
  /** Part of the name or the subject, in any case. */
  text?: string | undefined;
  /** The last id of the page before. */
  after?: string | undefined;
  limit: number;
}

/** The newest first, also those that were sent. Sequences are no drafts: see `listSequences`. */
export async function listDrafts(
  em: EntityManager,
  tenant: Tenant,
  type: ResourceType,
  { status, text = "", after, limit }: DraftFilter,
): Promise<ListedDraft[]> {
  const targets: Record<ResourceType, RawBuilder<unknown>> = {
    newsletter: sql`select l.name from newsletter_lists t join lists l on l.id = t.list_id and ${ofTenant(tenant, "l")}
      where t.newsletter_id = d.id order by l.name`,
    campaign: sql`select g.name from segments g where g.id = d.segment_id and ${ofTenant(tenant, "g")}`,
  };
  const { rows } = await sql<ListedDraft>`
    select d.id, d.name, d.status, d.subject, array(${targets[type]}) as targets,
      (select s.recipients from sends s where s.id = d.send_id and ${ofTenant(tenant, "s")}) as recipients,
      ${isoInstant(sql`d.send_at`)} as send_at, d.send_zone,
      ${isoInstant(sql`d.completed_at`)} as completed_at, ${isoInstant(sql`d.updated_at`)} as updated_at
    from ${sql.table(`${type}s`)} d
    where ${ofTenant(tenant, "d")} ${type === "campaign" ? sql`and not d.is_drip` : sql``}
      and (${status ?? null}::text is null or d.status = ${status ?? null})
      and strpos(lower(d.name || ' ' || coalesce(d.subject, '')), lower(${text}::text)) > 0
      and (${after ?? null}::text is null or d.id < ${after ?? null})
    order by d.id desc limit ${limit}`.execute(kysely(em));
  return rows;
}

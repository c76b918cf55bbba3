import { sql } from "kysely";
import type { ResourceType } from "../../db/entities/send.ts";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../db/orm.ts";

/** Something that a member of the team has to see to. */
export interface AttentionItem {
  kind: "account" | "send" | "sequence" | "webhook" | "credits";
  /** Of a send, that of its newsletter or campaign. */
  id: string;
  type: ResourceType | null;
  name: string;
  /** A code; null where a person is the cause. */
  reason: string | null;
}

export interface Attention {
  items: AttentionItem[];
  /** Whether a team has each thing that its first send needs. */
  steps: Record<"account" | "domain" | "list" | "people" | "draft", boolean>;
  credits: { available: number; used_in_a_week: number };
  /** Addresses of subscribers and contacts. */
  people: number;
  /** Within 30 days. */
  new_subscribers: { count: number; has_more: boolean };
}

const MAX_ITEMS = 50;
/** Counted at each view of the overview. */
const MOST_NEW = 10_000;

/** In one statement. */
export async function readAttention(em: EntityManager, tenant: Tenant): Promise<Attention> {
  const own = (alias: string) => ofTenant(tenant, alias);
  const { rows } = await sql<Attention>`
    with items as (
      select 1 as rank, 'send' as kind, s.resource_id as id, s.resource_type as type, coalesce(n.name, c.name) as name,
        s.pause_reason as reason
      from sends s
      left join newsletters n on n.id = s.resource_id and ${own("n")}
      left join campaigns c on c.id = s.resource_id and ${own("c")}
      where ${own("s")} and s.status = 'PAUSED' and s.step_version_id is null
      union all
      select 2, 'account', a.id, null, a.email, coalesce(a.last_error, f.reason, lower(a.status))
      from email_accounts a left join account_refusals f on f.account_id = a.id
      where ${own("a")} and (a.status in ('ERROR', 'SUSPENDED', 'REVOKED') or f.account_id is not null)
      union all
      select 3, 'sequence', c.id, null, c.name, c.status_reason
      from campaigns c where ${own("c")} and c.is_drip and c.status = 'PAUSED'
      union all
      select 4, 'webhook', e.id, null, e.name, e.disabled_reason
      from webhook_endpoints e
      where ${own("e")} and e.disabled_reason = 'delivery_failures' and e.origin <> 'LISTENER'
    ), credits as (
      select coalesce((select b.available from credit_balances b where ${own("b")}), 0)::float8 as available,
        coalesce((select sum(e.amount) from credit_entries e
          where ${own("e")} and e.kind = 'CONSUME' and e.created_at > now() - interval '7 days'), 0)::float8 as used_in_a_week
    )
    select coalesce((
        select json_agg(json_build_object('kind', i.kind, 'id', i.id, 'type', i.type, 'name', i.name, 'reason', i.reason)
          order by i.rank, i.name, i.id)
        from (
          select * from (
            select * from items
            union all
            select 5, 'credits', '', null, '', null from credits where available < used_in_a_week
          ) a order by rank, name, id limit ${MAX_ITEMS}
        ) i), '[]') as items,
      (select row_to_json(credits) from credits) as credits,
      coalesce((select c.used from contact_slot_counts c where ${own("c")}), 0) as people,
      (select json_build_object('count', least(count(*), ${MOST_NEW}), 'has_more', count(*) > ${MOST_NEW}) from (
        select from subscribers s where ${own("s")} and s.created_at >= now() - interval '30 days' limit ${MOST_NEW + 1}) s) as new_subscribers,
      json_build_object(
        'account', exists (select from email_accounts a where ${own("a")} and a.status = 'ACTIVE'),
        'domain', exists (select from dkim_keys k where ${own("k")} and k.active_since is not null),
        'list', exists (select from lists l where ${own("l")}),
        'people', exists (select from subscribers p where ${own("p")}) or exists (select from contacts p where ${own("p")}),
        'draft', exists (select from newsletters d where ${own("d")}) or exists (select from campaigns d where ${own("d")})
      ) as steps`.execute(kysely(em));
  const [attention] = rows;
  if (!attention) throw new Error("the database answered no row");
  return attention;
}

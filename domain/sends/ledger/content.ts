import { sql } from "kysely";
import type { AccountProvider } from "../../../db/entities/account.ts";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../../db/orm.ts";
import { domainOf, type SealedKey, signingKeys } from "../../sending-domains/keys.ts";
import type { SendResource } from "../resource.ts";
import type { AccountLimits } from "./account-capacity.ts";
import type { OpenedDispatch } from "./lanes.ts";

export interface LaneContent {
  subject: string;
  body: string;
  fromEmail: string;
  fromName: string;
  listNames: ReadonlyMap<string, string>;
  provider: AccountProvider;
  /** None leaves the mails unsigned. */
  dkimKeys: readonly SealedKey[];
  limits: AccountLimits;
  accountFailed: boolean;
}

/** It does not change once the resource is scheduled, or the wave claimed. `fromEmail`: of a newsletter or sequence. */
export async function readResourceContent(
  em: EntityManager,
  tenant: Tenant,
  { type, id }: SendResource,
  sendId: string,
) {
  const { rows } = await sql<Record<"subject" | "body" | "from_email" | "from_name", string | null>>`
    select coalesce(v.subject, d.subject) as subject, coalesce(v.body, d.body) as body, d.from_name,
      ${type === "newsletter" ? sql`d.from_email` : sql`q.from_email`}
    from ${sql.table(`${type}s`)} d left join sequences q on q.campaign_id = d.id
    left join sequence_step_versions v on v.id = (select step_version_id from sends where id = ${sendId} and ${ofTenant(tenant)})
    where d.id = ${id} and ${ofTenant(tenant, "d")}`.execute(kysely(em));
  const [row] = rows;
  if (!row) throw new Error(`the ${type} of a send is gone`);
  const { rows: lists } = await sql<{ id: string; name: string }>`
    select l.id, l.name from lists l where ${ofTenant(tenant, "l")} and l.id in (
      select list_id from newsletter_lists where newsletter_id = ${id}
      union all select list_id from sends where id = ${sendId} and ${ofTenant(tenant)})`.execute(kysely(em));
  return {
    subject: row.subject ?? "",
    body: row.body ?? "",
    fromEmail: row.from_email,
    fromName: row.from_name,
    listNames: new Map(lists.map((list) => [list.id, list.name])),
  };
}

type Lane = Pick<OpenedDispatch, "teamId" | "environment" | "resource" | "accountId" | "sendId">;

export async function readContent(em: EntityManager, dispatch: Lane): Promise<LaneContent> {
  const { resource, accountId } = dispatch;
  const { fromEmail, fromName, ...content } = await readResourceContent(em, dispatch, resource, dispatch.sendId);
  const account = await kysely(em)
    .selectFrom("email_accounts")
    .select(["email", "hourly_limit", "daily_limit", "display_name", "status", "provider"])
    .where("id", "=", accountId)
    .where(ofTenant(dispatch))
    .executeTakeFirstOrThrow();
  const from = fromEmail ?? account.email;
  return {
    ...content,
    fromEmail: from,
    fromName: fromName ?? account.display_name,
    provider: account.provider,
    dkimKeys: await signingKeys(em, dispatch, domainOf(from)),
    limits: { hourly: account.hourly_limit, daily: account.daily_limit },
    accountFailed: account.status === "ERROR",
  };
}

import { sql } from "kysely";
import type { AccountStatus } from "../../db/entities/account.ts";
import type { BroadcastStatus } from "../../db/entities/send.ts";
import { type EntityManager, kysely, type Tenant } from "../../db/orm.ts";
import { notFound } from "../errors.ts";
import type { PlanSubject } from "./plan.ts";
import type { SendResource } from "./resource.ts";

/** A newsletter as a send sees it: its content, whom it targets, and the account that would carry it. */
export interface Draft extends PlanSubject {
  status: BroadcastStatus;
  timeZone: string;
  account: { id: string; address: string; status: AccountStatus } | null;
}

interface DraftRow {
  id: string;
  status: BroadcastStatus;
  subject: string | null;
  body: string | null;
  from_email: string | null;
  from_name: string | null;
  send_days: string[];
  time_zone: string;
  list_ids: string[];
}

/**
 * Reads a newsletter for a send.
 * @param lock takes the row's lock, so that no edit slips between the check and the arming
 * @throws {ApiError} `not_found` when the tenant has no such newsletter
 */
export async function readDraft(
  em: EntityManager,
  tenant: Tenant,
  { id }: SendResource,
  { lock = false }: { lock?: boolean } = {},
): Promise<Draft> {
  const { teamId, environment } = tenant;
  const { rows } = await sql<DraftRow>`
    select n.id, n.status, n.subject, n.body, n.from_email, n.from_name, n.send_days, t.time_zone,
      array(select list_id from newsletter_lists l where l.newsletter_id = n.id order by list_id) as list_ids
    from newsletters n join teams t on t.id = n.team_id
    where n.id = ${id} and n.team_id = ${teamId} and n.environment = ${environment}
    ${lock ? sql`for update of n` : sql``}`.execute(kysely(em));
  const [row] = rows;
  if (!row) throw notFound();
  const account = row.from_email === null ? null : await pickAccount(em, tenant, row.from_email);
  return {
    teamId,
    environment,
    resource: { type: "newsletter", id: row.id },
    status: row.status,
    subject: row.subject,
    body: row.body,
    fromEmail: row.from_email,
    fromName: row.from_name,
    sendDays: row.send_days.map(Number),
    timeZone: row.time_zone,
    listIds: row.list_ids,
    account,
    accountAddress: account?.address ?? null,
  };
}

/**
 * The account that carries mail from an address: the one with that very address, else one allowed for its domain, an
 * ACTIVE one before others, the oldest among equals.
 */
async function pickAccount(
  em: EntityManager,
  { teamId, environment }: Tenant,
  fromEmail: string,
): Promise<Draft["account"]> {
  const domain = fromEmail.slice(fromEmail.lastIndexOf("@") + 1);
  const account = await kysely(em)
    .selectFrom("email_accounts")
    .select(["id", "email as address", "status"])
    .where("team_id", "=", teamId)
    .where("environment", "=", environment)
    .where(({ or, eb }) => or([eb("email", "=", fromEmail), sql<boolean>`${domain} = any(allowed_domains)`]))
    .orderBy(sql`email = ${fromEmail}`, "desc")
    .orderBy(sql`status = 'ACTIVE'`, "desc")
    .orderBy("id")
    .limit(1)
    .executeTakeFirst();
  return account ?? null;
}

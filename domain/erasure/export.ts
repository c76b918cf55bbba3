import { type RawBuilder, sql } from "kysely";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../db/orm.ts";
import { readMailHistory } from "../audience/mail-history.ts";
import { listNameOf, subscriptionProofs } from "../audience/subscription-proofs.ts";
import { mailboxOf } from "../mail/system-mail.ts";
import { escapeHtml } from "../mail/template.ts";
import type { Vault } from "../secrets/crypto.ts";
import { hashAddress } from "./erased-addresses.ts";

/** Of an export, in characters: the newest mails are in it. */
const MAX_LENGTH = 2_000_000;
/** How long ledgers are searched for mails. */
const MAILS_MS = 600_000;

const NOTE =
  "What the team keeps about the address; of what is too long, `incomplete` names the parts, and the newest are here. " +
  "Copies of these records that leave within days are not repeated: events for webhooks, and answers that the API remembers.";

/** The parts besides the mails, each by an index. */
function partsOf(vault: Vault, tenant: Tenant, email: string): Readonly<Record<string, RawBuilder<unknown>>> {
  const of = (row: string) => sql`${ofTenant(tenant, row)} and ${sql.ref(`${row}.email`)} = ${email}`;
  const ofHash = sql`${hashAddress(vault, tenant, email)}`;
  const named = (row: string) => sql`coalesce(${sql.ref(`${row}.email_spelling`)}, ${sql.ref(`${row}.email`)}) as email,
    ${sql.ref(`${row}.first_name`)}, ${sql.ref(`${row}.last_name`)}`;
  return {
    team: sql`select t.name from teams t where t.id = ${tenant.teamId}`,
    contact: sql`select c.id, ${named("c")}, c.fields, c.email_status, c.created_at, c.updated_at from contacts c where ${of("c")}`,
    subscriber: sql`select p.id, ${named("p")}, p.created_at, p.updated_at from subscribers p where ${of("p")}`,
    subscriptions: subscriptionProofs(tenant, email, "subscriptions"),
    subscriptions_of_deleted_lists: subscriptionProofs(tenant, email, "bin_subscriptions"),
    sequences: sql`
      select c.name as sequence, e.state, e.reason, e.entered_at, e.passed_step_id as last_step, e.passed_at as last_step_at,
        e.step_id as next_step, e.due_at as next_step_at
      from campaigns c join sequence_enrolments e on e.campaign_id = c.id
      where ${ofTenant(tenant, "c")} and c.is_drip and e.address_hash = ${ofHash}`,
    consent_to_tracking: sql`select k.status, k.way, k.words, k.at from tracking_consents k where ${of("k")}`,
    do_not_mail: sql`select s.reason, s.created_at, s.updated_at from suppressions s where ${of("s")}`,
    unsubscribes: sql`select u.source, u.reason, u.campaign_id as mail, u.unsubscribed_at from unsubscribes u where ${of("u")}`,
    unsubscribed_lists: sql`
      select ${listNameOf(tenant, "o.list_id")}, o.unsubscribed_at from list_opt_outs o where ${ofTenant(tenant, "o")} and o.address_hash = ${ofHash}`,
    mails_asking_for_confirmation: sql`
      select ${listNameOf(tenant, "m.list_id")}, m.day, m.tried_at from confirmation_mails m
      where ${of("m")} and m.mailbox = ${mailboxOf(sql`${email}::text`)}`,
    rejected_lines_of_files: sql`
      select i.name as file, r.line->'line' as line, r.line->'reason' as reason, r.line->'cells' as cells, i.created_at
      from imports i cross join lateral jsonb_array_elements(i.outcome->'refused') r (line)
      where ${ofTenant(tenant, "i")} and r.line->>'address' = ${email}`,
  };
}

/** Of each mail `m` in a history: the names and fields that it was sent with, and each open and click. */
const mailDetails = (tenant: Tenant): RawBuilder<unknown> => sql`,
  'sent_to', (select json_build_object('email', coalesce(r.email_spelling, r.email), 'first_name', r.first_name,
    'last_name', r.last_name, 'fields', r.fields) from send_recipients r where r.send_id = m.id and r.seq = m.seq),
  'opens_and_clicks', (select json_agg(json_build_object('kind', e.kind, 'count', e.count, 'first_at', e.first_at, 'last_at', e.last_at))
    from engagements e where ${ofTenant(tenant, "e")} and e.send_id = m.id and e.seq = m.seq),
  'by_programs', (select json_agg(json_build_object('kind', h.kind, 'count', h.count, 'first_at', h.first_at, 'last_at', h.last_at))
    from marked_hits h where h.send_id = m.id and h.seq = m.seq),
  'clicked_links', (select json_agg(json_build_object('url', t.url, 'count', k.count)) from link_clicks k
    join tracked_links t on t.id = k.link_id and ${ofTenant(tenant, "t")} where k.send_id = m.id and k.seq = m.seq)`;

/**
 * Writes the records of a person as JSON, with names that a reader understands. Where it is cut, the parts are named.
 * @param email as addresses are compared @param onStep may throw to stop
 */
export async function exportPerson(
  em: EntityManager,
  vault: Vault,
  tenant: Tenant,
  email: string,
  onStep: (step: string) => void,
): Promise<string> {
  const parts: Record<string, unknown[]> = {};
  const cut = new Set<string>();
  let left = MAX_LENGTH;
  const add = (name: string, rows: readonly unknown[]) => {
    const kept = rows.filter((row) => {
      left -= JSON.stringify(row).length;
      return left >= 0;
    });
    if (kept.length < rows.length) cut.add(name);
    parts[name] = [...(parts[name] ?? []), ...kept];
  };
  for (const [name, query] of Object.entries(partsOf(vault, tenant, email))) {
    onStep(name.replaceAll("_", " "));
    const { rows } = await sql<{ row: unknown }>`
      select q.row from (
        select r.row, sum(length(r.row::text)) over (rows unbounded preceding) as length
        from (select row_to_json(p) as row from (${query}) p) r) q
      where q.length <= ${sql.lit(2 * MAX_LENGTH)}`.execute(kysely(em.fork()));
    add(
      name,
      rows.map(({ row }) => row),
    );
  }
  const giveUpAt = performance.now() + MAILS_MS;
  for (let before: string | undefined; ; ) {
    onStep(`emails: ${parts["emails"]?.length ?? 0} found`);
    const { mails, next } = await readMailHistory(em.fork(), tenant, email, before, mailDetails(tenant));
    add("emails", mails);
    if (next === null || cut.has("emails")) break;
    if (performance.now() > giveUpAt) cut.add("emails");
    before = next;
  }
  const about = { person: email, environment: tenant.environment, made_at: new Date().toISOString(), note: NOTE };
  return JSON.stringify({ about: { ...about, incomplete: [...cut] }, ...parts }, null, 2);
}

/** The same as a page to read. */
export function exportPage(json: string): string {
  const shown = (value: unknown): string => {
    if (Array.isArray(value)) return value.length > 0 ? value.map(shown).join("<br>") : "–";
    if (typeof value !== "object" || value === null) return escapeHtml(String(value ?? "–"));
    const rows = Object.entries(value).map(
      ([name, part]) => `<tr><th>${escapeHtml(name.replaceAll("_", " "))}</th><td>${shown(part)}</td></tr>`,
    );
    return `<table>${rows.join("")}</table>`;
  };
  return `<!doctype html><html lang="en"><meta charset="utf-8"><title>Personal data</title>
<style>body{font:15px system-ui}th,td{text-align:left;vertical-align:top;padding:2px 8px}</style>${shown(JSON.parse(json))}</html>`;
}

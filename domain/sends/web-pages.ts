import { sql } from "kysely";
import type { MailFooter } from "../../db/entities/team.ts";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../db/orm.ts";
import { isoInstant } from "../../db/sql.ts";
import { publicSubject } from "../../lib/subject.ts";
import { showInThread, titlesInThread } from "../mail/examination.ts";
import type { Title } from "../mail/examination-thread.ts";
import { MAX_READ } from "../mail/inbox-text.ts";
import type { ShownMessage } from "../mail/message.ts";
import type { Vault } from "../secrets/crypto.ts";
import { referenceOf } from "../secrets/reference.ts";
import { footerOf, type LinkTeam, LOOK } from "../teams/brand.ts";
import { isPublicOf, ofLists, readInThread } from "./drafts/drafts.ts";

/** Newsletters of an archive at most, of the last so many that were made for its list. */
const [MOST_SHOWN, MOST_WALKED] = [100, 1_000];

export const newsletterUrl = (vault: Vault, publicUrl: string, id: string): string =>
  `${publicUrl}/n/${referenceOf(vault, "newsletter", id)}`;
export const archiveUrl = (vault: Vault, publicUrl: string, listId: string): string =>
  `${publicUrl}/a/${referenceOf(vault, "list", listId)}`;

/** A newsletter that was sent, of LIVE. */
export interface WebNewsletter extends LinkTeam {
  id: string;
  /** Of its only list. */
  listName: string | null;
  subject: string;
  body: string;
  footer: MailFooter;
  isPublic: boolean;
  /** When it was sent: ISO 8601. */
  at: string;
  /** The first of its lists with a public archive. */
  listId: string | null;
  /** An open form of one of its lists. */
  form: string | null;
}

const isPublic = isPublicOf("n");
const SENT_AT = sql`coalesce(n.completed_at, n.created_at)`;
const isOnWeb = sql<boolean>`n.environment = 'LIVE' and n.status = 'SENT'`;

/** Whether a newsletter of the caller's is public; undefined for one that has no page. */
export async function readIsPublic(em: EntityManager, tenant: Tenant, id: string): Promise<boolean | undefined> {
  const { rows } = await sql<{ isPublic: boolean }>`
    select ${isPublic} as "isPublic" from newsletters n where ${ofTenant(tenant, "n")} and n.id = ${id} and ${isOnWeb}`.execute(
    kysely(em),
  );
  return rows[0]?.isPublic;
}

/** The reference is the authority. */
export async function readWebNewsletter(em: EntityManager, id: string): Promise<WebNewsletter | undefined> {
  const archive = ofLists("n", "min(l.id) filter (where l.has_archive)");
  const { rows } = await sql<WebNewsletter>`
    select n.id, t.id as "teamId", n.subject, n.body, coalesce(s.footer, ${footerOf()}) as footer, ${LOOK},
      ${ofLists("n", "case count(*) when 1 then min(l.name) end")} as "listName", ${isPublic} as "isPublic",
      ${isoInstant(SENT_AT)} as at, ${archive} as "listId", (
        select f.reference from forms f join newsletter_lists x on x.list_id = f.list_id
        where x.newsletter_id = n.id and f.is_open
        order by (f.list_id = ${archive}) desc nulls last, f.id limit 1) as form
    from newsletters n join teams t on t.id = n.team_id left join sends s on s.id = n.send_id
    where n.id = ${id} and ${isOnWeb}`.execute(kysely(em));
  return rows[0];
}

/** As a person without any value gets it; links of one person lead to the page itself. @throws {ApiError} as `readInThread` */
export function showNewsletter(newsletter: WebNewsletter, url: string): Promise<ShownMessage> {
  const { teamId, subject, body, footer, listName } = newsletter;
  const content = { subject: publicSubject(subject), html: body, footer, isPublic: true };
  const values = { list_name: listName, unsubscribe_url: url, tracking_url: url, web_url: url };
  return readInThread(teamId, () => showInThread(teamId, "show", content, values));
}

/** A list with a public archive. */
export interface Archive extends LinkTeam, Tenant {
  listId: string;
  listName: string;
  createdAt: string;
  /** Of its oldest open form. */
  form: string | null;
}

/** The reference is the authority. */
export async function findArchive(em: EntityManager, listId: string): Promise<Archive | undefined> {
  const { rows } = await sql<Archive>`
    select l.id as "listId", l.name as "listName", l.team_id as "teamId", l.environment, ${LOOK},
      ${isoInstant(sql`l.created_at`)} as "createdAt",
      (select f.reference from forms f where f.list_id = l.id and f.is_open order by f.id limit 1) as form
    from lists l join teams t on t.id = l.team_id
    where l.id = ${listId} and l.environment = 'LIVE' and l.has_archive`.execute(kysely(em));
  return rows[0];
}

export interface Issue extends Title {
  url: string;
  /** When it was sent: ISO 8601. */
  at: string;
}

/** The newsletters of an archive, the last first. @throws {ApiError} as `readInThread` */
export async function readIssues(em: EntityManager, vault: Vault, publicUrl: string, archive: Archive) {
  const { rows } = await sql<{ id: string; subject: string; body: string; at: string }>`
    select n.id, n.subject, left(n.body, ${MAX_READ}) as body, ${isoInstant(SENT_AT)} as at
    from (select newsletter_id from newsletter_lists where list_id = ${archive.listId}
      order by newsletter_id desc limit ${MOST_WALKED}) x
    join newsletters n on n.id = x.newsletter_id and ${ofTenant(archive, "n")}
    where n.status = 'SENT' and n.is_public is not false
    order by ${SENT_AT} desc, n.id desc limit ${MOST_SHOWN}`.execute(kysely(em));
  const { teamId, listName } = archive;
  const mails = rows.map(({ subject, body }) => ({ subject, body }));
  const titles = await readInThread(teamId, () => titlesInThread(teamId, { mails, listName }));
  return rows.map(({ id, at }, i): Issue => {
    const { title = "", text = "" } = titles[i] ?? {};
    return { url: newsletterUrl(vault, publicUrl, id), title: title || listName, text, at };
  });
}

import { type RawBuilder, sql } from "kysely";
import { type EntityManager, kysely } from "../../db/orm.ts";
import { settleHits } from "../../domain/tracking/settle.ts";
import type { CaughtMail } from "../../stack/mail-store.ts";
import { eventually } from "../support/eventually.ts";
import { type AnySender, caughtMails, readMail, type Sender } from "../support/sending.ts";

/** The user agent of a browser, with which a hit counts. */
export const BROWSER =
  "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/131.0.0.0 Safari/537.36";

/** Requests a pixel or a link as a browser does, and follows no redirect. */
export const hit = (url: string, { headers = {}, ...init }: RequestInit & { headers?: Record<string, string> } = {}) =>
  fetch(url, { redirect: "manual", ...init, headers: { "user-agent": BROWSER, ...headers } });

export interface ReceivedMail {
  email: string;
  html: string;
  text: string;
  /** Values of all `href`, in order, decoded. */
  hrefs: string[];
  /** Those that are tracked. */
  links: string[];
  pixel: string | undefined;
}

const decoded = (value: string) => value.replaceAll("&amp;", "&").replaceAll("&#34;", '"').replaceAll("&#39;", "'");

async function received(mail: CaughtMail): Promise<ReceivedMail> {
  const { html = "", text = "" } = await readMail(mail.id);
  const hrefs = [...html.matchAll(/\shref\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s>"']+))/gi)].map(([, a, b, c]) =>
    decoded(a ?? b ?? c ?? ""),
  );
  return {
    email: mail.to[0] ?? "",
    html,
    text,
    hrefs,
    links: hrefs.filter((href) => /^https?:\/\/[^/]+\/l\//.test(href)),
    pixel: /<img src="([^"]*\/o\/[^"]*)"/.exec(html)?.[1],
  };
}

export async function mailsOf(sender: AnySender): Promise<ReceivedMail[]> {
  const mails = await Promise.all((await caughtMails(sender)).map(received));
  return mails.sort((a, b) => a.email.localeCompare(b.email));
}

/** Lets the mails of a sender have been accepted an hour ago, so that no hit on them comes early. */
export async function letTimePass({ em, newsletterId }: Sender): Promise<void> {
  await sql`update send_recipients r set updated_at = r.updated_at - interval '1 hour'
    from sends s where s.id = r.send_id and s.resource_id = ${newsletterId}`.execute(kysely(em));
}

/** Lets the hits that wait have waited long enough. @param sends the condition on their `sends` */
export async function endWait(em: EntityManager, sends: RawBuilder<unknown>): Promise<void> {
  await sql`update pending_hits h set created_at = h.created_at - interval '2 minutes'
    from sends s where s.id = h.send_id and ${sends}`.execute(kysely(em.fork()));
}

/** Settles all hits on the mails of a send. */
export async function settleAll(em: EntityManager, sendId: string): Promise<void> {
  await endWait(em, sql`s.id = ${sendId}`);
  await eventually(
    async () => {
      await settleHits(em.fork(), 1_000);
      const { rows } = await sql`select from pending_hits where send_id = ${sendId}`.execute(kysely(em.fork()));
      return rows.length === 0;
    },
    // Another process may be settling.
    { what: "settled hits", everyMs: 20 },
  );
}

/** How many hits on a newsletter's mails wait. */
export async function pendingOf({ em, newsletterId }: Sender): Promise<number> {
  const { rows } = await sql`select from pending_hits h join sends s on s.id = h.send_id
    where s.resource_id = ${newsletterId}`.execute(kysely(em.fork()));
  return rows.length;
}

export async function engagementsOf({ em, newsletterId }: Sender) {
  await endWait(em, sql`s.resource_id = ${newsletterId}`);
  const { rows } = await sql<{ email: string; kind: string; count: number; first_at: string; last_at: string }>`
    select email, kind, count, first_at, last_at from engagements
    where resource_id = ${newsletterId} order by email, kind desc`.execute(kysely(em));
  return rows;
}

/** Hits on a newsletter's mails about which a rule has decided. */
export async function markedHitsOf({ em, newsletterId }: Sender) {
  await endWait(em, sql`s.resource_id = ${newsletterId}`);
  const { rows } = await sql<{ kind: string; rule: string; count: number }>`
    select h.kind, h.rule, sum(h.count)::int as count from marked_hits h join sends s on s.id = h.send_id
    where s.resource_id = ${newsletterId} group by h.kind, h.rule order by h.kind desc, h.rule`.execute(kysely(em));
  return rows;
}

import { sql } from "kysely";
import { kysely } from "../../db/orm.ts";
import type { CaughtMail } from "../../stack/mail-store.ts";
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

/** Lets the mails of a sender have been accepted a minute ago, so that no hit on them comes too soon. */
export async function letTimePass({ em, newsletterId }: Sender): Promise<void> {
  await sql`update send_recipients r set updated_at = r.updated_at - interval '1 minute'
    from sends s where s.id = r.send_id and s.resource_id = ${newsletterId}`.execute(kysely(em));
}

export async function engagementsOf({ em, newsletterId }: Sender) {
  const { rows } = await sql<{ email: string; kind: string; count: number; first_at: string; last_at: string }>`
    select email, kind, count, first_at, last_at from engagements
    where resource_id = ${newsletterId} order by email, kind desc`.execute(kysely(em));
  return rows;
}

/** Hits on a newsletter's mails that do not count. */
export async function automaticHitsOf({ em, newsletterId }: Sender) {
  const { rows } = await sql<{ kind: string; cause: string; count: number }>`
    select a.kind, a.cause, sum(a.count)::int as count from automatic_hits a join sends s on s.id = a.send_id
    where s.resource_id = ${newsletterId} group by a.kind, a.cause order by a.kind desc, a.cause`.execute(kysely(em));
  return rows;
}

import { createTransport, type SendMailOptions } from "nodemailer";
import { parseConnectionUrl } from "nodemailer/lib/shared";
import type { Env } from "../config/env.ts";
import type { EntityManager } from "../db/orm.ts";
import type { ActivityDeps } from "./deps.ts";

const CONNECTIONS = 5;

type Settings = Pick<Env, "SYSTEM_SMTP_URL" | "SMTP_HELO_NAME" | "SMTP_TIMEOUT_MS">;

/** A pool of connections for the service's own mail. A login goes out over TLS only, whatever the URL's options say. */
export const openTransport = ({ SYSTEM_SMTP_URL, SMTP_HELO_NAME: name, SMTP_TIMEOUT_MS: timeoutMs }: Settings) => {
  const server = parseConnectionUrl(SYSTEM_SMTP_URL);
  return createTransport({
    ...(name === undefined ? {} : { name }),
    ...server,
    ...(server.auth ? { requireTLS: true } : {}),
    pool: true,
    maxConnections: CONNECTIONS,
    connectionTimeout: timeoutMs,
    greetingTimeout: timeoutMs,
    socketTimeout: timeoutMs,
    disableFileAccess: true,
    disableUrlAccess: true,
  });
};

type Transport = ReturnType<typeof openTransport>;

/** Reply codes from here on are final. */
const PERMANENT = 500;

/** The server's reply code to RCPT or DATA; undefined without one, or when it refused the connection and not the mail. */
function replyCode(error: unknown): number | undefined {
  const { code, responseCode } = error as { code?: unknown; responseCode?: unknown };
  return typeof responseCode === "number" && (code === "EENVELOPE" || code === "EMESSAGE") ? responseCode : undefined;
}

/**
 * Hands one mail of the service over.
 * @param about ids for the log @returns undefined when it is to be tried again
 */
async function handOver(
  { env, log }: Pick<ActivityDeps, "env" | "log">,
  transport: Transport,
  mail: Pick<SendMailOptions, "to" | "subject" | "text" | "html">,
  about: Record<string, string>,
): Promise<"sent" | "refused" | undefined> {
  try {
    await transport.sendMail({ from: env.SYSTEM_FROM, headers: { "Auto-Submitted": "auto-generated" }, ...mail });
    return "sent";
  } catch (error) {
    const code = replyCode(error);
    log.warn({ ...about, code }, "mail of the service not accepted");
    return code !== undefined && code >= PERMANENT ? "refused" : undefined;
  }
}

const BATCH = 50;

/** Mails of a kind, which a table holds until they are handed over. */
interface DueMails<Due> {
  /** Commits before a mail leaves, so that two processes claim no mail both. */
  claim: (em: EntityManager, limit: number) => Promise<Due[]>;
  settle: (em: EntityManager, due: Due, outcome: "sent" | "refused") => Promise<void>;
  /** Without an address nothing is mailed. */
  compose: (due: Due) => { to: string | string[]; subject: string; text: string; html?: string };
  aboutOf: (due: Due) => Record<string, string>;
}

/**
 * Mails all that are due. A crash repeats a mail; one that the server refuses for good is given up.
 * @returns number of mails that the server accepted
 */
export async function sendDue<Due>(
  deps: Pick<ActivityDeps, "env" | "orm" | "log" | "stopping">,
  { claim, settle, compose, aboutOf }: DueMails<Due>,
): Promise<number> {
  const { orm, stopping } = deps;
  const transport = openTransport(deps.env);
  let sent = 0;
  const sendOne = async (one: Due) => {
    const mail = compose(one);
    const outcome = mail.to.length === 0 ? "refused" : await handOver(deps, transport, mail, aboutOf(one));
    if (outcome) await settle(orm.em.fork(), one, outcome);
    if (outcome === "sent") sent++;
  };
  try {
    while (!stopping.aborted) {
      const due = await claim(orm.em.fork(), BATCH);
      if (due.length === 0) break;
      await Promise.all(due.map(sendOne));
    }
  } finally {
    transport.close();
  }
  return sent;
}

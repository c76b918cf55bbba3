import { createTransport } from "nodemailer";
import { parseConnectionUrl } from "nodemailer/lib/shared";
import type { Env } from "../config/env.ts";
import type { EntityManager } from "../db/orm.ts";
import { scrubResponse } from "../domain/mail/smtp-answer.ts";
import { readReply } from "../domain/reports/quoted-reply.ts";
import { classifyReply, type Fault, type ReplyStage } from "../domain/reports/reply-rules.ts";
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

/** Reply codes from here on are permanent. */
const PERMANENT = 500;

/** Why a mail was not handed over. */
export interface HandOverFailure {
  /** `account`: the service's account at the relay, or the way to it. */
  about: Fault;
  /** The server said of this mail, and did not call it temporary. */
  isPermanent: boolean;
}

const STAGES: Readonly<Record<string, ReplyStage>> = { "MAIL FROM": "other", "RCPT TO": "rcpt", DATA: "data" };

/** Without the name before it. */
const addressIn = (from: string): string => /[^\s<>]+@[^\s<>]+/.exec(from)?.[0] ?? "";

const text = (value: unknown): string => (typeof value === "string" ? value : "");

/** @param error of nodemailer @param from as in the header: what names its address is about the sender */
export function readFailure(error: unknown, from: string): HandOverFailure {
  const { code, command, response, responseCode } = error as Record<string, unknown>;
  // The connection, EHLO or the login.
  if (code !== "EENVELOPE" && code !== "EMESSAGE") return { about: "account", isPermanent: false };
  // Nodemailer itself refuses an address that no command can hold.
  if (typeof responseCode !== "number") return { about: "message", isPermanent: true };
  const sender = addressIn(from).toLowerCase();
  const { fault } = classifyReply({ ...readReply(text(response), "", "", [sender]), stage: STAGES[text(command)] });
  return { about: fault, isPermanent: responseCode >= PERMANENT };
}

/**
 * Hands one mail of the service over.
 * @param about ids for the log
 */
async function handOver(
  { env, log }: Pick<ActivityDeps, "env" | "log">,
  transport: Transport,
  { fromName, ...mail }: SystemMail,
  about: Record<string, string>,
): Promise<"sent" | HandOverFailure> {
  try {
    const from = fromName ? { name: fromName, address: addressIn(env.SYSTEM_FROM) } : env.SYSTEM_FROM;
    await transport.sendMail({ from, headers: { "Auto-Submitted": "auto-generated" }, ...mail });
    return "sent";
  } catch (error) {
    const { code: failure, response, responseCode: code } = error as Record<string, unknown>;
    // A refused login may name the user.
    const reply =
      failure === "EAUTH" ? "" : [mail.to].flat().reduce((said, to) => scrubResponse(said, to), text(response));
    log.warn({ ...about, failure, code, reply }, "mail of the service not accepted");
    return readFailure(error, env.SYSTEM_FROM);
  }
}

const BATCH = 50;
/** Refusals in a row, without a mail that the relay took, after which the others that are due wait untried. */
const REFUSALS = 3;

interface SystemMail {
  to: string | string[];
  /** Shown beside the service's address, in place of its own. */
  fromName?: string;
  subject: string;
  text: string;
  html?: string;
}

/** Mails of a kind, which a table holds until they are handed over. */
interface DueMails<Due> {
  /** Commits before a mail leaves, so that two processes claim no mail both. One that is not settled is due again later. */
  claim: (em: EntityManager, limit: number) => Promise<Due[]>;
  settle: (em: EntityManager, due: Due, outcome: "sent" | "refused") => Promise<void>;
  /** Notes that a mail waits for the relay. @param failure undefined for one that was not tried */
  keep?: (em: EntityManager, due: Due, failure: HandOverFailure | undefined) => Promise<void>;
  /** Mails that the relay may refuse together: those of a team. */
  groupOf: (due: Due) => string;
  /** Without an address nothing is mailed. */
  compose: (due: Due) => SystemMail;
  aboutOf: (due: Due) => Record<string, string>;
}

/**
 * Mails all that are due. A crash repeats a mail; one that is refused for the mailbox's sake is given up, each other one stays
 * due. Once the relay refuses the service, or a group, several times in a row, the others wait with them.
 * @returns number of mails that the server accepted
 */
export async function sendDue<Due>(
  deps: Pick<ActivityDeps, "env" | "orm" | "log" | "stopping">,
  { claim, settle, keep, groupOf, compose, aboutOf }: DueMails<Due>,
): Promise<number> {
  const { orm, stopping } = deps;
  const transport = openTransport(deps.env);
  let sent = 0;
  /** Refusals in a row: of the service's account, and by group of what may be about the group's mails. */
  let ofAccount = 0;
  const byGroup = new Map<string, number>();
  const ofGroup = (group: string) => byGroup.get(group) ?? 0;
  const isRefused = (group: string) => ofAccount >= REFUSALS || ofGroup(group) >= REFUSALS;
  const note = (group: string, result: "sent" | HandOverFailure) => {
    if (result === "sent") {
      ofAccount = 0;
      byGroup.delete(group);
    } else if (result.about === "account") ofAccount++;
    else if (result.isPermanent && result.about !== "recipient") byGroup.set(group, ofGroup(group) + 1);
  };

  const sendOne = async (one: Due): Promise<void> => {
    const mail = compose(one);
    const group = groupOf(one);
    const em = orm.em.fork();
    if (mail.to.length === 0) return settle(em, one, "refused");
    if (isRefused(group)) return keep?.(em, one, undefined);
    const result = await handOver(deps, transport, mail, aboutOf(one));
    note(group, result);
    if (result !== "sent") {
      return result.about === "recipient" && result.isPermanent ? settle(em, one, "refused") : keep?.(em, one, result);
    }
    sent++;
    return settle(em, one, "sent");
  };
  try {
    while (!stopping.aborted) {
      const due = await claim(orm.em.fork(), BATCH);
      if (due.length === 0) break;
      // In random order: those that wait behind refused ones are not always the same.
      const queue = due.toSorted(() => Math.random() - 0.5).values();
      const sendQueue = async (isEnough = () => false) => {
        for (const one of queue) {
          await sendOne(one);
          if (isEnough()) break;
        }
      };
      // One by one, until the relay takes one.
      await sendQueue(() => sent > 0);
      await Promise.all(Array.from({ length: CONNECTIONS }, () => sendQueue()));
    }
  } finally {
    transport.close();
  }
  return sent;
}

import { once } from "node:events";
import type { Socket } from "node:net";
import { SMTPServer, type SMTPServerDataStream, type SMTPServerSession } from "smtp-server";
import type { ActivityDeps } from "../activities/deps.ts";
import { networkOf, plainAddress } from "../config/client-network.ts";
import { portFailure } from "../config/health.ts";
import { transaction } from "../db/transaction.ts";
import { unsubscribe } from "../domain/audience/unsubscribes.ts";
import { type MailRef, readReturnPath, readUnsubscribeAddress } from "../domain/links.ts";
import { classifyMail } from "../domain/reports/classify.ts";
import { MAX_READ_BYTES } from "../domain/reports/incoming-mail.ts";
import { reportsOf } from "../domain/reports/mail-reports.ts";
import { isUnsubscribeRequest } from "../domain/reports/unsubscribe-mail.ts";
import { ReportRecorder } from "./report-recorder.ts";

/** A larger mail is refused; of a smaller one, `MAX_READ_BYTES` are kept. */
const MAX_MAIL_BYTES = 35 * 1024 * 1024;
/** A report goes to one recipient; a relay may put the same one in an envelope with others. */
const MAX_RECIPIENTS = 20;
const IDLE_TIMEOUT_MS = 60_000;
/** However a client spends it. */
const SESSION_MS = 10 * 60_000;
/** How long a connection may go on once the process stops: a mail takes milliseconds, and an idle client would take minutes. */
const CLOSE_MS = 3_000;
const WINDOW_MS = 60_000;
/** Clients that are counted in a window; after so many others, the count starts anew. */
const MAX_CLIENTS = 50_000;
/** Share of the connections that one client may hold. */
const CLIENT_SHARE = 1 / 4;

/** Mailboxes of the domain besides return paths: those of RFC 5321 and RFC 2142, and two for feedback loops to be registered with. */
const MAILBOXES = new Set(["postmaster", "abuse", "bounces", "complaints"]);

const refusal = (responseCode: number, message: string): Error => Object.assign(new Error(message), { responseCode });
/** The client keeps the mail and tries again. */
const later = (message: string): Error => refusal(451, `4.3.0 ${message}`);

/** A mailbox of the domain: a return path or an unsubscribe address with the mail that it belongs to, or another one. */
type Mailbox = { use: "report" | "unsubscribe"; ref: MailRef } | { use: "any" };

/** Counts mails of each client in windows of a minute, and its connections. */
class Clients {
  readonly #mailsPerMinute: number;
  readonly #most: number;
  #mails = new Map<string, number>();
  #startedAt = 0;
  readonly #connections = new Map<string, number>();

  constructor(mailsPerMinute: number, connections: number) {
    this.#mailsPerMinute = mailsPerMinute;
    this.#most = Math.floor(connections * CLIENT_SHARE);
  }

  /** Counts a mail. @returns whether the client may send it */
  takeMail(client: string): boolean {
    const now = performance.now();
    if (now - this.#startedAt > WINDOW_MS || this.#mails.size >= MAX_CLIENTS) {
      this.#mails = new Map();
      this.#startedAt = now;
    }
    const count = (this.#mails.get(client) ?? 0) + 1;
    this.#mails.set(client, count);
    return count <= this.#mailsPerMinute;
  }

  /** Counts a connection until it is closed. Closes it when the client has too many, and after `SESSION_MS` in any case. */
  watch(socket: Socket): void {
    const client = clientOf(socket.remoteAddress);
    const count = (this.#connections.get(client) ?? 0) + 1;
    this.#connections.set(client, count);
    const timer = setTimeout(() => socket.destroy(), SESSION_MS);
    socket.once("close", () => {
      clearTimeout(timer);
      const left = (this.#connections.get(client) ?? 1) - 1;
      if (left > 0) this.#connections.set(client, left);
      else this.#connections.delete(client);
    });
    if (count > this.#most) socket.destroy();
  }
}

const clientOf = (address: string | undefined): string =>
  address === undefined ? "" : networkOf(plainAddress(address));

/** Reads a mail to its end and keeps its beginning. */
async function readStart(stream: SMTPServerDataStream): Promise<Buffer> {
  const kept: Buffer[] = [];
  let length = 0;
  for await (const chunk of stream as AsyncIterable<Buffer>) {
    if (length < MAX_READ_BYTES) kept.push(chunk.subarray(0, MAX_READ_BYTES - length));
    length += chunk.length;
  }
  return Buffer.concat(kept);
}

/**
 * The pool that takes bounces and complaints by mail: an SMTP server for the domain of the return paths. A mail is answered
 * with 250 once its report is committed, so that a client whose mail was lost with this process sends it again. A mail to the
 * unsubscribe address of a mail unsubscribes its recipient. Other mail is taken and forgotten. Any number of these processes
 * may run; without RETURN_PATH_DOMAIN it does nothing.
 */
export function startIntake(deps: ActivityDeps): { listen(): Promise<void>; close(): Promise<void> } {
  const { env, vault, log } = deps;
  const { RETURN_PATH_DOMAIN: domain, INTAKE_MAX_CONNECTIONS: connections } = env;
  if (domain === undefined) {
    return {
      listen: async () => log.warn("RETURN_PATH_DOMAIN is not set: no reports are taken by mail"),
      close: async () => {},
    };
  }
  const recorder = new ReportRecorder(deps);
  const clients = new Clients(env.INTAKE_MAILS_PER_MINUTE, connections);

  /** @throws the refusal of an address that is no mailbox */
  const readMailbox = (address: string): Mailbox => {
    const at = address.lastIndexOf("@");
    if (address.slice(at + 1).toLowerCase() !== domain) throw refusal(550, "5.7.1 Relaying is denied");
    const localPart = address.slice(0, at).toLowerCase();
    if (MAILBOXES.has(localPart)) return { use: "any" };
    const reported = readReturnPath(vault, localPart);
    if (reported !== undefined) return { use: "report", ref: reported };
    const unsubscribed = readUnsubscribeAddress(vault, localPart);
    if (unsubscribed !== undefined) return { use: "unsubscribe", ref: unsubscribed };
    throw refusal(550, "5.1.1 No such mailbox");
  };

  const takeReports = async (raw: Buffer, refs: readonly MailRef[]): Promise<void> => {
    const reports = reportsOf(vault, await classifyMail(raw), refs);
    if (reports.length === 0) return;
    const outcomes = await recorder.record(reports);
    if (outcomes.includes("unsettled")) throw later("The mail that this is about is still being sent");
  };

  const takeUnsubscribes = async (raw: Buffer, refs: readonly MailRef[], sender: string): Promise<void> => {
    if (!(await isUnsubscribeRequest(raw, sender))) return;
    for (const ref of refs) await transaction(deps.orm.em.fork(), (em) => unsubscribe(em, ref, "mailto", "lists"));
  };

  const take = async (stream: SMTPServerDataStream, { envelope }: SMTPServerSession): Promise<string> => {
    const raw = await readStart(stream);
    if (stream.sizeExceeded) throw refusal(552, "5.3.4 The mail is too large");
    const mailboxes = envelope.rcptTo.map(({ address }) => readMailbox(address));
    const refsOf = (use: Mailbox["use"]) =>
      mailboxes.flatMap((box) => (box.use === use && "ref" in box ? [box.ref] : []));
    const unsubscribes = refsOf("unsubscribe");
    if (unsubscribes.length > 0) {
      await takeUnsubscribes(raw, unsubscribes, envelope.mailFrom ? envelope.mailFrom.address : "");
    }
    if (unsubscribes.length < mailboxes.length) await takeReports(raw, refsOf("report"));
    return "2.0.0 Taken";
  };

  const server = new SMTPServer({
    name: domain,
    banner: "Mailkeel",
    disabledCommands: ["AUTH", "STARTTLS"],
    disableReverseLookup: true,
    authOptional: true,
    size: MAX_MAIL_BYTES,
    maxClients: connections,
    maxRecipients: MAX_RECIPIENTS,
    socketTimeout: IDLE_TIMEOUT_MS,
    closeTimeout: Math.min(env.SHUTDOWN_GRACE_MS, CLOSE_MS),
    lenientAddressParsing: true,
    onMailFrom: (_address, { remoteAddress }, done) =>
      done(clients.takeMail(clientOf(remoteAddress)) ? null : refusal(450, "4.7.1 Too many mails; try again later")),
    onRcptTo: ({ address }, _session, done) => {
      try {
        readMailbox(address);
        done();
      } catch (error) {
        done(error as Error);
      }
    },
    onData: (stream, session, done) => {
      take(stream, session).then(
        (message) => done(null, message),
        (error: Error & { responseCode?: number }) => {
          if (error.responseCode !== undefined) return done(error);
          // A client that hangs up is no failure of the intake.
          const level = "code" in error && error.code === "ECONNECTION" ? "debug" : "error";
          log[level]({ err: error }, "a mail was not recorded; its sender tries again");
          done(later("Try again later"));
        },
      );
    },
  });
  // A client that hangs up is no failure of the intake.
  server.on("error", (error) => log.debug({ err: error }, "a connection of the intake failed"));
  server.server.on("connection", (socket) => clients.watch(socket));

  return {
    async listen() {
      const { INTAKE_SMTP_PORT: port, INTAKE_HOST: host } = env;
      const listener = server.listen(port, host);
      await once(listener, "listening").catch((cause) => {
        throw portFailure({ host: "INTAKE_HOST", port: "INTAKE_SMTP_PORT" }, host, port, cause);
      });
      log.info({ address: listener.address() }, "the intake takes reports");
    },
    close: () => new Promise((closed) => server.close(() => closed())),
  };
}

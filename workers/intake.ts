import { once } from "node:events";
import type { Registry } from "prom-client";
import { SMTPServer, type SMTPServerDataStream, type SMTPServerSession } from "smtp-server";
import type { ActivityDeps } from "../activities/deps.ts";
import { portFailure } from "../config/health.ts";
import { atMostOnceAMinute } from "../config/log.ts";
import { UNKNOWN_REPORTER } from "../db/entities/engagement.ts";
import { transaction } from "../db/transaction.ts";
import { unsubscribe } from "../domain/audience/unsubscribes.ts";
import { type MailAddress, type MailRef, readMailAddress } from "../domain/mail/links.ts";
import { classifyMail } from "../domain/reports/classify.ts";
import { MAX_READ_BYTES } from "../domain/reports/incoming-mail.ts";
import { reportsOf } from "../domain/reports/mail-reports.ts";
import { isUnsubscribeRequest } from "../domain/reports/unsubscribe-mail.ts";
import { openReporters } from "./feedback-loops.ts";
import { readCertificate } from "./intake-certificate.ts";
import { IntakeClients, type IntakeTimes } from "./intake-clients.ts";
import { type IntakeRefusal, openIntakeMetrics } from "./intake-metrics.ts";
import { openReportBatches } from "./report-batches.ts";

/** A larger mail is refused; of a smaller one, `MAX_READ_BYTES` are kept. */
const MAX_MAIL_BYTES = 35 * 1024 * 1024;
/** A mail that is too large is read to its end, so that the client gets the refusal, but not beyond this. */
const MAX_DISCARDED_BYTES = 64 * 1024 * 1024;
/** A report goes to one recipient; a relay may put several recipients into one envelope. */
const MAX_RECIPIENTS = 20;
/**
 * How long connections may continue once the process stops: a mail takes milliseconds, and an idle client would stay
 * for minutes.
 */
const CLOSE_MS = 3_000;
/** The first size of the buffer for a mail's beginning; most reports fit. */
const FIRST_BYTES = 16 * 1024;

export const INTAKE_TIMES: IntakeTimes & { certificateMs: number } = {
  idleMs: 60_000,
  mailMs: 2 * 60_000,
  sessionMs: 10 * 60_000,
  checkMs: 1_000,
  /** How often the files of the certificate are read again. */
  certificateMs: 10_000,
};

/**
 * Mailboxes of the domain besides return paths: those of RFC 5321 and RFC 2142, and two to register for feedback loops.
 */
const MAILBOXES = new Set(["postmaster", "abuse", "bounces", "complaints"]);

/** A mailbox of the domain: a return path or an unsubscribe address with its mail, or one of `MAILBOXES`. */
type Mailbox = MailAddress | { use: "any" };

/** The answer to a mail or an address that the intake refuses. */
class Refusal extends Error {
  readonly reason: IntakeRefusal;
  readonly responseCode: number;

  constructor(reason: IntakeRefusal, responseCode: number, message: string) {
    super(message);
    this.reason = reason;
    this.responseCode = responseCode;
  }
}

/** A refusal after which the client keeps the mail and tries again. */
const later = (reason: IntakeRefusal, message: string) => new Refusal(reason, 451, `4.3.0 ${message}`);

/**
 * Reads a mail to its end and keeps its beginning. The beginning is copied: a mail of many short lines comes in pieces,
 * and each piece would keep a whole buffer in memory.
 * @param onTooLong called beyond `MAX_DISCARDED_BYTES`
 */
async function readStart(stream: SMTPServerDataStream, onTooLong: () => void): Promise<Buffer> {
  let kept = Buffer.allocUnsafe(FIRST_BYTES);
  let length = 0;
  for await (const chunk of stream as AsyncIterable<Buffer>) {
    if (length < MAX_READ_BYTES) {
      const end = Math.min(length + chunk.length, MAX_READ_BYTES);
      if (end > kept.length) kept = Buffer.concat([kept], Math.min(Math.max(end, kept.length * 2), MAX_READ_BYTES));
      chunk.copy(kept, length);
    }
    length += chunk.length;
    if (length > MAX_DISCARDED_BYTES) onTooLong();
  }
  return kept.subarray(0, length);
}

/**
 * The pool that takes bounces and complaints by mail: an SMTP server for the domain of the return paths. A mail is
 * answered with 250 once its report is committed, so that the client sends it again if this process ends before. A mail
 * to the unsubscribe address of a sent mail unsubscribes its recipient. Other mail is accepted and dropped. Any number
 * of these processes may run; without RETURN_PATH_DOMAIN the pool does nothing.
 * @param dnsServers that have the keys of feedback loops; the system's unless given
 */
export function startIntake(
  deps: Pick<ActivityDeps, "env" | "orm" | "vault" | "log">,
  registry: Registry,
  times = INTAKE_TIMES,
  dnsServers: readonly string[] = [],
): { listen(): Promise<void>; close(): Promise<void> } {
  const { env, vault, log } = deps;
  const { RETURN_PATH_DOMAIN: domain, INTAKE_MAX_CONNECTIONS: connections } = env;
  if (domain === undefined) {
    return {
      listen: async () => log.warn("RETURN_PATH_DOMAIN is not set: no reports are taken by mail"),
      close: async () => {},
    };
  }
  const record = openReportBatches(deps);
  let reportsWaiting = 0;
  const reporterOf = openReporters(env, domain, dnsServers);
  const metrics = openIntakeMetrics(registry, {
    connections: () => server.connections.size,
    reportsWaiting: () => reportsWaiting,
  });
  const limits = { connections, mailsPerMinute: env.INTAKE_MAILS_PER_MINUTE, times };
  const clients = new IntakeClients(limits);
  let certificate = readCertificate(env);

  /** @throws the refusal of an address that is no mailbox */
  const readMailbox = (address: string): Mailbox => {
    const at = address.lastIndexOf("@");
    if (address.slice(at + 1).toLowerCase() !== domain) throw new Refusal("recipient", 550, "5.7.1 Relaying is denied");
    const localPart = address.slice(0, at).toLowerCase();
    if (MAILBOXES.has(localPart)) return { use: "any" };
    const mailbox = readMailAddress(vault, localPart);
    if (mailbox === undefined) throw new Refusal("recipient", 550, "5.1.1 No such mailbox");
    return mailbox;
  };

  const takeReports = async (raw: Buffer, refs: readonly MailRef[], session: SMTPServerSession): Promise<void> => {
    const mail = await classifyMail(raw);
    const reports = reportsOf(vault, mail, refs);
    if (reports === undefined) return metrics.reported("none");
    if (reports.length === 0) {
      log.info({ kind: mail.kind, reporter: mail.reporter }, "a report shows no mail that was sent here");
      return metrics.reported("unidentified");
    }
    const isComplaint = reports.some(({ kind }) => kind === "complaint");
    const reporter = isComplaint ? await reporterOf(raw, session.remoteAddress) : "known";
    if (reporter !== "known") {
      for (const report of reports) report.kind = UNKNOWN_REPORTER;
      const facts = { reporter: mail.reporter, client: session.remoteAddress, isUnanswered: reporter === "unanswered" };
      log.info(facts, "a complaint of an unknown reporter suppresses its recipient and does not count");
    }
    reportsWaiting += reports.length;
    const outcomes = await record(reports).finally(() => {
      reportsWaiting -= reports.length;
    });
    for (const outcome of outcomes) metrics.reported(outcome);
    // Its recipient is suppressed by now. The loop sends its report again, and that one counts.
    if (reporter === "unanswered") throw later("unverified", "DNS did not answer for the key of the signature");
    if (outcomes.includes("unsettled")) throw later("unsettled", "The mail that this is about is still being sent");
  };

  const takeUnsubscribes = async (raw: Buffer, refs: readonly MailRef[], session: SMTPServerSession): Promise<void> => {
    const { mailFrom } = session.envelope;
    const sender = mailFrom ? mailFrom.address : "";
    const isRequest = await isUnsubscribeRequest(raw, sender);
    if (!isRequest) return metrics.reported("none");
    for (const ref of refs) {
      await transaction(deps.orm.em.fork(), (em) => unsubscribe(em, deps.vault, ref, "mailto", "lists"));
      metrics.reported("unsubscribe");
    }
  };

  const take = async (raw: Buffer, stream: SMTPServerDataStream, session: SMTPServerSession): Promise<void> => {
    if (stream.sizeExceeded) throw new Refusal("size", 552, "5.3.4 The mail is too large");
    const mailboxes = session.envelope.rcptTo.map(({ address }) => readMailbox(address));
    const refsOf = (use: Mailbox["use"]) =>
      mailboxes.flatMap((box) => (box.use === use && "ref" in box ? [box.ref] : []));
    const unsubscribes = refsOf("unsubscribe");
    if (unsubscribes.length > 0) await takeUnsubscribes(raw, unsubscribes, session);
    if (unsubscribes.length < mailboxes.length) await takeReports(raw, refsOf("report"), session);
  };

  /** The refusal that a client gets for an error. An error that is not itself a refusal is logged. */
  const refusalOf = (error: unknown): Refusal => {
    if (error instanceof Refusal) return error;
    log.error({ err: error }, "a mail was not recorded; its sender tries again");
    return later("unavailable", "Try again later");
  };

  const answer = async (stream: SMTPServerDataStream, session: SMTPServerSession): Promise<Refusal | null> => {
    const raw = await readStart(stream, () => closeThose("size", (other) => other === session));
    clients.endMail(session);
    const readAt = performance.now();
    const refusal = await take(raw, stream, session).then(() => null, refusalOf);
    if (refusal) metrics.refused(refusal.reason);
    metrics.answered((performance.now() - readAt) / 1_000);
    return refusal;
  };

  const server = new SMTPServer({
    name: domain,
    banner: "Mailkeel",
    // Without a certificate, STARTTLS would show the one of the package `smtp-server`, whose key is public.
    disabledCommands: certificate === undefined ? ["AUTH", "STARTTLS"] : ["AUTH"],
    ...certificate,
    disableReverseLookup: true,
    authOptional: true,
    size: MAX_MAIL_BYTES,
    maxClients: connections,
    maxRecipients: MAX_RECIPIENTS,
    socketTimeout: times.idleMs,
    closeTimeout: Math.min(env.SHUTDOWN_GRACE_MS, CLOSE_MS),
    lenientAddressParsing: true,
    onConnect: (session, done) => {
      clients.opened(session);
      done();
    },
    onMailFrom: (_address, session, done) => {
      if (clients.takeMail(session)) return done();
      metrics.refused("mails");
      done(new Refusal("mails", 450, "4.7.1 Too many mails; try again later"));
    },
    onRcptTo: ({ address }, _session, done) => {
      try {
        readMailbox(address);
        done();
      } catch (error) {
        const refusal = refusalOf(error);
        metrics.refused(refusal.reason);
        done(refusal);
      }
    },
    onData: (stream, session, done) => {
      answer(stream, session).then(
        (refusal) => done(refusal, "2.0.0 Taken"),
        (error: Error) => {
          // A client that hangs up in the middle of its mail is no failure of the intake.
          log.debug({ err: error }, "a mail did not come to its end");
          done(error);
        },
      );
    },
  });
  // A client that hangs up is no failure of the intake.
  server.on("error", (error) => log.debug({ err: error }, "a connection of the intake failed"));
  server.server.on("connection", (socket) => {
    if (clients.admit(socket)) return;
    metrics.refused("connections");
    socket.destroy();
  });
  const closeThose = (reason: IntakeRefusal, isConcerned: (session: SMTPServerSession) => boolean): void => {
    for (const connection of server.connections) {
      if (!isConcerned(connection.session)) continue;
      metrics.refused(reason);
      connection.close();
    }
  };
  const checking = setInterval(() => {
    closeThose("slow", (session) => clients.isSlow(session));
    clients.forgetClosed();
  }, times.checkMs).unref();

  const rarely = atMostOnceAMinute();
  const renewCertificate = (): void => {
    try {
      const renewed = readCertificate(env);
      if (renewed === undefined || (renewed.key === certificate?.key && renewed.cert === certificate.cert)) return;
      certificate = renewed;
      server.updateSecureContext(renewed);
      log.info("the intake shows a new certificate");
    } catch (error) {
      rarely("certificate", () => log.error({ err: error }, "the intake keeps the certificate that it had"));
    }
  };
  const renewing = certificate && setInterval(renewCertificate, times.certificateMs).unref();

  return {
    async listen() {
      const { INTAKE_SMTP_PORT: port, INTAKE_HOST: host } = env;
      const listener = server.listen(port, host);
      await once(listener, "listening").catch((cause) => {
        throw portFailure({ host: "INTAKE_HOST", port: "INTAKE_SMTP_PORT" }, host, port, cause);
      });
      log.info({ address: listener.address() }, "the intake takes reports");
    },
    close: async () => {
      clearInterval(renewing);
      await new Promise<void>((closed) => server.close(() => closed()));
      clearInterval(checking);
    },
  };
}

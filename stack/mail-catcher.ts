import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { SMTPServer, type SMTPServerSession } from "smtp-server";
import { type FaultStage, Faults } from "./mail-faults.ts";
import { mailPages } from "./mail-pages.ts";
import { MailStore } from "./mail-store.ts";

const MAX_MESSAGE_BYTES = 25 * 1024 * 1024;
const IDLE_TIMEOUT_MS = 10 * 60_000;

export interface MailCatcher {
  smtpPort: number;
  httpPort: number;
  close: () => Promise<void>;
}

class SmtpError extends Error {
  readonly responseCode: number;

  constructor(message: string, responseCode: number) {
    super(message);
    this.responseCode = responseCode;
  }
}

/**
 * An SMTP server that delivers nothing and shows the mail that it got: a page, JSON, and faults on demand for tests.
 * Any login is accepted, and none is needed.
 */
export async function startMailCatcher(options: {
  smtpPort: number;
  httpPort: number;
  host: string;
}): Promise<MailCatcher> {
  const store = new MailStore();
  const faults = new Faults();

  /** Lets the fault rules have their way, then answers. */
  const answer = (
    stage: FaultStage,
    session: SMTPServerSession,
    addresses: string[],
    done: (error?: Error | null) => void,
    taken: () => void = () => {},
  ): void => {
    const rule = faults.take(stage, addresses);
    if (!rule) {
      done();
      return;
    }
    const act = () => {
      if (rule.drop) {
        if (rule.taken) taken();
        cut(session);
      } else done(rule.code ? new SmtpError(rule.message, rule.code) : null);
    };
    if (rule.delayMs > 0) setTimeout(act, rule.delayMs);
    else act();
  };

  const server = new SMTPServer({
    banner: "Mailkeel mail catcher",
    authOptional: true,
    allowInsecureAuth: true,
    authMethods: ["PLAIN", "LOGIN", "XOAUTH2"],
    // No certificate here, and a client that insists on TLS should learn so at once.
    disabledCommands: ["STARTTLS"],
    disableReverseLookup: true,
    size: MAX_MESSAGE_BYTES,
    rejectOversized: true,
    socketTimeout: IDLE_TIMEOUT_MS,
    closeTimeout: 100,
    noDelay: true,
    lenientAddressParsing: true,
    onConnect: (session, done) => answer("connect", session, [], done),
    onAuth: (auth, session, done) =>
      answer("auth", session, [auth.username ?? ""], (error) =>
        error ? done(error) : done(null, { user: auth.username ?? "anyone" }),
      ),
    onMailFrom: ({ address }, session, done) => answer("mail", session, [address], done),
    onRcptTo: ({ address }, session, done) => answer("rcpt", session, [address], done),
    onData: (stream, session, done) => {
      const chunks: Buffer[] = [];
      stream.on("data", (chunk: Buffer) => chunks.push(chunk));
      stream.on("end", () => {
        const { mailFrom, rcptTo } = session.envelope;
        const to = rcptTo.map(({ address }) => address);
        const take = () => {
          if (!stream.sizeExceeded) store.add(mailFrom ? mailFrom.address : "", to, Buffer.concat(chunks));
        };
        const reply = (error?: Error | null) => {
          if (!error) take();
          done(error);
        };
        answer("data", session, to, reply, take);
      });
    },
  });
  // A client that hangs up in the middle is no failure of the catcher.
  server.on("error", (error) => console.error(error.message));

  const cut = ({ id }: SMTPServerSession) => {
    for (const connection of server.connections as Set<{ id: string; _socket?: { destroy: () => void } }>) {
      if (connection.id === id) connection._socket?.destroy();
    }
  };

  const smtp = server.listen(options.smtpPort, options.host);
  await once(smtp, "listening");
  const http = mailPages(store, faults).listen(options.httpPort, options.host);
  await once(http, "listening");
  return {
    smtpPort: (smtp.address() as AddressInfo).port,
    httpPort: (http.address() as AddressInfo).port,
    close: async () => {
      http.closeAllConnections();
      await Promise.all([
        new Promise<void>((done) => server.close(() => done())),
        new Promise((done) => http.close(done)),
      ]);
    },
  };
}

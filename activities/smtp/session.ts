import { once } from "node:events";
import { connect, type Socket } from "node:net";
import type { Readable, Writable } from "node:stream";
import SMTPConnection, { type SMTPConnectionOptions, type SMTPError } from "nodemailer/lib/smtp-connection";
import XOAuth2 from "nodemailer/lib/xoauth2";
import { TokenError } from "../../domain/account-tokens.ts";
import { AddressRefused, isLoopback, NameNotResolved } from "../../domain/address-guard.ts";
import { connectOptions } from "../../domain/connect-options.ts";
import { elapsedMs } from "../../domain/elapsed.ts";
import type { FilledMessage } from "../../domain/mail/message.ts";
import type { AccountFailure, MailOutcome } from "../../domain/mail/outcome.ts";
import {
  classifyAnswer,
  classifyOpening,
  type MessageAnswer,
  type MessageStage,
  type NetworkFailure,
  type OpeningAnswer,
  parseReply,
} from "../../domain/mail/smtp-answer.ts";
import type { SmtpGuard } from "../../domain/mail/smtp-guard.ts";

/** How to reach a sending account's SMTP server. */
export interface SmtpAccount {
  host: string;
  port: number;
  /** Checks the server's port and addresses at every connection. */
  guard: SmtpGuard;
  /** `tls` from the first byte, `starttls` insists on the upgrade, `none` stays in clear text */
  secure: "none" | "starttls" | "tls";
  user?: string | undefined;
  pass?: string | undefined;
  /**
   * Returns a token for a login by XOAUTH2, in place of the password: never the token that the server has just refused.
   * It may reject with a TokenError.
   */
  accessToken?: ((refused?: string) => Promise<string>) | undefined;
  /** Name given with EHLO; the machine's own by default */
  name?: string | undefined;
  /** How long a reply may be awaited */
  timeoutMs: number;
  /** Accept a certificate that does not verify; only for tests and private relays */
  allowUnverifiedTls?: boolean | undefined;
}

/** Longest time a message may be in flight on one connection: as long as its four replies may be awaited. */
export const messageDeadlineMs = (timeoutMs: number): number => 4 * timeoutMs;

/** Longest reply that is read; a real one has a line or two. */
const MAX_REPLY_BYTES = 65_536;
/** How long a server may take to close its side after ours is closed. */
const CLOSE_TIMEOUT_MS = 1_000;

/**
 * One SMTP session: nodemailer's connection, and whether a final dot may have left.
 *
 * A message is handed to nodemailer as a stream, and a stream is piped only when the server has answered DATA with 354.
 * So a message that fails before `pipe` is called was never sent; from then on body and dot are on their way, and only
 * the server's reply says whether it was accepted.
 */
export class SmtpSession {
  /** When the session last became idle or busy, as `elapsedMs()`. */
  since = elapsedMs();
  /** Messages handed to it so far. */
  messages = 0;
  /** Called once when the session has ended, after the outcome of a message in flight. */
  onEnd: () => void = () => {};
  readonly #connection: SMTPConnection;
  readonly #account: SmtpAccount;
  #opened: ((failure?: AccountFailure) => void) | undefined;
  #answered: ((outcome: MailOutcome) => void) | undefined;
  /** Recipient of the message in flight. */
  #to: string | undefined;
  /** For a login by XOAUTH2. */
  #token: string | undefined;
  /** Until nodemailer has it. */
  #connecting: Socket | undefined;
  #connectTimer: NodeJS.Timeout | undefined;
  #loggingIn = false;
  #dotMayHaveLeft = false;
  #cut: NetworkFailure = "lost";

  constructor(account: SmtpAccount) {
    this.#account = account;
    this.#connection = new SMTPConnection(connectionOptions(account));
    takeRepliesTogether(this.#connection);
    // The first error is the cause; those that follow from it are ignored.
    this.#connection.on("error", (error: SMTPError) => this.#reportOpened(this.#openingAnswer(error)));
    // nodemailer answers a message in flight right after "end".
    this.#connection.once("end", () => setImmediate(() => this.#finish()));
  }

  get ended(): boolean {
    return this.#connection.destroyed;
  }

  /** Whether the server takes addresses whose local part is not ASCII. */
  get knowsSmtpUtf8(): boolean {
    // Not in nodemailer's types; a test fails should it ever go.
    const { _supportedExtensions } = this.#connection as unknown as { _supportedExtensions: readonly string[] };
    return _supportedExtensions.includes("SMTPUTF8");
  }

  /** Connects, upgrades to TLS and logs in; `done` gets the failure, if there was one. */
  open(done: (failure?: AccountFailure) => void): void {
    this.#opened = done;
    const { accessToken } = this.#account;
    if (!accessToken) {
      this.#openSocket();
      return;
    }
    // Before the connection is made: a server waits for a login a short time only.
    accessToken().then(
      (token) => {
        this.#token = token;
        if (!this.ended) this.#openSocket();
      },
      (error: unknown) => this.#endOpening(tokenFailure(error)),
    );
  }

  #openSocket(): void {
    this.#connectTimer = setTimeout(
      () => this.#reportOpened({ stage: "connect", network: "timeout" }),
      this.#account.timeoutMs,
    );
    this.#connect().then(
      (socket) => this.#greet(socket),
      (error: unknown) => this.#reportOpened({ stage: "connect", network: connectFailure(error) }),
    );
  }

  /** Connects to an address that the guard has just checked: nodemailer would look the host up once more. */
  async #connect(): Promise<Socket> {
    const { guard, host, port } = this.#account;
    const addresses = await guard.resolve(host, port);
    if (this.ended) throw new Error("The session was closed while its host was looked up");
    this.#connecting = connect(connectOptions(host, port, addresses));
    await once(this.#connecting, "connect");
    return this.#connecting;
  }

  /** Hands the open socket to nodemailer, for the greeting, TLS and the login. */
  #greet(socket: Socket): void {
    clearTimeout(this.#connectTimer);
    this.#connecting = undefined;
    if (this.ended) return void socket.destroy();
    const isOnLoopback = isLoopback(socket.remoteAddress ?? "");
    this.#connection.options.connection = socket;
    this.#connection.connect((error) => {
      if (error) return this.#reportOpened(this.#openingAnswer(error));
      const { user, pass } = this.#account;
      if (!user) return this.#reportOpened();
      if (!this.#connection.secure && !isOnLoopback) {
        return this.#reportOpened({ stage: "connect", network: "clear_text" });
      }
      this.#loggingIn = true;
      if (this.#token !== undefined) return this.#logInWithToken(user, this.#token);
      this.#connection.login({ user, pass: pass ?? "" }, (failure) => this.#reportLogin(failure));
    });
  }

  /** A server may refuse a token that has not expired, so another token is tried once. */
  #logInWithToken(user: string, token: string): void {
    const { accessToken } = this.#account;
    this.#connection.login(xoauth2(user, token), (failure) => {
      if (!failure || !accessToken || parseReply(failure.response ?? "").code !== 535) {
        return this.#reportLogin(failure);
      }
      accessToken(token).then(
        (another) => {
          if (!this.ended) this.#connection.login(xoauth2(user, another), (refused) => this.#reportLogin(refused));
        },
        (error: unknown) => this.#endOpening(tokenFailure(error)),
      );
    });
  }

  #reportLogin(failure: SMTPError | null | undefined): void {
    this.#reportOpened(failure ? this.#openingAnswer(failure) : undefined);
  }

  /** Sends one message; `done` is called exactly once. */
  send({ envelope, message, signature }: FilledMessage, done: (outcome: MailOutcome) => void): void {
    this.#answered = done;
    this.#to = envelope.to;
    this.#dotMayHaveLeft = false;
    this.since = elapsedMs();
    this.messages++;
    const write = (parts: readonly Buffer[], dotStuffing: Readable & Writable) => {
      // A process or machine that was suspended resumes here before any of its timers has fired.
      if (elapsedMs() - this.since > messageDeadlineMs(this.#account.timeoutMs)) return this.destroy("timeout");
      this.#dotMayHaveLeft = true;
      this.#writeBody(parts, dotStuffing);
    };
    const source = {
      pipe: (dotStuffing: Readable & Writable) => {
        if (signature === undefined) return write([message], dotStuffing);
        // The signature is usually ready by now: it was made while the server answered the envelope.
        signature.then(
          (header) => {
            // The message has its outcome already, with no dot sent.
            if (this.ended) return;
            // The server answered before it had the body: the next message on this connection could be taken for that
            // body.
            if (this.#answered !== done) return this.destroy();
            write([header, message], dotStuffing);
          },
          () => this.destroy(),
        );
      },
    };
    // nodemailer calls only `pipe`; a real stream for each message would cost more than sending it.
    this.#connection.send({ from: envelope.from, to: envelope.to }, source as unknown as Readable, (error, info) => {
      if (error) this.#report(this.#messageAnswer(error));
      else this.#report({ stage: "dot", ...parseReply(info.response), response: info.response });
    });
  }

  /**
   * Makes the session ready for its next message: drops the transaction that a refusal before the body left open.
   * `done` is not called when the session has ended or ends first.
   */
  makeReady(done: () => void): void {
    if (this.ended) return;
    const transactionIsOpen = !this.#dotMayHaveLeft;
    if (!transactionIsOpen) {
      done();
      return;
    }
    this.#connection.reset((error) => {
      if (error) this.destroy();
      else done();
    });
  }

  /** Ends an idle session politely, and one that is still being opened at once. */
  quit(): void {
    if (!this.ended && this.#opened === undefined) this.#connection.quit();
    this.#connection.close();
  }

  /** Cuts the session off; a message in flight gets the outcome of the network failure `network`. */
  destroy(network: "lost" | "timeout" = "lost"): void {
    this.#cut = network;
    this.#connection.close();
  }

  /**
   * Body and dot go to the socket in one write. nodemailer's dot-stuffing reads every byte in JavaScript and makes two
   * writes of it, which is half the cost of a mail: only messages that need it go through it.
   */
  #writeBody(parts: readonly Buffer[], dotStuffing: Readable & Writable): void {
    const socket = this.#connection._socket;
    if (!socket || !parts.every(isDotFree)) {
      for (const part of parts) dotStuffing.write(part);
      dotStuffing.end();
      return;
    }
    dotStuffing.unpipe(socket);
    socket.cork();
    for (const part of parts) socket.write(part);
    socket.write(FINAL_DOT);
    socket.uncork();
  }

  #reportOpened(answer?: OpeningAnswer): void {
    this.#endOpening(answer && classifyOpening(answer, this.#account.user));
  }

  #endOpening(failure?: AccountFailure): void {
    const done = this.#opened;
    this.#opened = undefined;
    clearTimeout(this.#connectTimer);
    if (failure) this.#connection.close();
    done?.(failure);
  }

  #report(answer: MessageAnswer): void {
    const done = this.#answered;
    this.#answered = undefined;
    // The server closes the session: no other message may begin on it.
    if (answer.code === 421) this.destroy();
    done?.(classifyAnswer(answer, this.#to));
  }

  #finish(): void {
    this.#connecting?.destroy();
    this.#reportOpened({ stage: "connect", network: this.#cut });
    this.#report({ stage: this.#dotMayHaveLeft ? "dot" : "mail", network: this.#cut });
    this.onEnd();
  }

  #openingAnswer(error: SMTPError): OpeningAnswer {
    const { response } = error;
    const reply = response === undefined ? {} : parseReply(response);
    if (this.#loggingIn) {
      // nodemailer refused before asking the server, e.g. for lack of a login method that both sides support.
      const refused = error.code === "EAUTH" && reply.code === undefined ? { code: 535 } : reply;
      return { stage: "auth", ...refused, response, network: networkFailure(error) };
    }
    // Whatever the server replied to STARTTLS, there is no TLS.
    if (error.code === "ETLS") return { stage: "connect", network: "tls", response };
    return {
      stage: response === undefined ? "connect" : "greeting",
      ...reply,
      response,
      network: networkFailure(error),
    };
  }

  #messageAnswer(error: SMTPError): MessageAnswer {
    const { command = "", response } = error;
    const reply = response === undefined ? {} : parseReply(response);
    const stage = this.#dotMayHaveLeft ? "dot" : (STAGES[command] ?? "mail");
    if (command in STAGES) return { stage, ...reply, response, network: networkFailure(error) };
    // An unsolicited reply: before the dot only 421 counts, after it none does.
    const closing = reply.code === 421 && stage !== "dot" ? reply : {};
    return { stage, ...closing, response, network: networkFailure(error) };
  }
}

/**
 * The failure for an error without an access token. An error of another kind, such as Postgres being away, may pass.
 */
const tokenFailure = (error: unknown): AccountFailure =>
  error instanceof TokenError
    ? error.failure
    : { outcome: "account_failure", reason: "token_unavailable", temporary: true };

/** nodemailer's login by XOAUTH2, which repeats a token that the server answered with a challenge (334). */
function xoauth2(user: string, accessToken: string): { oauth2: XOAuth2 } {
  return { oauth2: new XOAuth2({ user, accessToken }) };
}

/**
 * With PIPELINING the replies to MAIL, RCPT and DATA come together, and nodemailer takes one in each turn of the event
 * loop. While other connections are busy a turn lasts a millisecond or more, and the body waits for two of them; here it
 * leaves in the turn that brought the replies. Replies outside of a message keep their turns: what follows one may be
 * another protocol (STARTTLS).
 */
function takeRepliesTogether(connection: SMTPConnection): void {
  // Not in nodemailer's types; without them replies are processed as nodemailer does.
  const inner = connection as unknown as {
    _processResponse(): unknown;
    _responseQueue?: readonly unknown[];
    _pendingSend?: unknown;
  };
  const takeOne = inner._processResponse;
  inner._processResponse = () => {
    for (let left = inner._responseQueue?.length ?? 0; ; left--) {
      takeOne.call(connection);
      const queued = inner._responseQueue?.length ?? 0;
      // As many as before: the last reply is not whole yet.
      if (queued === 0 || queued >= left || !inner._pendingSend || connection.destroyed) return;
    }
  };
}

const STAGES: Record<string, MessageStage> = { "MAIL FROM": "mail", "RCPT TO": "rcpt", DATA: "data" };

const FINAL_DOT = Buffer.from(".\r\n");

/** Whether the last line is ended and no line starts with a dot, for a server that ends lines at CR or LF alone too. */
function isDotFree(message: Buffer): boolean {
  return (
    message[0] !== 0x2e && !message.includes("\n.") && !message.includes("\r.") && message.subarray(-2).equals(CRLF)
  );
}

const CRLF = Buffer.from("\r\n");

function networkFailure({ code, originalCode = "" }: SMTPError): NetworkFailure {
  switch (code) {
    case "ETLS":
      return "tls";
    case "ETIMEDOUT":
      return "timeout";
    case "EPROTOCOL":
      return "protocol";
    case "ESOCKET":
      return socketFailure(originalCode);
    default:
      return "lost";
  }
}

/** Why no connection was made. */
function connectFailure(error: unknown): NetworkFailure {
  if (error instanceof AddressRefused) return "forbidden";
  if (error instanceof NameNotResolved) return "name";
  const { code } = error as NodeJS.ErrnoException;
  return socketFailure(code ?? "");
}

function socketFailure(code: string): NetworkFailure {
  if (/CERT|SSL|TLS|SIGNATURE/.test(code)) return "tls";
  if (code === "ETIMEDOUT") return "timeout";
  return /^(ECONNREFUSED|EHOSTUNREACH|ENETUNREACH|EACCES|EPERM)$/.test(code) ? "refused" : "lost";
}

function connectionOptions(account: SmtpAccount): SMTPConnectionOptions {
  const { host, port, secure, name, timeoutMs } = account;
  return {
    host,
    port,
    name,
    secure: secure === "tls",
    requireTLS: secure === "starttls",
    ignoreTLS: secure === "none",
    tls: { rejectUnauthorized: account.allowUnverifiedTls !== true, minVersion: "TLSv1.2" },
    connectionTimeout: timeoutMs,
    greetingTimeout: timeoutMs,
    socketTimeout: timeoutMs,
    socketCloseTimeout: CLOSE_TIMEOUT_MS,
    maxResponseSize: MAX_REPLY_BYTES,
    logger: false,
  };
}

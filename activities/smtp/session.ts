import { once } from "node:events";
import { connect, type Socket } from "node:net";
import SMTPConnection, { type SMTPConnectionOptions, type SMTPError } from "nodemailer/lib/smtp-connection";
import XOAuth2 from "nodemailer/lib/xoauth2";
import { TokenError } from "../../domain/accounts/tokens.ts";
import type { FilledMessage } from "../../domain/mail/message.ts";
import type { AccountFailure } from "../../domain/mail/outcome.ts";
import { classifyOpening, type NetworkFailure, type OpeningAnswer, parseReply } from "../../domain/mail/smtp-answer.ts";
import type { SmtpGuard } from "../../domain/mail/smtp-guard.ts";
import { AddressRefused, isLoopback, NameNotResolved } from "../../lib/address-guard.ts";
import { connectOptions } from "../../lib/connect-options.ts";
import { elapsedMs } from "../../lib/elapsed.ts";
import { loginDeadlineMs, type SmtpLimits } from "./limits.ts";
import { CLOSE_TIMEOUT_MS, MAX_REPLY_BYTES, type MessageSender, Transactions } from "./transactions.ts";

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
   * A token for a login by XOAUTH2: never the one that the server has just refused. It may reject with a TokenError.
   */
  accessToken?: ((refused?: string) => Promise<string>) | undefined;
  /** Name given with EHLO; the machine's own without it */
  name?: string | undefined;
  limits: SmtpLimits;
  /** Accept a certificate that does not verify; only for tests and private relays */
  allowUnverifiedTls?: boolean | undefined;
}

/** nodemailer connects, upgrades to TLS and logs in; then `Transactions` has the socket. */
export class SmtpSession {
  readonly #madeAt = elapsedMs();
  messages = 0;
  /** The body of a message is being written, and the envelope of a message that is begun now joins that write. */
  onBody: () => void = () => {};
  /** Once, after the outcomes of the messages in flight. */
  onEnd: () => void = () => {};
  readonly #connection: SMTPConnection;
  readonly #account: SmtpAccount;
  #opened: ((failure?: AccountFailure) => void) | undefined;
  #transactions: Transactions | undefined;
  #token: string | undefined;
  /** Until nodemailer has it. */
  #connecting: Socket | undefined;
  #connectTimer: NodeJS.Timeout | undefined;
  #loggingIn = false;
  #cut: NetworkFailure = "lost";

  constructor(account: SmtpAccount) {
    this.#account = account;
    this.#connection = new SMTPConnection(connectionOptions(account));
    // The first error is the cause; those that follow from it are ignored.
    this.#connection.on("error", (error: SMTPError) => this.#reportOpened(this.#openingAnswer(error)));
    this.#connection.once("end", () => setImmediate(() => this.#endBeforeLogin()));
  }

  get ended(): boolean {
    return this.#transactions?.ended ?? this.#connection.destroyed;
  }

  get inFlight(): number {
    return this.#transactions?.inFlight ?? 0;
  }

  get idleSince(): number {
    return this.#transactions?.idleSince ?? this.#madeAt;
  }

  get isLate(): boolean {
    return this.#transactions?.isLate ?? false;
  }

  checkTime(): void {
    if (this.#transactions) this.#transactions.checkTime();
    else if (elapsedMs() - this.#madeAt > loginDeadlineMs(this.#account.limits)) this.destroy("timeout");
  }

  get knowsSmtpUtf8(): boolean {
    return this.#offers("SMTPUTF8");
  }

  #offers(extension: string): boolean {
    // Not in nodemailer's types; a test fails should it ever go.
    const { _supportedExtensions } = this.#connection as unknown as { _supportedExtensions: readonly string[] };
    return _supportedExtensions.includes(extension);
  }

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
      this.#account.limits.connect,
    );
    this.#connect().then(
      (socket) => this.#greet(socket),
      (error: unknown) => this.#reportOpened({ stage: "connect", network: connectFailure(error) }),
    );
  }

  /** To an address that the guard has just checked: nodemailer would look the host up once more. */
  async #connect(): Promise<Socket> {
    const { guard, host, port } = this.#account;
    const addresses = await guard.resolve(host, port);
    if (this.ended) throw new Error("The session was closed while its host was looked up");
    this.#connecting = connect(connectOptions(host, port, addresses));
    await once(this.#connecting, "connect");
    return this.#connecting;
  }

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

  /** As `Transactions.send`. */
  send(message: FilledMessage, sender: MessageSender): void {
    if (!this.#transactions) throw new Error("The session is not logged in");
    this.#transactions.send(message, sender);
    this.messages++;
  }

  quit(): void {
    if (this.#transactions) this.#transactions.quit();
    else this.#connection.close();
  }

  destroy(network: "lost" | "timeout" = "lost"): void {
    this.#cut = network;
    if (this.#transactions) this.#transactions.destroy(network);
    else this.#connection.close();
  }

  #reportOpened(answer?: OpeningAnswer): void {
    this.#endOpening(answer && classifyOpening(answer, this.#account.user));
  }

  #endOpening(failure?: AccountFailure): void {
    const done = this.#opened;
    this.#opened = undefined;
    clearTimeout(this.#connectTimer);
    if (failure) this.#connection.close();
    else if (done) this.#begin();
    done?.(failure);
  }

  #begin(): void {
    const socket = socketOf(this.#connection);
    this.#transactions = new Transactions(socket, {
      pipelining: this.#offers("PIPELINING"),
      smtpUtf8: this.knowsSmtpUtf8,
      limits: this.#account.limits,
      onBody: () => this.onBody(),
      onEnd: () => this.onEnd(),
    });
  }

  #endBeforeLogin(): void {
    this.#connecting?.destroy();
    this.#reportOpened({ stage: "connect", network: this.#cut });
    if (!this.#transactions) this.onEnd();
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
    if (/^(?:EHLO|HELO)$/.test(error.command ?? "") && reply.code !== undefined)
      return { stage: "helo", ...reply, response };
    return {
      stage: response === undefined ? "connect" : "greeting",
      ...reply,
      response,
      network: networkFailure(error),
    };
  }
}

/** An error of another kind than a TokenError, such as Postgres being away, may pass. */
const tokenFailure = (error: unknown): AccountFailure =>
  error instanceof TokenError
    ? error.failure
    : { outcome: "account_failure", reason: "token_unavailable", temporary: true };

/** nodemailer's login by XOAUTH2, which repeats a token that the server answered with a challenge (334). */
function xoauth2(user: string, accessToken: string): { oauth2: XOAuth2 } {
  return { oauth2: new XOAuth2({ user, accessToken }) };
}

/** Without nodemailer's listeners. */
function socketOf(connection: SMTPConnection): Socket {
  // Not in nodemailer's types; a test fails should they ever go.
  const inner = connection as unknown as Record<
    `_onSocket${"Data" | "Timeout" | "Close" | "End" | "Error"}`,
    () => void
  >;
  const socket = connection._socket;
  if (!socket) throw new Error("The connection has no socket");
  socket.removeListener("data", inner._onSocketData);
  socket.removeListener("timeout", inner._onSocketTimeout);
  socket.removeListener("close", inner._onSocketClose);
  socket.removeListener("end", inner._onSocketEnd);
  socket.removeListener("error", inner._onSocketError);
  return socket;
}

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
  const { host, port, secure, name, limits } = account;
  return {
    host,
    port,
    name,
    secure: secure === "tls",
    requireTLS: secure === "starttls",
    ignoreTLS: secure === "none",
    tls: { rejectUnauthorized: account.allowUnverifiedTls !== true, minVersion: "TLSv1.2" },
    connectionTimeout: limits.connect,
    greetingTimeout: limits.greeting,
    socketTimeout: limits.greeting,
    socketCloseTimeout: CLOSE_TIMEOUT_MS,
    maxResponseSize: MAX_REPLY_BYTES,
    logger: false,
  };
}

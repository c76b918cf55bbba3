import { once } from "node:events";
import { connect, type Socket } from "node:net";
import SMTPConnection, { type SMTPConnectionOptions, type SMTPError } from "nodemailer/lib/smtp-connection";
import XOAuth2 from "nodemailer/lib/xoauth2";
import { TokenError } from "../../domain/accounts/tokens.ts";
import type { AccountFailure } from "../../domain/mail/outcome.ts";
import { classifyOpening, type NetworkFailure, type OpeningAnswer, parseReply } from "../../domain/mail/smtp-answer.ts";
import type { SmtpGuard } from "../../domain/mail/smtp-guard.ts";
import { AddressRefused, isLoopback, NameNotResolved } from "../../lib/address-guard.ts";
import { connectOptions } from "../../lib/connect-options.ts";
import { loginDeadlineMs, type SmtpLimits } from "./limits.ts";
import { CLOSE_TIMEOUT_MS, MAX_REPLY_BYTES, SmtpSession } from "./session.ts";

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

class OpeningFailed extends Error {
  readonly failure: AccountFailure;

  constructor(failure: AccountFailure) {
    super(failure.reason);
    this.failure = failure;
  }
}

type Stage = "connect" | "greeting" | "auth";

/**
 * nodemailer connects, upgrades to TLS and logs in; then the session has the socket. @param signal cuts it off, and then
 * the failure says nothing about the account
 */
export async function openSession(account: SmtpAccount, signal: AbortSignal): Promise<SmtpSession | AccountFailure> {
  const { guard, host, port, user, pass, accessToken, limits } = account;
  const connection = new SMTPConnection(connectionOptions(account));
  const { promise: ended, reject } = Promise.withResolvers<never>();
  // The first error is the cause; those that follow from it are ignored.
  connection.on("error", reject);
  connection.once("end", () => setImmediate(reject, new Error("The connection ended before the login")));
  const cutOff = () => reject(Object.assign(new Error("The login took too long"), { code: "ETIMEDOUT" }));
  const deadline = setTimeout(cutOff, loginDeadlineMs(limits));
  signal.addEventListener("abort", cutOff);
  let stage: Stage = "connect";
  let socket: Socket | undefined;

  const takeToken = async (refused?: string) => {
    try {
      return await accessToken?.(refused);
    } catch (error) {
      throw new OpeningFailed(tokenFailure(error));
    }
  };
  const logIn = async (name: string, token: string | undefined) => {
    if (token === undefined) return called((done) => connection.login({ user: name, pass: pass ?? "" }, done));
    try {
      await called((done) => connection.login(xoauth2(name, token), done));
    } catch (error) {
      // A server may refuse a token that has not expired, so another token is tried once.
      if (parseReply((error as SMTPError).response ?? "").code !== 535) throw error;
      const another = await takeToken(token);
      if (another !== undefined) await called((done) => connection.login(xoauth2(name, another), done));
    }
  };
  const open = async () => {
    // Before the connection is made: a server waits for a login a short time only.
    const token = await takeToken();
    const connecting = AbortSignal.timeout(limits.connect);
    // To an address that the guard has just checked: nodemailer would look the host up once more.
    const addresses = await guard.resolve(host, port);
    if (connection.destroyed) throw new Error("The session was closed while its host was looked up");
    socket = connect(connectOptions(host, port, addresses));
    await once(socket, "connect", { signal: connecting });
    const isOnLoopback = isLoopback(socket.remoteAddress ?? "");
    stage = "greeting";
    connection.options.connection = socket;
    await called((done) => connection.connect(done));
    if (!user) return;
    if (!connection.secure && !isOnLoopback) {
      throw new OpeningFailed(classifyOpening({ stage: "connect", network: "clear_text" }));
    }
    stage = "auth";
    await logIn(user, token);
  };

  try {
    await Promise.race([open(), ended]);
    return new SmtpSession(socketOf(connection), {
      pipelining: offers(connection, "PIPELINING"),
      smtpUtf8: offers(connection, "SMTPUTF8"),
      limits,
    });
  } catch (error) {
    connection.close();
    socket?.destroy();
    if (error instanceof OpeningFailed) return error.failure;
    return classifyOpening(openingAnswer(stage, error as SMTPError), user);
  } finally {
    clearTimeout(deadline);
    signal.removeEventListener("abort", cutOff);
  }
}

const called = (call: (done: (error?: SMTPError | null) => void) => void): Promise<void> =>
  new Promise((resolve, reject) => call((error) => (error ? reject(error) : resolve())));

function offers(connection: SMTPConnection, extension: string): boolean {
  // Not in nodemailer's types; a test fails should it ever go.
  const { _supportedExtensions } = connection as unknown as { _supportedExtensions: readonly string[] };
  return _supportedExtensions.includes(extension);
}

function openingAnswer(stage: Stage, error: SMTPError): OpeningAnswer {
  const { response } = error;
  const reply = response === undefined ? {} : parseReply(response);
  const network = networkFailure(error);
  if (stage === "auth") {
    // nodemailer refused before asking the server, e.g. for lack of a login method that both sides support.
    const refused = error.code === "EAUTH" && reply.code === undefined ? { code: 535 } : reply;
    return { stage, ...refused, response, network };
  }
  // There is no TLS, also where the server accepted STARTTLS.
  if (error.code === "ETLS") return { stage: "connect", network, response };
  if (/^(?:EHLO|HELO)$/.test(error.command ?? "") && reply.code !== undefined)
    return { stage: "helo", ...reply, response };
  return { stage: response === undefined ? "connect" : stage, ...reply, response, network };
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

function networkFailure(error: unknown): NetworkFailure {
  if (error instanceof AddressRefused) return "forbidden";
  if (error instanceof NameNotResolved) return "name";
  const { name, code, originalCode } = error as SMTPError;
  if (code === "EPROTOCOL") return "protocol";
  const cause = String((code === "ESOCKET" ? originalCode : code) ?? "");
  if (/CERT|SSL|TLS|SIGNATURE/.test(cause)) return "tls";
  if (cause === "ETIMEDOUT" || name === "AbortError") return "timeout";
  return /^(ECONNREFUSED|EHOSTUNREACH|ENETUNREACH|EACCES|EPERM)$/.test(cause) ? "refused" : "lost";
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

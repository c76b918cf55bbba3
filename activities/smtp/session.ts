import type { Socket } from "node:net";
import type { FilledMessage } from "../../domain/mail/message.ts";
import type { MailOutcome } from "../../domain/mail/outcome.ts";
import {
  classifyAnswer,
  type MessageAnswer,
  type MessageStage,
  type NetworkFailure,
  parseReply,
} from "../../domain/mail/smtp-answer.ts";
import { elapsedMs } from "../../lib/elapsed.ts";
import { bodyDeadlineMs, type SmtpLimits } from "./limits.ts";

export const MAX_REPLY_BYTES = 65_536;
/**
 * Longest body whose write the next envelope joins. The operating system takes this much at once (Linux: `tcp_wmem`),
 * so that the end of the write says when the dot left.
 */
const MAX_JOINED_BYTES = 16_384;
export const CLOSE_TIMEOUT_MS = 1_000;

/** The sender of a message, who hears `done` or `takenBack`, once. */
export interface MessageSender {
  /** Asked when the body could leave: if false, the message is taken back. */
  mayProceed(): boolean;
  done(outcome: MailOutcome): void;
  /** The dot has been unanswered for long: `done` may come minutes later, and then the connection ends. */
  late(): void;
  /** Nothing of it was mailed, and nothing that was said to it is about this message. */
  takenBack(): void;
}

interface SessionOptions {
  /** RFC 2920: commands may be sent before the replies to earlier ones. */
  pipelining: boolean;
  smtpUtf8: boolean;
  limits: SmtpLimits;
}

type Verb = "MAIL" | "RCPT" | "DATA" | "DOT" | "RSET";

interface Transaction {
  readonly message: FilledMessage;
  readonly sender: MessageSender;
  readonly beganAt: number;
  /** Its envelope left behind the body of another message. */
  readonly isFollower: boolean;
  /** A reply of its own has come. */
  isHeard: boolean;
  /** The server has opened a mail transaction for it. */
  isOpened: boolean;
  dotMayHaveLeft: boolean;
  hasDotLeft: boolean;
  refusal?: MessageAnswer | undefined;
}

/**
 * Mail transactions over one connection that is logged in. With PIPELINING an envelope and DATA are one write, and so
 * are a body and the envelope of a next message (RFC 2920, 3.1). At most one dot is unanswered, so a lost connection
 * leaves at most one message unknown:
 * A body leaves only after its own RCPT was accepted and its own DATA was answered with 354. A 354 after a refused RCPT
 * closes the connection, which mails nothing.
 * A message that follows another one and is cut off or refused by its MAIL is taken back: that may be about the
 * connection. A reply that nothing asked for ends the connection.
 */
export class SmtpSession {
  /** That were begun. */
  messages = 0;
  /** With PIPELINING: the body and its dot are being written, and a `send` of the next message joins that write. */
  onBody: () => void = () => {};
  /** Called once when the connection has ended, after the outcomes of the messages in flight. */
  onEnd: () => void = () => {};
  readonly #socket: Socket;
  readonly #options: SessionOptions;
  readonly #expected: [Verb, Transaction?][] = [];
  readonly #open: Transaction[] = [];
  #unread = "";
  #lines = "";
  #ended = false;
  /** Since when the next reply is awaited, as `elapsedMs()`. */
  #waitsSince = elapsedMs();
  #isLate = false;

  constructor(socket: Socket, options: SessionOptions) {
    this.#socket = socket;
    this.#options = options;
    socket.setTimeout(0);
    socket.on("data", (chunk: Buffer) => this.#read(chunk));
    socket.on("error", ({ code }: NodeJS.ErrnoException) => this.destroy(code === "ETIMEDOUT" ? "timeout" : "lost"));
    for (const event of ["end", "close"]) socket.on(event, () => this.destroy("lost"));
  }

  get ended(): boolean {
    return this.#ended;
  }

  get knowsSmtpUtf8(): boolean {
    return this.#options.smtpUtf8;
  }

  get inFlight(): number {
    return this.#open.length;
  }

  /** It waits for the reply to a late dot, and ends with it. */
  get isLate(): boolean {
    return this.#isLate && !this.#ended;
  }

  checkTime(): void {
    const [verb, transaction] = this.#expected[0] ?? [];
    if (verb === undefined) return;
    const waitedMs = elapsedMs() - this.#waitsSince;
    if (waitedMs > this.#limitMs(verb, transaction)) this.destroy("timeout");
    else if (transaction?.hasDotLeft && !this.#isLate && waitedMs > this.#options.limits.connect) {
      this.#isLate = true;
      transaction.sender.late();
      const follower = this.#open[1];
      if (follower) this.#forget(follower);
      follower?.sender.takenBack();
    }
  }

  #limitMs(verb: Verb, transaction: Transaction | undefined): number {
    const { mail, rcpt, data, block, dot } = this.#options.limits;
    const limits = { MAIL: mail, RSET: mail, RCPT: rcpt, DATA: data };
    return verb === "DOT" ? (transaction?.hasDotLeft ? dot : block) : limits[verb];
  }

  /**
   * Begins a message. While another one is in flight, only with PIPELINING and in that one's `onBody`.
   * @throws {Error} when an address would not stay one argument of its command
   */
  send(message: FilledMessage, sender: MessageSender): void {
    const commands = commandsOf(message, this.#options);
    const transaction: Transaction = {
      message,
      sender,
      beganAt: elapsedMs(),
      isFollower: this.#open.length > 0,
      isHeard: false,
      isOpened: false,
      dotMayHaveLeft: false,
      hasDotLeft: false,
    };
    this.#open.push(transaction);
    this.messages++;
    if (this.#expected.length === 0) this.#waitsSince = elapsedMs();
    if (this.#options.pipelining) {
      this.#expected.push(["MAIL", transaction], ["RCPT", transaction], ["DATA", transaction]);
      this.#socket.write(commands.join(""));
    } else if (this.#expected.length === 0) {
      this.#ask("MAIL", transaction);
    }
  }

  quit(): void {
    if (this.#ended) return;
    if (this.#open.length > 0) {
      this.destroy("lost");
      return;
    }
    this.#ended = true;
    this.#socket.removeAllListeners("data").resume();
    this.#socket.end("QUIT\r\n");
    const cut = setTimeout(() => this.#socket.destroy(), CLOSE_TIMEOUT_MS).unref();
    this.#socket.once("close", () => clearTimeout(cut));
    setImmediate(() => this.onEnd());
  }

  destroy(network: NetworkFailure = "lost"): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#socket.destroy();
    setImmediate(() => {
      for (const transaction of this.#open.splice(0)) {
        const { isFollower, isHeard, dotMayHaveLeft, refusal } = transaction;
        if (isFollower && !isHeard) transaction.sender.takenBack();
        else finish(transaction, refusal ?? { stage: dotMayHaveLeft ? "dot" : "mail", network });
      }
      this.onEnd();
    });
  }

  #read(chunk: Buffer): void {
    this.#unread += chunk.toString("latin1");
    while (!this.#ended) {
      const end = this.#unread.indexOf("\n");
      if (end < 0) break;
      const line = this.#unread.slice(0, end).replace(/\r$/, "");
      this.#unread = this.#unread.slice(end + 1);
      this.#lines = this.#lines === "" ? line : `${this.#lines}\n${line}`;
      if (/^\d{3}-/.test(line)) continue;
      const reply = this.#lines;
      this.#lines = "";
      this.#take(reply);
    }
    if (this.#unread.length + this.#lines.length > MAX_REPLY_BYTES) this.destroy("protocol");
  }

  #take(reply: string): void {
    const [verb, transaction] = this.#expected.shift() ?? [];
    this.#waitsSince = elapsedMs();
    if (verb === undefined) {
      this.destroy("protocol");
      return;
    }
    if (transaction === undefined) {
      if (isAccepted(reply)) this.#beginWaiting();
      else this.destroy("lost");
      return;
    }
    // The server ends the session without being asked to, which is about no message.
    if (reply.startsWith("221")) {
      this.destroy("lost");
      return;
    }
    transaction.isHeard = true;
    switch (verb) {
      case "MAIL":
        transaction.isOpened = isAccepted(reply);
        this.#answerEnvelope(transaction, "mail", reply);
        break;
      case "RCPT":
        this.#answerEnvelope(transaction, "rcpt", reply);
        break;
      case "DATA":
        this.#answerData(transaction, reply);
        break;
      case "DOT":
        this.#answerDot(transaction, reply);
    }
  }

  #answerEnvelope(transaction: Transaction, stage: "mail" | "rcpt", reply: string): void {
    if (!isAccepted(reply)) refuse(transaction, stage, reply);
    if (transaction.refusal?.code === 421) this.#close(transaction);
    else if (this.#options.pipelining) return;
    else if (transaction.refusal) this.#close(transaction);
    else this.#ask(stage === "mail" ? "RCPT" : "DATA", transaction);
  }

  #answerData(transaction: Transaction, reply: string): void {
    const { signature } = transaction.message;
    if (!reply.startsWith("354")) {
      refuse(transaction, "data", reply);
      this.#close(transaction);
    } else if (transaction.refusal) {
      this.#report(transaction, transaction.refusal, { isLast: true });
    } else if (signature === undefined) {
      this.#writeBody(transaction);
    } else {
      // It is usually ready by now: it was made while the server answered the envelope.
      signature.then(
        (header) => this.#writeBody(transaction, header),
        () => this.destroy("lost"),
      );
    }
  }

  #answerDot(transaction: Transaction, reply: string): void {
    const answer = answerOf("dot", reply);
    // Some of the body is still here, so this answers no dot: what the server makes of the rest is not known.
    const isEarly = !transaction.hasDotLeft;
    if (isEarly && !isRefusal(answer)) this.destroy("protocol");
    else this.#report(transaction, answer, { isLast: isEarly || this.#isLate });
  }

  /** Body and dot are one write. What `onBody` adds joins it, unless the body is long. */
  #writeBody(transaction: Transaction, ...header: Buffer[]): void {
    if (this.#ended) return;
    const { message, sender, beganAt } = transaction;
    // A process or machine that was suspended resumes here before any of its timers has fired.
    this.#waitsSince = elapsedMs();
    if (this.#waitsSince - beganAt > bodyDeadlineMs(this.#options.limits)) {
      this.destroy("timeout");
      return;
    }
    if (!sender.mayProceed()) {
      this.#takeBack(transaction);
      return;
    }
    transaction.dotMayHaveLeft = true;
    this.#expected.push(["DOT", transaction]);
    this.#socket.cork();
    for (const part of [...header, message.message]) this.#socket.write(isDotFree(part) ? part : stuffed(part));
    this.#socket.write(FINAL_DOT, () => {
      transaction.hasDotLeft = true;
      this.#waitsSince = elapsedMs();
    });
    if (this.#socket.writableLength > MAX_JOINED_BYTES) this.#socket.uncork();
    if (this.#options.pipelining) this.onBody();
    this.#socket.uncork();
  }

  #close(transaction: Transaction): void {
    const { refusal, isOpened, isFollower } = transaction;
    if (refusal === undefined || (isFollower && refusal.stage === "mail")) {
      this.#takeBack(transaction);
      return;
    }
    if (isOpened && refusal.code !== 421) {
      this.#expected.push(["RSET"]);
      this.#socket.write("RSET\r\n");
    }
    this.#report(transaction, refusal, { isLast: false });
  }

  #takeBack(transaction: Transaction): void {
    this.#forget(transaction);
    this.destroy("lost");
    transaction.sender.takenBack();
  }

  /** @param isLast no other message may begin on this connection */
  #report(transaction: Transaction, answer: MessageAnswer, { isLast }: { isLast: boolean }): void {
    const isSuccess = answer.stage === "dot" && answer.code !== undefined && answer.code < 300;
    this.#forget(transaction);
    // With 421 the server closes the session. After a reply that SMTP does not know nothing is certain.
    if (isLast || answer.code === 421 || !(isSuccess || isRefusal(answer))) this.destroy("lost");
    finish(transaction, answer);
  }

  #forget(transaction: Transaction): void {
    this.#open.splice(this.#open.indexOf(transaction), 1);
  }

  /** Without PIPELINING, a message waits for the reply to the RSET before it. */
  #beginWaiting(): void {
    const [waiting] = this.#open;
    if (waiting && !this.#options.pipelining && this.#expected.length === 0) this.#ask("MAIL", waiting);
  }

  #ask(verb: "MAIL" | "RCPT" | "DATA", transaction: Transaction): void {
    const [mail, rcpt, data] = commandsOf(transaction.message, this.#options);
    this.#expected.push([verb, transaction]);
    this.#socket.write({ MAIL: mail, RCPT: rcpt, DATA: data }[verb]);
  }
}

/** The commands that precede a body. @throws {Error} when an address would not stay one argument of its command */
function commandsOf({ envelope }: FilledMessage, { smtpUtf8 }: { smtpUtf8: boolean }): [string, string, string] {
  const { from, to } = envelope;
  if (/[\r\n<>]/.test(from + to)) throw new Error("An address holds a character that no address can hold");
  const isInternational = smtpUtf8 && /[^\0-\x7f]/.test(from + to);
  return [`MAIL FROM:<${from}>${isInternational ? " SMTPUTF8" : ""}\r\n`, `RCPT TO:<${to}>\r\n`, "DATA\r\n"];
}

const FINAL_DOT = ".\r\n";
const CRLF = Buffer.from("\r\n");

const isAccepted = (reply: string): boolean => reply.startsWith("2");

function answerOf(stage: MessageStage, reply: string): MessageAnswer {
  // Read as bytes, so that no character is cut in two.
  const response = Buffer.from(reply, "latin1").toString();
  return { stage, ...parseReply(response), response };
}

function finish({ message, sender }: Transaction, answer: MessageAnswer): void {
  sender.done(classifyAnswer(answer, message.envelope));
}

function refuse(transaction: Transaction, stage: MessageStage, reply: string): void {
  transaction.refusal ??= answerOf(stage, reply);
}

const isRefusal = ({ code = 0 }: MessageAnswer): boolean => code >= 400 && code < 600;

/** Whether the last line is ended and no line starts with a dot, for a server that ends lines at CR or LF alone too. */
function isDotFree(message: Buffer): boolean {
  return (
    message[0] !== 0x2e && !message.includes("\n.") && !message.includes("\r.") && message.subarray(-2).equals(CRLF)
  );
}

/** The message with CRLF at the end of each line, and lines that start with a dot given another one (RFC 5321, 4.5.2). */
function stuffed(message: Buffer): Buffer {
  const lines = message.toString("latin1").split(/\r\n|\r|\n/);
  if (lines.at(-1) === "") lines.pop();
  return Buffer.from(lines.map((line) => `${line.startsWith(".") ? "." : ""}${line}\r\n`).join(""), "latin1");
}

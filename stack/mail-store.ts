import { decodeWords } from "postal-mime";

const MAX_MESSAGES = 200_000;
const MAX_SOURCES = 5_000;
const MAX_SOURCE_BYTES = 256 * 1024 * 1024;
/** Headers beyond this are not looked at. */
const MAX_HEADER_BYTES = 16 * 1024;

/** One caught mail, without its content. */
export interface CaughtMail {
  /** Counts up from 1 in order of arrival. */
  id: number;
  /** Time of arrival, ISO 8601. */
  at: string;
  from: string;
  to: string[];
  subject: string;
  /** Bytes. */
  size: number;
  messageId: string;
}

/** Counts since the start or the last clearing; exact, also when older mails were dropped. */
export interface MailStats {
  received: number;
  recipients: number;
}

interface Kept extends Omit<CaughtMail, "at" | "subject"> {
  at: number;
  /** As in the header: decoded when it is shown. */
  subject: string;
}

const MESSAGE_ID = /^message-id:\s*(<[^>]*>)/im;
const SUBJECT = /^subject:[ \t]*(.*(?:\r?\n[ \t].*)*)/im;

/** The match as a string of its own: one cut out of the header would keep the whole header in memory. */
const own = (text: string | undefined): string => (text ? Buffer.from(text, "latin1").toString() : "");

/** Caught mails in memory: the latest ones, and the content of the very latest. */
export class MailStore {
  #mails: Kept[] = [];
  #sources: Buffer[] = [];
  #sourceBytes = 0;
  #lastId = 0;
  #stats: MailStats = { received: 0, recipients: 0 };

  /** Keeps one mail. Runs thousands of times a second, so it looks at two header lines and no more. */
  add(from: string, to: string[], source: Buffer): void {
    const end = source.indexOf("\r\n\r\n");
    const header = source.toString("latin1", 0, Math.min(end < 0 ? source.length : end, MAX_HEADER_BYTES));
    const messageId = own(MESSAGE_ID.exec(header)?.[1]);
    const subject = own(SUBJECT.exec(header)?.[1]);

    this.#mails.push({ id: ++this.#lastId, at: Date.now(), from, to, subject, size: source.length, messageId });
    // Cutting a tenth at a time costs next to nothing per mail.
    if (this.#mails.length > MAX_MESSAGES * 1.1) this.#mails.splice(0, this.#mails.length - MAX_MESSAGES);

    this.#sources.push(source);
    this.#sourceBytes += source.length;
    while (this.#sources.length > MAX_SOURCES || (this.#sourceBytes > MAX_SOURCE_BYTES && this.#sources.length > 1)) {
      this.#sourceBytes -= this.#sources.shift()?.length ?? 0;
    }

    this.#stats.received++;
    this.#stats.recipients += to.length;
  }

  /** The last `limit` mails, latest first. @param search part of a sender, recipient or subject; in all if empty */
  latest(limit: number, search = ""): CaughtMail[] {
    const found: CaughtMail[] = [];
    for (const kept of this.#mails.toReversed()) {
      const mail = present(kept);
      const texts = [mail.from, ...mail.to, mail.subject].join("\n").toLowerCase();
      if (texts.includes(search.toLowerCase())) found.push(mail);
      if (found.length === limit) break;
    }
    return found;
  }

  /** Mails that arrived after mail `after`, in order of arrival. @param options.to an address, or `@` and a domain */
  list(options: { to?: string | undefined; after: number; limit: number }): CaughtMail[] {
    const to = options.to?.toLowerCase();
    const isWanted = (address: string) => (to?.startsWith("@") ? address.endsWith(to) : address === to);
    const found: Kept[] = [];
    const first = this.#mails[0]?.id ?? 0;
    for (let i = Math.max(0, options.after - first + 1); i < this.#mails.length && found.length < options.limit; i++) {
      const mail = this.#mails[i];
      if (mail && (!to || mail.to.some((address) => isWanted(address.toLowerCase())))) found.push(mail);
    }
    return found.map(present);
  }

  get(id: number): CaughtMail | undefined {
    const mail = this.#mails[id - (this.#mails[0]?.id ?? 0)];
    return mail && present(mail);
  }

  /** The mail as it came in, if it is recent enough. */
  source(id: number): Buffer | undefined {
    return this.#sources[id - 1 - (this.#lastId - this.#sources.length)];
  }

  stats(): MailStats {
    return this.#stats;
  }

  /** Forgets everything; ids go on counting. */
  clear(): void {
    this.#mails = [];
    this.#sources = [];
    this.#sourceBytes = 0;
    this.#stats = { received: 0, recipients: 0 };
  }
}

function present({ at, subject, ...mail }: Kept): CaughtMail {
  const unfolded = subject.replace(/\r?\n[ \t]+/g, " ").trim();
  return { ...mail, at: new Date(at).toISOString(), subject: decodeWords(unfolded) };
}

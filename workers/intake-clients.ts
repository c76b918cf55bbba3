import type { SMTPServerSession } from "smtp-server";
import { networkOf, plainAddress } from "../config/client-network.ts";
import { WindowCounts } from "../config/window-counts.ts";

/** Limits on the intake's connections, in milliseconds. */
export interface IntakeTimes {
  /** Longest time without a byte. */
  idleMs: number;
  /** Longest time without a mail: a client that sends single bytes is never idle. */
  mailMs: number;
  sessionMs: number;
  checkMs: number;
}

interface Limits {
  connections: number;
  mailsPerMinute: number;
  times: IntakeTimes;
}

/** Clients that are counted in a window of a minute. */
const MAX_CLIENTS = 50_000;
/** Share of the connections that one client may hold. */
const CLIENT_SHARE = 1 / 4;

const clientOf = ({ remoteAddress }: SMTPServerSession): string => networkOf(plainAddress(remoteAddress));

/** Limits the connections and mails of each client: an IPv4 address, or an IPv6 network of 64 bits. */
export class IntakeClients {
  readonly #limits: Limits;
  readonly #mails = new WindowCounts({ windowMs: 60_000, maxKeys: MAX_CLIENTS });
  readonly #open = new Map<SMTPServerSession, { client: string; openedAt: number; mailAt: number }>();

  constructor(limits: Limits) {
    this.#limits = limits;
  }

  get connections(): number {
    return this.#open.size;
  }

  /** @returns whether the client may hold this connection too */
  open(session: SMTPServerSession): boolean {
    const client = clientOf(session);
    const held = [...this.#open.values()].filter((other) => other.client === client).length;
    if (held >= Math.floor(this.#limits.connections * CLIENT_SHARE)) return false;
    const openedAt = performance.now();
    this.#open.set(session, { client, openedAt, mailAt: openedAt });
    return true;
  }

  close(session: SMTPServerSession): void {
    this.#open.delete(session);
  }

  /** Counts a mail of the client. @returns whether the client is within its mails of a minute */
  takeMail(session: SMTPServerSession): boolean {
    return this.#mails.add(clientOf(session)) <= this.#limits.mailsPerMinute;
  }

  /** Notes that a mail has been read to its end. */
  endMail(session: SMTPServerSession): void {
    const connection = this.#open.get(session);
    if (connection) connection.mailAt = performance.now();
  }

  /** The connections that brought no mail in time, or are open for too long. */
  slow(): SMTPServerSession[] {
    const now = performance.now();
    const { mailMs, sessionMs } = this.#limits.times;
    return [...this.#open].flatMap(([session, { mailAt, openedAt }]) =>
      now - mailAt > mailMs || now - openedAt > sessionMs ? [session] : [],
    );
  }
}

import type { Socket } from "node:net";
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

/** No event reports the close of a socket that `smtp-server` has wrapped in TLS. */
const openOf = (sockets: readonly Socket[] = []): Socket[] => sockets.filter(({ destroyed }) => !destroyed);

const clientOf = (remoteAddress: string): string => networkOf(plainAddress(remoteAddress));

/** Limits the connections and mails of each client: an IPv4 address, or an IPv6 network of 64 bits. */
export class IntakeClients {
  readonly #limits: Limits;
  readonly #mails = new WindowCounts({ windowMs: 60_000, maxKeys: MAX_CLIENTS });
  readonly #sockets = new Map<string, Socket[]>();
  readonly #sessions = new WeakMap<SMTPServerSession, { openedAt: number; mailAt: number }>();

  constructor(limits: Limits) {
    this.#limits = limits;
  }

  /** @returns whether the client may hold this connection too */
  admit(socket: Socket): boolean {
    const { remoteAddress } = socket;
    // The client has closed it already.
    if (remoteAddress === undefined) return true;
    const client = clientOf(remoteAddress);
    const open = openOf(this.#sockets.get(client));
    const isAdmitted = open.length < Math.floor(this.#limits.connections * CLIENT_SHARE);
    this.#sockets.set(client, isAdmitted ? [...open, socket] : open);
    return isAdmitted;
  }

  /** Counts a mail of the client. @returns whether the client is within its mails of a minute */
  takeMail({ remoteAddress }: SMTPServerSession): boolean {
    return this.#mails.add(clientOf(remoteAddress)) <= this.#limits.mailsPerMinute;
  }

  opened(session: SMTPServerSession): void {
    const openedAt = performance.now();
    this.#sessions.set(session, { openedAt, mailAt: openedAt });
  }

  /** Notes that a mail has been read to its end. */
  endMail(session: SMTPServerSession): void {
    const times = this.#sessions.get(session);
    if (times) times.mailAt = performance.now();
  }

  /** Whether a connection brought no mail in time, or is open for too long. */
  isSlow(session: SMTPServerSession): boolean {
    const now = performance.now();
    const { mailMs, sessionMs } = this.#limits.times;
    const { mailAt, openedAt } = this.#sessions.get(session) ?? { mailAt: now, openedAt: now };
    return now - mailAt > mailMs || now - openedAt > sessionMs;
  }

  forgetClosed(): void {
    for (const [client, sockets] of this.#sockets) if (openOf(sockets).length === 0) this.#sockets.delete(client);
  }
}

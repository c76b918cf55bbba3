import type { Socket } from "node:net";
import { setImmediate } from "node:timers/promises";
import type { SMTPServerSession } from "smtp-server";
import { networkOf, plainAddress } from "../config/client-network.ts";
import { WindowCounts } from "../config/window-counts.ts";
import type { IntakeRefusal } from "./intake-metrics.ts";

/** Limits on the intake's connections, in milliseconds. */
export interface IntakeTimes {
  /** Longest time without a byte. */
  idleMs: number;
  /** Longest time without a mail: a client that sends single bytes is never idle. */
  mailMs: number;
  sessionMs: number;
  checkMs: number;
}

/** Clients that are counted in a window of a minute. */
const MAX_CLIENTS = 50_000;
/** Share of the connections that one client may hold. */
const CLIENT_SHARE = 1 / 4;
/** Bytes that a connection may send outside of mails: some may be mails that were sent ahead and wait in buffers. */
const MAX_COMMAND_BYTES = 512 * 1024;

/** After so much work for one client, other clients are served before its next work. */
const TURN_MS = 10;

export interface Connection {
  /** Counts bytes of a mail that is being read. */
  addData(bytes: number): void;
  /** Notes that a mail has been read to its end. */
  endMail(): void;
  cut(reason: IntakeRefusal): void;
}

class OpenConnection implements Connection {
  readonly socket: Socket;
  readonly #refused: (reason: IntakeRefusal) => void;
  readonly openedAt = performance.now();
  mailAt = this.openedAt;
  #dataBytes = 0;
  /** Bytes outside of mails, up to the end of the last mail. */
  #commandBytesBefore = 0;

  constructor(socket: Socket, refused: (reason: IntakeRefusal) => void) {
    this.socket = socket;
    this.#refused = refused;
  }

  addData(bytes: number): void {
    this.#dataBytes += bytes;
  }

  endMail(): void {
    this.mailAt = performance.now();
    this.#commandBytesBefore = this.socket.bytesRead - this.#dataBytes;
  }

  /** Bytes outside of mails since the last mail. */
  get commandBytes(): number {
    return this.socket.bytesRead - this.#dataBytes - this.#commandBytesBefore;
  }

  cut(reason: IntakeRefusal): void {
    if (this.socket.destroyed) return;
    this.#refused(reason);
    this.socket.destroy();
  }
}

/** The connections and the work of one client. */
interface Client {
  /** By the address and port that they come from. */
  connections: Map<string, OpenConnection>;
  /** Resolves at the end of its work so far. */
  worked: Promise<void>;
}

const clientOf = (address: string): string => networkOf(plainAddress(address));
const keyOf = (address: string, port: number): string => `${plainAddress(address)} ${port}`;

/** Limits the connections, mails and work of each client: an IPv4 address, or an IPv6 network of 64 bits. */
export class IntakeClients {
  readonly #limits: { connections: number; mailsPerMinute: number; times: IntakeTimes };
  readonly #refused: (reason: IntakeRefusal) => void;
  readonly #mails = new WindowCounts({ windowMs: 60_000, maxKeys: MAX_CLIENTS });
  readonly #clients = new Map<string, Client>();
  readonly #timer: NodeJS.Timeout;

  constructor(
    limits: { connections: number; mailsPerMinute: number; times: IntakeTimes },
    refused: (reason: IntakeRefusal) => void,
  ) {
    this.#limits = limits;
    this.#refused = refused;
    this.#timer = setInterval(() => this.#closeOverdue(), limits.times.checkMs).unref();
  }

  get connections(): number {
    return [...this.#clients.values()].reduce((sum, { connections }) => sum + connections.size, 0);
  }

  /** Takes a connection, or closes it when its client has too many. */
  open(socket: Socket): void {
    const { remoteAddress, remotePort } = socket;
    // The client has closed it already.
    if (remoteAddress === undefined || remotePort === undefined) return void socket.destroy();
    const name = clientOf(remoteAddress);
    const client = this.#clients.get(name) ?? { connections: new Map(), worked: Promise.resolve() };
    const most = Math.floor(this.#limits.connections * CLIENT_SHARE);
    if (client.connections.size >= most) forgetClosed(client);
    if (client.connections.size >= most) {
      this.#refused("connections");
      return void socket.destroy();
    }
    client.connections.set(keyOf(remoteAddress, remotePort), new OpenConnection(socket, this.#refused));
    this.#clients.set(name, client);
  }

  /** The connection of a session; undefined for one that has gone. */
  find({ remoteAddress, remotePort }: SMTPServerSession): Connection | undefined {
    return this.#clients.get(clientOf(remoteAddress))?.connections.get(keyOf(remoteAddress, remotePort));
  }

  /** Counts a mail of the client. @returns whether the client is within its mails of a minute */
  takeMail({ remoteAddress }: SMTPServerSession): boolean {
    return this.#mails.add(clientOf(remoteAddress)) <= this.#limits.mailsPerMinute;
  }

  /** Runs work that takes processor time, that of one client in sequence: it does not delay other clients for long. */
  async inTurn<T>({ remoteAddress }: SMTPServerSession, work: () => Promise<T>): Promise<T> {
    const client = this.#clients.get(clientOf(remoteAddress));
    const result = (client?.worked ?? Promise.resolve()).then(async () => {
      const startedAt = performance.now();
      const done = await work();
      return { done, tookMs: performance.now() - startedAt };
    });
    const worked = result.then(
      async ({ tookMs }) => void (tookMs > TURN_MS && (await setImmediate())),
      () => undefined,
    );
    if (client) client.worked = worked;
    return (await result).done;
  }

  close(): void {
    clearInterval(this.#timer);
  }

  #closeOverdue(): void {
    const now = performance.now();
    const { mailMs, sessionMs } = this.#limits.times;
    for (const [name, client] of this.#clients) {
      for (const connection of client.connections.values()) {
        if (now - connection.mailAt > mailMs || now - connection.openedAt > sessionMs) connection.cut("slow");
        else if (connection.commandBytes > MAX_COMMAND_BYTES) connection.cut("commands");
      }
      forgetClosed(client);
      if (client.connections.size === 0) this.#clients.delete(name);
    }
  }
}

/** No event reports such a close: `smtp-server` removes every listener from a socket that it wraps in TLS. */
function forgetClosed({ connections }: Client): void {
  for (const [key, { socket }] of connections) if (socket.destroyed) connections.delete(key);
}

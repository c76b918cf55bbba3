import type { LookupAddress } from "node:dns";
import { connect as connectTcp, isIP, type Socket } from "node:net";
import { connect as connectTls, createSecureContext, type SecureContext } from "node:tls";
import { type buildConnector, Client } from "undici";
import { connectOptions } from "../../domain/connect-options.ts";
import { effectivePort, type UrlGuard } from "../../domain/webhooks/url-guard.ts";
import { InterimAnswers } from "./interim-answers.ts";

/** How far a request has come. */
export type Phase = "resolving" | "connecting" | "securing" | "waiting" | "reading";

/** A connection was not made; `cause` says why, `phase` where it stopped. */
export class NotConnected extends Error {
  override name = "NotConnected";
  readonly phase: Phase;

  constructor(phase: Phase, cause: unknown) {
    super(`failed while ${phase}`, { cause });
    this.phase = phase;
  }
}

/** Idle connections are closed after this long, even if the server offers more. */
const IDLE_MS = 4_000;

/**
 * A keep-alive connection to one origin for one request at a time: undici's client, whose sockets go to addresses that
 * the guard has just checked, and to no others.
 */
export class Connection {
  readonly client: Client;
  readonly origin: string;
  phase: Phase = "resolving";
  /** Requests begun on the socket that is open. */
  #requests = 0;
  #interim: InterimAnswers | undefined;
  readonly #guard: UrlGuard;
  readonly #url: URL;
  readonly #secureContext: SecureContext;
  #socket: Socket | undefined;

  constructor(url: URL, guard: UrlGuard, secureContext: SecureContext) {
    this.origin = url.origin;
    this.#url = url;
    this.#guard = guard;
    this.#secureContext = secureContext;
    this.client = new Client(url.origin, {
      connect: (_, done) => void this.#connect(done),
      pipelining: 1,
      keepAliveTimeout: IDLE_MS,
      keepAliveMaxTimeout: IDLE_MS,
      // The whole request has one deadline, the caller's.
      headersTimeout: 0,
      bodyTimeout: 0,
    });
  }

  get open(): boolean {
    return this.#socket?.destroyed === false;
  }

  /** Bytes of an answer to the last request have come. */
  get hasBegunAnswer(): boolean {
    return this.#interim?.hasBegun === true;
  }

  /** Records that a request begins on the open socket. @returns whether the socket had carried another before it */
  beginRequest(): boolean {
    this.phase = "waiting";
    this.#interim?.expectAnswer();
    return this.#requests++ > 0;
  }

  /** Cuts it off, also while it is being made. */
  destroy(): void {
    void this.client.destroy();
    this.#socket?.destroy();
  }

  async #connect(done: buildConnector.Callback): Promise<void> {
    this.phase = "resolving";
    this.#requests = 0;
    try {
      const addresses = await this.#guard.resolve(this.#url.hostname, effectivePort(this.#url));
      if (this.client.destroyed) return;
      this.phase = "connecting";
      this.#open(addresses, done);
    } catch (error) {
      done(new NotConnected(this.phase, error), null);
    }
  }

  #open(addresses: LookupAddress[], done: buildConnector.Callback): void {
    const secure = this.#url.protocol === "https:";
    const hostname = this.#url.hostname.replace(/^\[|\]$/g, "");
    const options = connectOptions(hostname, effectivePort(this.#url), addresses);
    const socket = secure
      ? connectTls({
          ...options,
          secureContext: this.#secureContext,
          rejectUnauthorized: true,
          ALPNProtocols: ["http/1.1"],
          ...(isIP(hostname) ? {} : { servername: hostname }),
        })
      : connectTcp(options);
    this.#socket = socket.setNoDelay(true);
    this.#interim = new InterimAnswers(socket);
    const fail = (error: Error) => done(new NotConnected(this.phase, error), null);
    socket.once("error", fail);
    socket.once("connect", () => {
      if (secure) this.phase = "securing";
    });
    socket.once(secure ? "secureConnect" : "connect", () => {
      socket.off("error", fail);
      this.phase = "waiting";
      done(null, socket);
    });
  }
}

/** Idle connections in total; more are closed, because a process may open only so many files. */
const MAX_IDLE = 1_000;

/**
 * The idle connections. Connections in use have no limit, so that an endpoint that hangs holds up no other on its host.
 * An origin without an idle connection takes no memory.
 */
export class Connections {
  readonly #guard: UrlGuard;
  readonly #idle = new Map<string, Connection[]>();
  readonly #secureContext = createSecureContext();
  #count = 0;
  #closed = false;

  constructor(guard: UrlGuard) {
    this.#guard = guard;
  }

  /** The connection used last, or a new one; always a new one with `fresh`. */
  take(url: URL, { fresh = false }: { fresh?: boolean } = {}): Connection {
    const idle = fresh ? undefined : this.#idle.get(url.origin)?.at(-1);
    if (idle) {
      this.#remove(idle);
      return idle;
    }
    const made = new Connection(url, this.#guard, this.#secureContext);
    made.client.on("disconnect", () => {
      if (this.#remove(made)) made.destroy();
    });
    return made;
  }

  /** Keeps a connection for the next request. */
  giveBack(connection: Connection): void {
    if (this.#closed || !connection.open || this.#count >= MAX_IDLE) {
      connection.destroy();
      return;
    }
    connection.phase = "waiting";
    const idle = this.#idle.get(connection.origin);
    if (idle) idle.push(connection);
    else this.#idle.set(connection.origin, [connection]);
    this.#count++;
  }

  /** Closes idle connections; those in use are closed when they are given back. */
  close(): void {
    this.#closed = true;
    for (const connection of [...this.#idle.values()].flat()) connection.destroy();
    this.#idle.clear();
    this.#count = 0;
  }

  #remove(connection: Connection): boolean {
    const idle = this.#idle.get(connection.origin);
    const index = idle?.indexOf(connection) ?? -1;
    if (idle === undefined || index < 0) return false;
    idle.splice(index, 1);
    if (idle.length === 0) this.#idle.delete(connection.origin);
    this.#count--;
    return true;
  }
}

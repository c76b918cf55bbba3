import { connect as connectTcp, isIP, type Socket } from "node:net";
import { connect as connectTls, createSecureContext, type SecureContext } from "node:tls";
import { connectOptions } from "../../lib/connect-options.ts";
import { effectivePort, type UrlGuard } from "../../lib/url-guard.ts";

/** How far a request has come; "waiting" for its answer, or for the next request. */
export type Phase = "resolving" | "connecting" | "securing" | "waiting";

export interface Carried {
  receive(chunk: Buffer): void;
  /** The connection has ended or was not made. @param error undefined if the other side closed it */
  lose(error: unknown): void;
}

/** A connection to one origin for one request at a time. Its socket goes to an address that the guard has just checked. */
export class Connection {
  phase: Phase = "resolving";
  isReused = false;
  readonly origin: string;
  readonly #url: URL;
  readonly #pool: Connections;
  #socket: Socket | undefined;
  #carried: Carried | undefined;

  constructor(url: URL, pool: Connections) {
    this.origin = url.origin;
    this.#url = url;
    this.#pool = pool;
  }

  send(request: Buffer, carried: Carried): void {
    this.#carried = carried;
    if (this.#socket) this.#socket.write(request);
    else void this.#open(request);
  }

  rest(idleMs: number): void {
    this.isReused = true;
    this.#carried = undefined;
    this.#socket?.setTimeout(idleMs);
  }

  /** Cuts it off, also while it is being made. */
  destroy(): void {
    this.#carried = undefined;
    this.#pool.forget(this);
    this.#socket?.destroy();
  }

  async #open(request: Buffer): Promise<void> {
    try {
      const { hostname, protocol } = this.#url;
      const { guard, secureContext } = this.#pool;
      const port = effectivePort(this.#url);
      const options = connectOptions(hostname, port, await guard.resolve(hostname, port));
      if (!this.#carried) return;
      this.phase = "connecting";
      const isSecure = protocol === "https:";
      const servername = isIP(options.host ?? "") ? {} : { servername: hostname };
      const tls = { ...servername, secureContext, rejectUnauthorized: true, ALPNProtocols: ["http/1.1"] };
      const socket = isSecure ? connectTls({ ...options, ...tls }) : connectTcp(options);
      this.#socket = socket.setNoDelay(true);
      socket.on("connect", () => {
        this.phase = isSecure ? "securing" : "waiting";
      });
      socket.on(isSecure ? "secureConnect" : "connect", () => {
        this.phase = "waiting";
        socket.write(request);
      });
      socket.on("data", (chunk) => (this.#carried ? this.#carried.receive(chunk) : this.destroy()));
      socket.on("timeout", () => {
        if (!this.#carried) this.destroy();
      });
      socket.on("error", (error) => this.#lose(error));
      for (const end of ["end", "close"]) socket.on(end, () => this.#lose());
    } catch (error) {
      this.#lose(error);
    }
  }

  #lose(error?: unknown): void {
    const carried = this.#carried;
    this.destroy();
    carried?.lose(error);
  }
}

/** Idle connections are closed after this long, and so long before the server would close them. */
const IDLE_MS = 4_000;
const MARGIN_MS = 1_000;
/** In total: a process may open only so many files. */
const MAX_IDLE = 1_000;

/** The idle connections. Those in use have no limit, so that an endpoint that hangs holds up no other on its host. */
export class Connections {
  readonly guard: UrlGuard;
  readonly secureContext: SecureContext = createSecureContext();
  readonly #idle: Connection[] = [];
  #isClosed = false;

  constructor(guard: UrlGuard) {
    this.guard = guard;
  }

  /** The idle connection to the URL's origin that was used last, or a new one. */
  take(url: URL): Connection {
    const { origin } = url;
    const index = this.#idle.findLastIndex((idle) => idle.origin === origin);
    return this.#idle.splice(index, index < 0 ? 0 : 1)[0] ?? new Connection(url, this);
  }

  /** Keeps a connection for the next request, unless the server keeps it for too short a time. */
  giveBack(connection: Connection, keepAliveMs: number): void {
    const idleMs = Math.min(IDLE_MS, keepAliveMs - MARGIN_MS);
    if (this.#isClosed || idleMs <= 0 || this.#idle.length >= MAX_IDLE) connection.destroy();
    else {
      connection.rest(idleMs);
      this.#idle.push(connection);
    }
  }

  forget(connection: Connection): void {
    const index = this.#idle.indexOf(connection);
    if (index >= 0) this.#idle.splice(index, 1);
  }

  /** Closes idle connections; those in use are closed when they are given back. */
  close(): void {
    this.#isClosed = true;
    for (const connection of [...this.#idle]) connection.destroy();
  }
}

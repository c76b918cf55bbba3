/**
 * A lean SMTP server that discards mail and counts it, so that only the sender is measured. Started by
 * `startSink`, it is a process of its own; run by hand it listens on `--port` and waits `--latency-ms` before it answers
 * a final dot.
 */
import { createServer, type Socket } from "node:net";
import { parseArgs } from "node:util";
import { answerEach, startModule } from "./own-process.ts";

/** The counts of a sink since it was last cleared. */
export interface SinkStats {
  /** Messages that were answered with 250. */
  received: number;
  /** Different addresses among their recipients. */
  recipients: number;
  /** How often a message reached an address again. */
  duplicates: number;
  /** Connections open now, and the most that were open at once. */
  connections: number;
  mostConnections: number;
  /** When the first and the last message were answered, in ms since the epoch; null before the first. */
  firstAt: number | null;
  lastAt: number | null;
}

/** A sink in a process of its own. */
export interface Sink {
  pid: number;
  host: string;
  port: number;
  stats(): Promise<SinkStats>;
  /** How many of these addresses got a mail. */
  reached(addresses: readonly string[]): Promise<number>;
  /** Sets the counts to 0, and waits `latencyMs` before answering a dot from now on. */
  clear(latencyMs?: number): Promise<void>;
  close(): void;
}

type SinkRequest =
  | { ask: "stats" }
  | { ask: "reached"; addresses: readonly string[] }
  | { ask: "clear"; latencyMs?: number | undefined };

const HOST = "127.0.0.1";
const CRLF = Buffer.from("\r\n");
const END_OF_MESSAGE = Buffer.from("\r\n.\r\n");
/** Bytes of a chunk that may begin an end of message which the next chunk completes. */
const OVERLAP = END_OF_MESSAGE.length - 1;
const EMPTY = Buffer.alloc(0);

/** Starts a sink on a free port. */
export async function startSink(latencyMs = 0): Promise<Sink> {
  const { pid, reply, ask, close } = startModule(import.meta.filename, ["--latency-ms", String(latencyMs)]);
  return {
    pid,
    host: HOST,
    port: await reply<number>(),
    stats: () => ask({ ask: "stats" } satisfies SinkRequest),
    reached: (addresses) => ask({ ask: "reached", addresses } satisfies SinkRequest),
    clear: (latency) => ask({ ask: "clear", latencyMs: latency } satisfies SinkRequest),
    close,
  };
}

/** The sink itself. */
class SinkServer {
  latencyMs: number;
  #seen = new Map<string, number>();
  #received = 0;
  #duplicates = 0;
  #connections = 0;
  #mostConnections = 0;
  #firstAt: number | null = null;
  #lastAt: number | null = null;

  constructor(latencyMs: number) {
    this.latencyMs = latencyMs;
  }

  accept(socket: Socket): void {
    this.#connections++;
    this.#mostConnections = Math.max(this.#mostConnections, this.#connections);
    socket.setNoDelay(true);
    socket.on("error", () => {}); // a client that was killed
    socket.once("close", () => this.#connections--);
    const conversation = new Conversation(socket, this);
    socket.on("data", (chunk: Buffer) => conversation.take(chunk));
  }

  /** Counts a message that is about to be answered with 250. */
  count(recipients: readonly string[]): void {
    this.#received++;
    this.#lastAt = Date.now();
    this.#firstAt ??= this.#lastAt;
    for (const recipient of recipients) {
      const times = this.#seen.get(recipient) ?? 0;
      if (times > 0) this.#duplicates++;
      this.#seen.set(recipient, times + 1);
    }
  }

  reached(addresses: readonly string[]): number {
    return addresses.filter((address) => this.#seen.has(address)).length;
  }

  clear(): void {
    this.#seen.clear();
    this.#received = 0;
    this.#duplicates = 0;
    this.#mostConnections = this.#connections;
    this.#firstAt = null;
    this.#lastAt = null;
  }

  stats(): SinkStats {
    return {
      received: this.#received,
      recipients: this.#seen.size,
      duplicates: this.#duplicates,
      connections: this.#connections,
      mostConnections: this.#mostConnections,
      firstAt: this.#firstAt,
      lastAt: this.#lastAt,
    };
  }
}

/** One client. Commands may come in one packet (PIPELINING), and any of them cut in two. */
class Conversation {
  readonly #socket: Socket;
  readonly #server: SinkServer;
  #rest: Buffer = EMPTY;
  /** The last bytes that were read of a message; undefined while commands are read. */
  #tail: Buffer | undefined;
  #recipients: string[] = [];
  #waiting = false;

  constructor(socket: Socket, server: SinkServer) {
    this.#socket = socket;
    this.#server = server;
    socket.write("220 sink.example ESMTP\r\n");
  }

  take(chunk: Buffer): void {
    this.#rest = this.#rest.length === 0 ? chunk : Buffer.concat([this.#rest, chunk]);
    if (!this.#waiting) this.#read();
  }

  #read(): void {
    let answers = "";
    while (this.#rest.length > 0 && !this.#waiting) {
      const answer = this.#tail ? this.#readMessage(this.#tail) : this.#readCommand();
      if (answer === undefined) break;
      answers += answer;
    }
    if (answers !== "") this.#socket.write(answers);
  }

  #readCommand(): string | undefined {
    const end = this.#rest.indexOf(CRLF);
    if (end < 0) return undefined;
    const line = this.#rest.toString("latin1", 0, end);
    this.#rest = this.#rest.subarray(end + CRLF.length);
    switch (line.slice(0, 4).toUpperCase()) {
      case "EHLO":
        return "250-sink.example\r\n250-PIPELINING\r\n250-8BITMIME\r\n250-SMTPUTF8\r\n250 ENHANCEDSTATUSCODES\r\n";
      case "HELO":
        return "250 sink.example\r\n";
      case "MAIL":
        this.#recipients = [];
        return "250 2.1.0 Ok\r\n";
      case "RCPT":
        this.#recipients.push(line.slice(line.indexOf("<") + 1, line.lastIndexOf(">")));
        return "250 2.1.5 Ok\r\n";
      case "DATA":
        if (this.#recipients.length === 0) return "503 5.5.1 No recipients\r\n";
        // A message may be empty: its dot then follows the line of DATA.
        this.#tail = CRLF;
        return "354 Go ahead\r\n";
      case "RSET":
        this.#recipients = [];
        return "250 2.0.0 Ok\r\n";
      case "NOOP":
        return "250 2.0.0 Ok\r\n";
      case "QUIT":
        this.#socket.end("221 2.0.0 Bye\r\n");
        this.#rest = EMPTY;
        return undefined;
      default:
        return "502 5.5.2 Not implemented\r\n";
    }
  }

  #readMessage(tail: Buffer): string | undefined {
    // The end may lie across two chunks: only their seam is looked at together.
    const seam = Buffer.concat([tail, this.#rest.subarray(0, OVERLAP)]);
    const inSeam = seam.indexOf(END_OF_MESSAGE);
    const end = inSeam >= 0 ? inSeam - tail.length : this.#rest.indexOf(END_OF_MESSAGE);
    if (inSeam < 0 && end < 0) {
      this.#tail = Buffer.concat([tail, this.#rest]).subarray(-OVERLAP);
      this.#rest = EMPTY;
      return undefined;
    }
    this.#rest = this.#rest.subarray(end + END_OF_MESSAGE.length);
    this.#tail = undefined;
    if (this.#server.latencyMs === 0) return this.#accepted();
    this.#waiting = true;
    setTimeout(() => {
      this.#waiting = false;
      // The connection may be gone and its answer with it, but the message was taken.
      const answer = this.#accepted();
      if (!this.#socket.destroyed) this.#socket.write(answer);
      this.#read();
    }, this.#server.latencyMs);
    return undefined;
  }

  #accepted(): string {
    this.#server.count(this.#recipients);
    this.#recipients = [];
    return "250 2.0.0 Ok: queued\r\n";
  }
}

function main(): void {
  const { values } = parseArgs({
    options: { port: { type: "string", default: "0" }, "latency-ms": { type: "string", default: "0" } },
  });
  const sink = new SinkServer(Number(values["latency-ms"]));
  const server = createServer({ noDelay: true }, (socket) => sink.accept(socket));
  server.listen(Number(values.port), HOST, () => {
    const address = server.address();
    const port = typeof address === "object" && address ? address.port : 0;
    if (process.send) process.send(port);
    else console.log(`SMTP sink on ${HOST}:${port}`);
  });
  answerEach((request: SinkRequest) => {
    if (request.ask === "reached") return sink.reached(request.addresses);
    if (request.ask === "clear") {
      sink.clear();
      if (request.latencyMs !== undefined) sink.latencyMs = request.latencyMs;
    }
    return sink.stats();
  });
}

if (import.meta.main) main();

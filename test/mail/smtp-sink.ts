import { once } from "node:events";
import type { AddressInfo, Socket } from "node:net";
import { SMTPServer, type SMTPServerOptions, type SMTPServerSession } from "smtp-server";

/** A reply other than success, or a session that breaks off. */
export type Fault = { code: number; text: string } | "drop" | "hang";

export interface Received {
  from: string;
  to: string;
  /** The client's name in EHLO */
  name: string;
  /** The message as received, without dot-stuffing */
  raw: Buffer;
  /** Number of the sink's connection that carried it */
  connection: number;
}

export interface SinkOptions extends SMTPServerOptions {
  /** Replies to MAIL FROM, RCPT TO and the final dot; undefined accepts. */
  mail?: (address: string) => Fault | undefined;
  rcpt?: (address: string) => Fault | undefined;
  dot?: (message: Received) => Fault | undefined;
  dropInBody?: boolean;
  /** Wait before the reply to the final dot */
  latencyMs?: number;
  /** Address to listen on; 127.0.0.1 unless given */
  listenOn?: string;
}

export interface Sink {
  port: number;
  received: Received[];
  /** All connections so far, and those open now */
  connections: { made: number; open: number };
  close(): Promise<void>;
}

export async function startSink(options: SinkOptions = {}): Promise<Sink> {
  const sockets = new Map<number, { socket: Socket; number: number }>();
  const received: Received[] = [];
  const connections = { made: 0, open: 0 };
  const drop = (session: SMTPServerSession) => sockets.get(session.remotePort)?.socket.destroy();

  const answer = (fault: Fault | undefined, session: SMTPServerSession, callback: (error?: Error | null) => void) => {
    if (fault === "hang") return;
    if (fault === "drop") drop(session);
    else if (fault) callback(Object.assign(new Error(fault.text), { responseCode: fault.code }));
    else callback();
  };

  const server = new SMTPServer({
    authOptional: true,
    logger: false, // it would warn that its certificate is not secret
    hideENHANCEDSTATUSCODES: true, // so that it sends a test's texts unchanged
    disableReverseLookup: true,
    closeTimeout: 100,
    onMailFrom: ({ address }, session, callback) => answer(options.mail?.(address), session, callback),
    onRcptTo: ({ address }, session, callback) => answer(options.rcpt?.(address), session, callback),
    onData(stream, session, callback) {
      const chunks: Buffer[] = [];
      stream.on("data", (chunk: Buffer) => {
        if (options.dropInBody) drop(session);
        chunks.push(chunk);
      });
      stream.once("end", () => {
        const { mailFrom, rcptTo } = session.envelope;
        const message = {
          from: mailFrom ? mailFrom.address : "",
          to: rcptTo.map(({ address }) => address).join(),
          name: String(session.hostNameAppearsAs),
          raw: Buffer.concat(chunks),
          connection: sockets.get(session.remotePort)?.number ?? 0,
        };
        const fault = options.dot?.(message);
        if (!fault) received.push(message);
        if (options.latencyMs) setTimeout(() => answer(fault, session, callback), options.latencyMs);
        else answer(fault, session, callback);
      });
    },
    ...options,
  });
  server.on("error", () => {}); // connections that a test breaks
  server.server.on("connection", (socket: Socket) => {
    connections.made++;
    connections.open++;
    socket.once("close", () => connections.open--);
    if (socket.remotePort !== undefined) sockets.set(socket.remotePort, { socket, number: connections.made });
  });
  server.listen(0, options.listenOn ?? "127.0.0.1");
  await once(server.server, "listening");
  let closing: Promise<void> | undefined;
  return {
    port: (server.server.address() as AddressInfo).port,
    received,
    connections,
    close() {
      closing ??= new Promise((resolve) => server.close(resolve));
      for (const { socket } of sockets.values()) socket.destroy();
      return closing;
    },
  };
}

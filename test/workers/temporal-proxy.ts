import { connect, constants, createServer, type IncomingHttpHeaders } from "node:http2";
import { status as grpc } from "@grpc/grpc-js";
import { listenLocally } from "../support/listen-locally.ts";
import { stack } from "../support/stack.ts";

export interface ProxiedCall {
  /** E.g. DescribeNamespace. */
  method: string;
  headers: IncomingHttpHeaders;
}

/** A way to the stack's Temporal of a test's own, which records the calls that come along it. */
export interface TemporalProxy {
  /** host:port */
  address: string;
  calls: ProxiedCall[];
  /** Answers calls of a method with this status from now on, and lets none through; without one lets them through again. */
  refuse(method: string, code?: keyof typeof grpc): void;
  close(): void;
}

export async function openTemporalProxy(): Promise<TemporalProxy> {
  const { temporal } = await stack();
  const upstream = connect(`http://${temporal.address}`);
  upstream.on("error", () => undefined);
  const calls: ProxiedCall[] = [];
  const refused = new Map<string, keyof typeof grpc>();
  const server = createServer();
  server.on("stream", (stream, headers) => {
    const method = String(headers[":path"]).split("/").at(-1) ?? "";
    calls.push({ method, headers });
    stream.on("error", () => undefined);
    const code = refused.get(method);
    if (code !== undefined) {
      stream.resume();
      const status = { "grpc-status": String(grpc[code]), "grpc-message": "refused" };
      stream.respond({ ":status": 200, "content-type": "application/grpc", ...status }, { endStream: true });
      return;
    }
    const call = upstream.request({ ...headers, ":authority": temporal.address });
    call.on("error", () => stream.close());
    stream.on("close", () => call.close());
    call.on("response", (answered, flags) => {
      // A refusal has its status in the first headers, and nothing follows.
      const hasEnded = (flags & constants.NGHTTP2_FLAG_END_STREAM) !== 0;
      if (!stream.destroyed) stream.respond(answered, hasEnded ? { endStream: true } : { waitForTrailers: true });
    });
    let trailers = {};
    call.on("trailers", (given) => {
      trailers = given;
    });
    stream.on("wantTrailers", () => stream.sendTrailers(trailers));
    stream.pipe(call);
    call.pipe(stream);
  });
  return {
    address: `127.0.0.1:${await listenLocally(server)}`,
    calls,
    refuse: (method, code) => void (code === undefined ? refused.delete(method) : refused.set(method, code)),
    close: () => {
      server.close();
      upstream.destroy();
    },
  };
}

import type { Server } from "node:http";
import type { Socket } from "node:net";
import { ApiError, type ErrorCode } from "../domain/errors.ts";
import { newId } from "../domain/ids.ts";
import { type Links, renderError } from "./rest/envelope.ts";

/** Refusals by the error code of Node's parser; any other error is a request that is not valid HTTP. */
const REFUSALS: Record<string, [ErrorCode, string]> = {
  HPE_HEADER_OVERFLOW: ["payload_too_large", "The request line and headers are larger than is accepted."],
  ERR_HTTP_REQUEST_TIMEOUT: ["validation_failed", "The request did not arrive in time."],
};

/** Answers requests that Node cannot parse, which never reach the application, in the API's envelope. */
export function answerRawErrors(server: Server, links: Links): void {
  server.on("clientError", (error: NodeJS.ErrnoException, socket: Socket) => {
    if (error.code === "ECONNRESET" || !socket.writable) return void socket.destroy();
    const [code, message] = REFUSALS[error.code ?? ""] ?? ["validation_failed", "The request is not valid HTTP."];
    const requestId = newId("request");
    const { status, headers, body } = renderError(requestId, new ApiError(code, message), links);
    const lines = Object.entries({
      ...headers,
      "X-Request-Id": requestId,
      "Content-Type": "application/json; charset=utf-8",
      "Content-Length": String(Buffer.byteLength(body)),
      Connection: "close",
    }).map(([name, value]) => `${name}: ${value}\r\n`);
    socket.end(`HTTP/1.1 ${status} Error\r\n${lines.join("")}\r\n${body}`);
  });
  // An unknown `Expect` header is ignored.
  server.on("checkExpectation", (request, response) => void server.emit("request", request, response));
}

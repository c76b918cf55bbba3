import type { Server, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import { ApiError, type ErrorCode } from "../domain/errors.ts";
import { newId } from "../domain/ids.ts";
import { ANSWER_HEADERS, type Links, renderError } from "./rest/envelope.ts";

/** Refusals by the error code of Node's parser; any other error is a request that is not valid HTTP. */
const REFUSALS: Record<string, [ErrorCode, string]> = {
  HPE_HEADER_OVERFLOW: ["payload_too_large", "The request line and headers are larger than is accepted."],
  ERR_HTTP_REQUEST_TIMEOUT: ["request_timeout", "The request did not arrive in time."],
};

/** Answers requests that Node cannot parse, which never reach the application, in the API's envelope. */
export function answerRawErrors(server: Server, links: Links): void {
  const answers = new WeakMap<Socket, ServerResponse>();
  server.prependListener("request", ({ socket }, response) => void answers.set(socket, response));
  server.on("clientError", (error: NodeJS.ErrnoException, socket: Socket) => {
    const answer = answers.get(socket);
    const isAnswering = answer?.headersSent === true && !answer.writableFinished;
    if (error.code === "ECONNRESET" || !socket.writable || isAnswering) return void socket.destroy();
    const [code, message] = REFUSALS[error.code ?? ""] ?? ["validation_failed", "The request is not valid HTTP."];
    const requestId = newId("request");
    const { status, headers, body } = renderError(requestId, new ApiError(code, message), links);
    const lines = Object.entries({
      ...ANSWER_HEADERS,
      "X-Content-Type-Options": "nosniff",
      ...headers,
      "X-Request-Id": requestId,
      "Content-Length": String(Buffer.byteLength(body)),
      Connection: "close",
    }).map(([name, value]) => `${name}: ${value}\r\n`);
    socket.end(`HTTP/1.1 ${status} Error\r\n${lines.join("")}\r\n${body}`);
  });
}

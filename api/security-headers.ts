import { IncomingMessage, ServerResponse } from "node:http";
import { Socket } from "node:net";
import helmet from "helmet";

/** Public pages post forms to themselves; over plain http, upgrading those requests to https would break them. */
const OPTIONS = { contentSecurityPolicy: { directives: { upgradeInsecureRequests: null } } };

/** An answer that only keeps the headers that are set on it. */
class Recorder extends ServerResponse {
  readonly recorded: Record<string, string> = {};

  override setHeader(name: string, value: number | string | readonly string[]): this {
    this.recorded[name] = String(value);
    return this;
  }
}

/** Helmet's headers are the same for every request: it is asked once instead of at each. */
function helmetHeaders(): Record<string, string> {
  const response = new Recorder(new IncomingMessage(new Socket()));
  helmet(OPTIONS)(response.req, response, (error) => {
    if (error) throw error;
  });
  return response.recorded;
}

/** The headers of every answer that limit what a browser does with it. */
export const SECURITY_HEADERS: Readonly<Record<string, string>> = helmetHeaders();

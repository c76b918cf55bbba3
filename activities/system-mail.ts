import { createTransport } from "nodemailer";
import { parseConnectionUrl } from "nodemailer/lib/shared";
import type { Env } from "../config/env.ts";

const CONNECTIONS = 5;

type Settings = Pick<Env, "SYSTEM_SMTP_URL" | "SMTP_HELO_NAME" | "SMTP_TIMEOUT_MS">;

/** A pool of connections for the service's own mail. A login goes out over TLS only, whatever the URL's options say. */
export const openTransport = ({ SYSTEM_SMTP_URL, SMTP_HELO_NAME: name, SMTP_TIMEOUT_MS: timeoutMs }: Settings) => {
  const server = parseConnectionUrl(SYSTEM_SMTP_URL);
  return createTransport({
    ...(name === undefined ? {} : { name }),
    ...server,
    ...(server.auth ? { requireTLS: true } : {}),
    pool: true,
    maxConnections: CONNECTIONS,
    connectionTimeout: timeoutMs,
    greetingTimeout: timeoutMs,
    socketTimeout: timeoutMs,
    disableFileAccess: true,
    disableUrlAccess: true,
  });
};

export type Transport = ReturnType<typeof openTransport>;

/** Reply codes from here on are final. */
export const PERMANENT = 500;

/** The server's reply code to RCPT or DATA; undefined without one, or when it refused the connection and not the mail. */
export function replyCode(error: unknown): number | undefined {
  const { code, responseCode } = error as { code?: unknown; responseCode?: unknown };
  return typeof responseCode === "number" && (code === "EENVELOPE" || code === "EMESSAGE") ? responseCode : undefined;
}

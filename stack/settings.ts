import { resolve } from "node:path";
import { z } from "zod";
import { givenVariables, SettingsError } from "../config/env.ts";

const port = (standard: number, most = 65_535) =>
  z
    .string()
    .regex(/^\d{1,5}$/, "must be a port number, or 0 for any free port")
    .transform(Number)
    .refine((value) => value <= most, `must be a port number up to ${most}, or 0 for any free port`)
    .default(standard);

/** Settings of the embedded stack alone; env.ts has those of the API and the workers. */
export const stackSettings = z.object({
  /** Folder for databases, secrets and logs. */
  DATA_DIR: z
    .string()
    .default(".data")
    .transform((path) => resolve(path)),
  /** Port of the API. */
  PORT: port(3000),
  /** Port of the embedded Postgres; unused with DATABASE_URL. */
  POSTGRES_PORT: port(5433),
  /** Port of the embedded Temporal server; unused with TEMPORAL_ADDRESS. */
  TEMPORAL_PORT: port(7233),
  /** Port of the embedded Temporal server's UI. */
  TEMPORAL_UI_PORT: port(8233),
  /** Port of the mail catcher for SMTP. */
  SMTP_PORT: port(1025),
  /** Port of the mail catcher's page and JSON. */
  MAIL_PORT: port(1080),
  /**
   * First of the ports for the health and metrics of its processes: that of the API. Sends, dispatch, webhooks, maintenance
   * and intake have those that follow.
   */
  HEALTH_PORT: port(9464, 65_530),
  /** Port of the demo's receiver, the one address of this machine that webhooks may reach; unused with WEBHOOK_ALLOWED_HOSTS. */
  WEBHOOK_RECEIVER_PORT: port(1090),
  /** A Temporal CLI to use instead of looking for one. */
  TEMPORAL_CLI: z.string().optional(),
});

export type StackSettings = z.infer<typeof stackSettings>;

/** Servers of sending accounts that the embedded stack may reach though they are not public: those of this machine. */
export const LOOPBACK_SMTP = "127.0.0.1:*,[::1]:*,localhost:*";

/**
 * Reads and checks the settings of the stack.
 * @throws {SettingsError} naming each setting that is wrong
 */
export function readStackSettings(source: NodeJS.ProcessEnv): StackSettings {
  const result = stackSettings.safeParse(givenVariables(source));
  if (result.success) return result.data;
  const lines = result.error.issues.map((issue) => `  ${issue.path.join(".")} ${issue.message}`);
  throw new SettingsError(`These settings are wrong:\n${lines.join("\n")}`);
}

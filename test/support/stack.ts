import { existsSync, readFileSync } from "node:fs";
import { dirname } from "node:path";
import { type Env, readEnv } from "../../config/env.ts";
import { LOOPBACK_SMTP } from "../../stack/settings.ts";
import type { StackFile } from "../../stack/state.ts";
import { NO_RATE_LIMITS } from "./stack-settings.ts";

export interface TestStack extends Pick<StackFile, "api" | "temporal" | "mail" | "health" | "pids"> {
  /** Scheme, host and port of the API: for paths outside the versioned base. */
  origin: string;
  /** The settings of the stack's processes: the same database, the same secrets; and the database with its owner's role. */
  env: Env;
}

/** The stack that `npm test` brought up; its secrets are in the same folder as its file. */
function givenStack(file: string): TestStack {
  const { api, database, migrationDatabase, temporal, mail, health, pids } = JSON.parse(
    readFileSync(file, "utf8"),
  ) as StackFile;
  const secrets = JSON.parse(readFileSync(`${dirname(file)}/secrets.json`, "utf8")) as Record<string, string>;
  const env = readEnv({
    DATABASE_URL: database,
    MIGRATION_DATABASE_URL: migrationDatabase,
    TEMPORAL_ADDRESS: temporal.address,
    TEMPORAL_NAMESPACE: temporal.namespace,
    SYSTEM_SMTP_URL: mail.smtp,
    SMTP_ALLOWED_HOSTS: LOOPBACK_SMTP,
    SIGNING_SECRET: secrets["signingSecret"],
    ENCRYPTION_KEYS: secrets["encryptionKeys"],
    PUBLIC_URL: new URL(api).origin,
    IMAGES_DIRECTORY: `${dirname(file)}/images`,
    LOG_LEVEL: "silent",
    ...NO_RATE_LIMITS,
  });
  return { api, origin: new URL(api).origin, env, temporal, mail, health, pids };
}

let opened: Promise<TestStack> | undefined;

/** The stack the tests run against; the same one for all of them. */
export function stack(): Promise<TestStack> {
  opened ??= openStack();
  return opened;
}

async function openStack(): Promise<TestStack> {
  const file = process.env["MAILKEEL_STACK"];
  if (file && existsSync(file)) return givenStack(file);
  throw new Error("Run the tests with `npm test`");
}

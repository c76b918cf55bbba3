import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { type Env, givenVariables, readEnv, SettingsError } from "../config/env.ts";
import type { StackFile } from "../stack/state.ts";

export interface AppSettings {
  env: Env;
  /** The running stack, if the settings come from it. */
  stack: StackFile | undefined;
  /** The settings name a Temporal cluster. */
  hasTemporal: boolean;
}

/** Values for settings that most commands do not use, so that an operator need not set them. */
const UNUSED = {
  TEMPORAL_ADDRESS: "127.0.0.1:7233",
  SYSTEM_SMTP_URL: "smtp://127.0.0.1:1025",
  PUBLIC_URL: "http://127.0.0.1:3000",
};

/**
 * The stack that runs over the data folder, undefined when none does.
 * @throws {SettingsError} when its file is there but cannot be read
 */
function readStack(source: NodeJS.ProcessEnv): StackFile | undefined {
  const file = `${resolve(source["DATA_DIR"] || ".data")}/stack.json`;
  try {
    return JSON.parse(readFileSync(file, "utf8"));
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "ENOENT") return undefined;
    throw new SettingsError(`${file} cannot be read: ${error instanceof Error ? error.message : error}`);
  }
}

/**
 * Settings from the environment when DATABASE_URL is set there, else those of the running stack.
 * @throws {SettingsError} when there is neither, or one is wrong
 */
export function readAppSettings(variables: NodeJS.ProcessEnv = process.env): AppSettings {
  const source = givenVariables(variables);
  if (source["DATABASE_URL"]) {
    const hasTemporal = Boolean(source["TEMPORAL_ADDRESS"]);
    return { env: readEnv({ ...UNUSED, ...source }), stack: undefined, hasTemporal };
  }
  const stack = readStack(source);
  if (!stack) {
    throw new SettingsError(
      "No running service found. Start one with `npm start`, or set DATABASE_URL, SIGNING_SECRET and ENCRYPTION_KEYS.",
    );
  }
  const env = readEnv({ ...stack.settings, ...source, DATABASE_URL: stack.database });
  return { env, stack, hasTemporal: true };
}

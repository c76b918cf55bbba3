// Plain JavaScript for any Node from 20 on, with nothing installed: the ways to Temporal's server, before and behind the installation.
import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";

/** temporal-cli/go.mod requires the same one. */
export const TEMPORAL_CLI_VERSION = "1.5.1";
export const RELEASES = "https://github.com/temporalio/cli/releases/download";
const ANSWER_MS = 800;

/**
 * In the user's cache folder, so that a second clone finds it.
 * @param {Record<string, string | undefined>} env
 */
export function cachedCli(env) {
  const cache = env["XDG_CACHE_HOME"] || join(homedir(), ".cache");
  return join(cache, "mailkeel", `temporal-${TEMPORAL_CLI_VERSION}`, "temporal");
}

/** @param {Record<string, string | undefined>} env */
export const temporalWays = (env) => `Any one of these helps:
  - install it (https://docs.temporal.io/cli) so that \`temporal\` is on the PATH, or name the file in TEMPORAL_CLI
  - put the binary of version ${TEMPORAL_CLI_VERSION} at ${cachedCli(env)}
  - give this machine access to github.com, where Mailkeel downloads it from
  - install Go (https://go.dev/dl): Mailkeel then builds it with \`go install\`
Or set TEMPORAL_ADDRESS to use a Temporal cluster of your own.`;

/**
 * Says what is missing in the first second, and not after minutes of installing packages.
 * @param {Record<string, string | undefined>} env
 * @returns {Promise<string | undefined>} the problem; undefined also where only the download itself can tell, as behind a proxy
 */
export async function findTemporalProblem(env) {
  const { TEMPORAL_ADDRESS, TEMPORAL_CLI, HTTPS_PROXY, https_proxy } = env;
  if (TEMPORAL_ADDRESS || TEMPORAL_CLI || HTTPS_PROXY || https_proxy || existsSync(cachedCli(env))) return undefined;
  const isThere = (/** @type {string} */ program, /** @type {string} */ argument) =>
    spawnSync(program, [argument], { env, timeout: ANSWER_MS }).status === 0;
  if (isThere("temporal", "--version") || isThere("go", "version")) return undefined;
  try {
    await fetch(RELEASES, { method: "HEAD", redirect: "manual", signal: AbortSignal.timeout(ANSWER_MS) });
    return undefined;
  } catch {
    return `The Temporal CLI is not here, github.com does not answer, and there is no Go to build it. ${temporalWays(env)}`;
  }
}

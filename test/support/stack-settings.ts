import { type StackSettings, stackSettings } from "../../stack/settings.ts";

export const STACK_SETTINGS = Object.keys(stackSettings.shape) as (keyof StackSettings)[];

/** Limits that tests and measurements do not reach: they send from one address, and measure the API, not its limits. */
export const NO_RATE_LIMITS = {
  RATE_LIMIT_PER_MINUTE: "1000000000",
  FAILED_AUTHENTICATIONS_PER_MINUTE: "1000000000",
};

/** Variables that programs need; none of them names a database or a cluster. */
const SHELL =
  /^(PATH|HOME|USER|SHELL|TERM|TMPDIR|LANG|XDG_CACHE_HOME|LOG_LEVEL|TEMPORAL_CLI|(NODE_|GO|LC_|SSL_).*|.*_proxy)$/i;

/**
 * Variables of this process for a stack of tests or measurements: without settings that name a database or a cluster.
 * @param also names of more variables to pass on
 */
export function shellVariables(also?: RegExp): NodeJS.ProcessEnv {
  return Object.fromEntries(Object.entries(process.env).filter(([name]) => SHELL.test(name) || also?.test(name)));
}

/** A free port for each port setting: for stacks that run at the same time as others. */
export const FREE_PORTS: Record<string, string> = Object.fromEntries(
  STACK_SETTINGS.filter((name) => name.endsWith("PORT")).map((name) => [name, "0"]),
);

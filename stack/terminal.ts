import { SettingsError } from "../config/env.ts";
import { MigrationBlockedError } from "../db/orm.ts";
import { AdmissionError } from "../domain/secrets/admission.ts";
import type { Step } from "./infra.ts";
import { StackError } from "./processes.ts";
import type { StackFile } from "./state.ts";

/** Prints each step when it is done, with its time. */
export const printedStep: Step = async (name, work) => {
  const startedAt = performance.now();
  const result = await work((message) => console.log(`  … ${name}: ${message}`));
  console.log(`  ✓ ${name} (${((performance.now() - startedAt) / 1_000).toFixed(1)} s)`);
  return result;
};

/** One message for a mistake that the user can repair, the whole error for a defect of ours. */
export function explain(error: unknown): string {
  const forOperators = [StackError, SettingsError, AdmissionError, MigrationBlockedError];
  for (const known of forOperators) if (error instanceof known) return error.message;
  return error instanceof Error ? (error.stack ?? error.message) : String(error);
}

/** Addresses, keys and a first request that works. */
export function banner({ api, temporal, mail, keys }: StackFile, signIn: string, dataDir: string): string {
  return `
Mailkeel is ready. Ctrl-C stops it; data stays in ${dataDir}.

  Console       ${signIn}
                signs in as the demo team's owner, once, within 15 minutes; later: npm run app -- member:link --help
  API           ${api}
  Temporal UI   ${temporal.ui ?? `the one of ${temporal.address}`}
  Caught mail   ${mail.api}
  Logs          ${dataDir}/logs

  Demo team, live key   ${keys.live}
  Demo team, test key   ${keys.test}

Try it:

  curl -H "Authorization: Bearer ${keys.live}" ${api}/me

Or watch a newsletter go out, from a CSV of contacts to the mails and webhooks:

  npm run demo
`;
}

/** A Ctrl-C reaches us from the terminal and again from npm; a second one by hand takes longer. */
const SAME_SIGNAL_MS = 500;

/**
 * Calls `stop` at the first signal to end and `force` at a second one. Losing the parent (start.mjs, test.mjs) is such
 * a signal too.
 */
export function onSignals(stop: () => void, force: () => void): void {
  let firstAt: number | undefined;
  const signalled = () => {
    if (firstAt === undefined) {
      firstAt = performance.now();
      stop();
    } else if (performance.now() - firstAt > SAME_SIGNAL_MS) force();
  };
  for (const name of ["SIGINT", "SIGTERM", "SIGHUP", "disconnect"]) process.on(name, signalled);
}

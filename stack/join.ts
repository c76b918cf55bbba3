import { givenVariables, isSetting, SettingsError } from "../config/env.ts";
import { connectToStack, readStackFile } from "./lock.ts";
import { readStackSettings } from "./settings.ts";

/** Settings of a single process: one that joins a stack has those of its own shell. */
const OWN = new Set([
  ...["ACTIVITY_CONCURRENCY", "DATABASE_POOL_MAX", "HEALTH_HOST", "HEALTH_PORT", "LOG_LEVEL"],
  ...["WORKER_BUILD_ID", "WORKER_DEPLOYMENT_NAME"],
]);

export interface JoinedStack {
  /** The variables of a process of the stack. */
  variables: Record<string, string>;
  /** Aborted when the stack stops or was killed. A stack that stops waits until this process has ended. */
  stopping: AbortSignal;
}

/**
 * Joins the stack that runs on the data folder of the variables.
 * @throws {SettingsError} when none runs there
 */
export async function joinStack(source: NodeJS.ProcessEnv): Promise<JoinedStack> {
  const { DATA_DIR: dataDir } = readStackSettings(source);
  const connection = await connectToStack(dataDir);
  if (connection === undefined) {
    throw new SettingsError(
      `No stack runs on ${dataDir}. Start one with \`npm start\`, or set DATA_DIR to the folder of the one that runs.`,
    );
  }
  const running = await readStackFile(dataDir);
  if (running === undefined) {
    connection.destroy();
    throw new SettingsError(`The stack on ${dataDir} is starting or stopping. Try again once it is ready.`);
  }
  const stop = new AbortController();
  connection.once("end", () => stop.abort()).once("close", () => stop.abort());
  const own = Object.entries(givenVariables(source)).filter(
    ([name]) => OWN.has(name) || !(isSetting(name) || name.startsWith("TEMPORAL_")),
  );
  const variables = { ...running.settings, ...Object.fromEntries(own) };
  // The shell is the one that started the stack, whose processes have that port and those that follow.
  const isTaken = Object.values(running.health).some((url) => new URL(url).port === variables["HEALTH_PORT"]);
  if (isTaken) delete variables["HEALTH_PORT"];
  return { variables, stopping: stop.signal };
}

import { givenVariables, isSetting, SettingsError } from "../config/env.ts";
import { connectToStack, readStackFile } from "./lock.ts";
import { readStackSettings } from "./settings.ts";

/** Settings of a single process: one that joins a stack has those of its own shell. */
const OWN = new Set([
  ...["ACTIVITY_CONCURRENCY", "DATABASE_POOL_MAX", "HEALTH_HOST", "HEALTH_PORT", "LOG_LEVEL"],
  ...["WORKER_BUILD_ID", "WORKER_DEPLOYMENT_NAME"],
]);

/**
 * Takes over the settings of the stack that runs on the data folder of this process, and ends with that stack: it is asked
 * to stop by SIGTERM when the stack stops or was killed. A stack that stops waits until this process has ended.
 * @returns the variables of a process of the stack
 * @throws {SettingsError} when none runs there
 */
export async function joinStack(source: NodeJS.ProcessEnv): Promise<Record<string, string>> {
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
  connection.once("close", () => process.kill(process.pid, "SIGTERM"));
  connection.once("end", () => process.kill(process.pid, "SIGTERM"));
  const own = Object.entries(givenVariables(source)).filter(
    ([name]) => OWN.has(name) || !(isSetting(name) || name.startsWith("TEMPORAL_")),
  );
  const variables = { ...running.settings, ...Object.fromEntries(own) };
  // The shell is the one that started the stack, whose processes have that port and those that follow.
  const isTaken = Object.values(running.health).some((url) => new URL(url).port === variables["HEALTH_PORT"]);
  if (isTaken) delete variables["HEALTH_PORT"];
  return variables;
}

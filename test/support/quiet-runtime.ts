import { DefaultLogger, Runtime } from "@temporalio/worker";

let installed = false;

/** Keeps Temporal's SDK off the terminal, for workers and replays in the tests' process: it has one runtime for all of them. */
export function installQuietRuntime(): void {
  if (installed) return;
  installed = true;
  Runtime.install({
    logger: new DefaultLogger("ERROR", () => {}),
    shutdownSignals: [],
    telemetryOptions: { logging: { filter: "OFF", console: {} } },
  });
}

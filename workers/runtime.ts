import { DefaultLogger, makeTelemetryFilterString, Runtime } from "@temporalio/worker";
import type { Logger } from "pino";
import { claimPort, PORT_PICKS } from "../config/ports.ts";

/** How long the SDK, in this same process, may take to answer with its metrics. */
const METRICS_TIMEOUT_MS = 2_000;

/**
 * Sets the SDK's runtime up, with its metrics at a port of this machine alone.
 * @param pool a label of every metric
 * @returns reads the metrics, in the text format of Prometheus
 */
export async function installRuntime(log: Logger, pool: string): Promise<() => Promise<string>> {
  for (let tries = 1; ; tries++) {
    const address = `127.0.0.1:${await claimPort()}`;
    try {
      Runtime.install({
        logger: new DefaultLogger("WARN", ({ level, message, meta }) =>
          log[level === "ERROR" ? "error" : "warn"]({ sdk: meta?.["sdkComponent"] }, message),
        ),
        shutdownSignals: [],
        telemetryOptions: {
          // The SDK's core writes into our log instead of to the terminal.
          logging: { filter: makeTelemetryFilterString({ core: "WARN", other: "ERROR" }), forward: {} },
          metrics: {
            globalTags: { pool },
            // Names and units as Prometheus wants them.
            prometheus: {
              bindAddress: address,
              countersTotalSuffix: true,
              unitSuffix: true,
              useSecondsForDurations: true,
            },
          },
        },
      });
      return async () => {
        const answer = await fetch(`http://${address}/metrics`, { signal: AbortSignal.timeout(METRICS_TIMEOUT_MS) });
        if (!answer.ok) throw new Error(`The SDK's metrics were answered with ${answer.status}`);
        return answer.text();
      };
    } catch (error) {
      // The SDK takes a fixed port only: for port 0 it does not say which one it got.
      const taken = error instanceof Error && error.message.includes("in use");
      if (!taken || tries === PORT_PICKS) throw error;
    }
  }
}

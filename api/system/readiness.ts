import { status as grpc } from "@grpc/grpc-js";
import { isGrpcServiceError } from "@temporalio/client";
import type { Logger } from "pino";
import type { Env } from "../../config/env.ts";
import { openProbe } from "../../db/probe.ts";
import { beforeDeadline } from "../rest/deadline.ts";
import type { TemporalGateway } from "../temporal-gateway.ts";

/** Shorter than the timeout of a probe. */
const DEADLINE_MS = 2_000;
/** How long one report answers all requests, so that many of them cost one check. */
const KEPT_MS = 1_000;

type Dependency = "postgres" | "temporal";

export type Readiness = { ready: boolean } & Record<Dependency, "ok" | "unreachable">;

/** Tells whether the dependencies answer, at most a second ago. */
export interface ReadinessCheck {
  read(): Promise<Readiness>;
  close(): Promise<void>;
}

/** Opens the check, with a connection to Postgres beside those that requests use. */
export function openReadiness(
  env: Pick<Env, "DATABASE_URL" | "TEMPORAL_NAMESPACE">,
  temporal: TemporalGateway,
  log: Logger,
): ReadinessCheck {
  const namespace = env.TEMPORAL_NAMESPACE;
  const probe = openProbe(env.DATABASE_URL, DEADLINE_MS);
  const checks: Record<Dependency, () => Promise<unknown>> = {
    postgres: () => probe.check(),
    temporal: () =>
      temporal
        .call(DEADLINE_MS, ({ workflowService }) => workflowService.describeNamespace({ namespace }))
        .catch((error) => {
          // A key that may not ask: Temporal is there.
          if (!isGrpcServiceError(error) || error.code !== grpc.PERMISSION_DENIED) throw error;
        }),
  };
  const stateOf = async (dependency: Dependency) => {
    try {
      await beforeDeadline(DEADLINE_MS, checks[dependency]);
      return "ok";
    } catch (err) {
      log.warn({ err, dependency }, "not ready");
      return "unreachable";
    }
  };
  const check = async (): Promise<Readiness> => {
    const [postgres, temporal] = await Promise.all([stateOf("postgres"), stateOf("temporal")]);
    return { ready: postgres === "ok" && temporal === "ok", postgres, temporal };
  };

  let latest: { report: Promise<Readiness>; until: number } | undefined;
  return {
    read: () => {
      if (latest && performance.now() < latest.until) return latest.report;
      const current = { report: check(), until: Number.POSITIVE_INFINITY };
      latest = current;
      void current.report.then(() => {
        current.until = performance.now() + KEPT_MS;
      });
      return current.report;
    },
    close: () => probe.close(),
  };
}

import { status as grpc } from "@grpc/grpc-js";
import {
  Client,
  Connection,
  type ConnectionOptions,
  defaultGrpcRetryOptions,
  isGrpcServiceError,
  makeGrpcRetryInterceptor,
  WorkflowUpdateRPCTimeoutOrCancelledError,
} from "@temporalio/client";
import { loadClientConnectConfig } from "@temporalio/envconfig";
import type { Logger } from "pino";
import type { Registry } from "prom-client";
import type { Env } from "../config/env.ts";
import { openLog } from "../config/log.ts";
import type { MikroORM } from "../db/orm.ts";
import type { TokenVerifier } from "../domain/access/authenticate.ts";
import { openTokenVerifier, type TokenRules } from "../domain/access/oauth.ts";
import { RequestLimits } from "../domain/access/request-limit.ts";
import { type AdmittedDatabase, openAdmitted } from "../domain/admission.ts";
import { openVault, type Vault } from "../domain/crypto.ts";
import { ApiError, UNAVAILABLE_RETRY_SECONDS } from "../domain/errors.ts";
import { type CheckUrl, guardedUrl } from "../domain/webhooks/endpoints.ts";
import { allowedHostsWarning, openUrlGuard } from "../domain/webhooks/url-guard.ts";
import { resourceUrl } from "./base-path.ts";
import { openMetrics } from "./metrics.ts";
import { openReadiness, type ReadinessCheck } from "./system/readiness.ts";

/** Calls the Temporal cluster. The cluster may not be reachable, so every call has a deadline. */
export interface TemporalGateway {
  /**
   * Runs calls to Temporal that must be answered within `deadlineMs`.
   * @throws {ApiError} `service_unavailable` when the cluster or its workers do not answer in time
   */
  call<T>(deadlineMs: number, work: (client: Client) => Promise<T>): Promise<T>;
  /** Answers when the cluster does. @throws {ApiError} `service_unavailable` */
  check(deadlineMs: number): Promise<void>;
  close(): Promise<void>;
}

/** The dependencies of the API. */
export interface Deps {
  env: Env;
  orm: MikroORM;
  /** Makes a connection, which the database refuses to a process with wrong keys. */
  connectDatabase: AdmittedDatabase["connect"];
  vault: Vault;
  log: Logger;
  temporal: TemporalGateway;
  readiness: ReadinessCheck;
  checkWebhookUrl: CheckUrl;
  limits: RequestLimits;
  /** The metrics of this process. */
  metrics: Registry;
  verifyToken: TokenVerifier;
}

/** Codes of calls that fail while the cluster or its workers do not answer. */
const AWAY: ReadonlySet<number> = new Set([
  grpc.CANCELLED,
  grpc.DEADLINE_EXCEEDED,
  grpc.RESOURCE_EXHAUSTED,
  grpc.UNAVAILABLE,
]);

/** A frontend that restarts answers by the third try; a longer outage is reported to the client. */
const MAX_TRIES_UNAVAILABLE = 3;

/** The SDK's own retries, except that they end early while the cluster refuses connections. */
function retries() {
  const standard = defaultGrpcRetryOptions();
  return makeGrpcRetryInterceptor({
    ...standard,
    retryableDecider: (attempt, status) =>
      (status.code !== grpc.UNAVAILABLE || attempt < MAX_TRIES_UNAVAILABLE) &&
      standard.retryableDecider(attempt, status),
  });
}

function isAway(error: unknown): boolean {
  if (error instanceof WorkflowUpdateRPCTimeoutOrCancelledError) return true;
  if (isGrpcServiceError(error)) return AWAY.has(error.code);
  return error instanceof Error && error.cause !== undefined && isAway(error.cause);
}

/** A gateway that connects when it is first used, so that the API starts and reads while Temporal is not reachable. */
export function openTemporal(env: Env): TemporalGateway {
  const { connectionOptions } = loadClientConnectConfig();
  const options: ConnectionOptions = {
    ...connectionOptions,
    address: env.TEMPORAL_ADDRESS,
    interceptors: [retries()],
  };
  const connection = Connection.lazy(options);
  const client = new Client({ connection, namespace: env.TEMPORAL_NAMESPACE });

  const underWay = new Set<Promise<unknown>>();

  const within = async <T>(deadlineMs: number, work: () => Promise<T>): Promise<T> => {
    const call = connection.withDeadline(Date.now() + deadlineMs, work);
    underWay.add(call);
    try {
      return await call;
    } catch (error) {
      if (!isAway(error)) throw error;
      throw new ApiError("service_unavailable", "Temporal is not reachable.", {
        retryAfterSeconds: UNAVAILABLE_RETRY_SECONDS,
        cause: error,
      });
    } finally {
      underWay.delete(call);
    }
  };
  return {
    call: (deadlineMs, work) => within(deadlineMs, () => work(client)),
    check: async (deadlineMs) => {
      await within(deadlineMs, () => connection.workflowService.getSystemInfo({}));
    },
    close: async () => {
      // A retry on a closed channel would throw outside of any caller's reach.
      await Promise.allSettled(underWay);
      await connection.close();
    },
  };
}

/** The OAuth tokens that the settings allow; undefined without an issuer. */
export function tokenRulesOf({
  OAUTH_ISSUER,
  OAUTH_JWKS_URL,
  OAUTH_AUDIENCE,
  PUBLIC_URL,
}: Env): TokenRules | undefined {
  if (OAUTH_ISSUER === undefined || OAUTH_JWKS_URL === undefined) return undefined;
  return { issuer: OAUTH_ISSUER, keySetUrl: OAUTH_JWKS_URL, audience: OAUTH_AUDIENCE ?? resourceUrl(PUBLIC_URL) };
}

/** Opens the dependencies; none connects before its first use. */
export async function openDeps(env: Env): Promise<Deps> {
  const log = openLog(env, "api");
  const warning = allowedHostsWarning(env);
  if (warning !== undefined) log.warn(warning);
  const temporal = openTemporal(env);
  const vault = openVault(env);
  const { registry, countedAlone, watchConnections } = openMetrics(log);
  const options = { poolMax: env.DATABASE_POOL_MAX, onPool: watchConnections, work: "request" } as const;
  const { orm, connect } = await openAdmitted(env, vault, options);
  return {
    env,
    orm,
    connectDatabase: connect,
    vault,
    log,
    temporal,
    readiness: openReadiness(env, temporal, log),
    checkWebhookUrl: guardedUrl(openUrlGuard(env)),
    limits: new RequestLimits(env, countedAlone),
    metrics: registry,
    verifyToken: openTokenVerifier(tokenRulesOf(env)),
  };
}

/** Closes the dependencies that `openDeps` opened. */
export async function closeDeps({ orm, temporal, readiness }: Deps): Promise<void> {
  await Promise.allSettled([orm.close(true), readiness.close(), temporal.close()]);
}

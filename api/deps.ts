import type { Logger } from "pino";
import type { Registry } from "prom-client";
import { type Env, renamedSettings } from "../config/env.ts";
import { openLog } from "../config/log.ts";
import { Progress } from "../config/progress.ts";
import { endTracing, inStatementSpan, openTracing } from "../config/tracing.ts";
import type { MikroORM } from "../db/orm.ts";
import type { TokenVerifier } from "../domain/access/authenticate.ts";
import { openTokenVerifier, type TokenRules } from "../domain/access/oauth.ts";
import { openProvider, type SignInProvider } from "../domain/access/oidc.ts";
import { RequestLimits } from "../domain/access/request-limit.ts";
import { type IsThrowaway, readThrowawayDomains } from "../domain/forms/throwaway.ts";
import { type AdmittedDatabase, openAdmitted } from "../domain/secrets/admission.ts";
import { openVault, type Vault } from "../domain/secrets/crypto.ts";
import { type Networks, readNetworks } from "../domain/tracking/networks.ts";
import { recordHits } from "../domain/tracking/record.ts";
import { type CheckUrl, guardedUrl } from "../domain/webhooks/endpoints.ts";
import { type FetchText, guardedFetch, guardedProbe, type ProbeUrl } from "../lib/fetch-text.ts";
import { type FileStore, openImageStore } from "../lib/file-store.ts";
import { allowedHostsWarning, openUrlGuard } from "../lib/url-guard.ts";
import { MCP_PATH, resourceUrl } from "./base-path.ts";
import { type ApiMetrics, openMetrics } from "./metrics.ts";
import { HitBuffer } from "./public/hit-buffer.ts";
import { openReadiness, type ReadinessCheck } from "./system/readiness.ts";
import { openTemporal, type TemporalGateway } from "./temporal-gateway.ts";

export interface Deps {
  env: Env;
  orm: MikroORM;
  /** Makes a connection, which the database refuses to a process with wrong keys. */
  connectDatabase: AdmittedDatabase["connect"];
  vault: Vault;
  log: Logger;
  temporal: TemporalGateway;
  readiness: ReadinessCheck;
  /** Of the loops of this process. */
  progress: Progress;
  checkWebhookUrl: CheckUrl;
  /** Opens URLs of Amazon SNS. */
  fetchText: FetchText;
  /** Asks links of mails. */
  probeUrl: ProbeUrl;
  limits: RequestLimits;
  /** Of scanners and proxies that open mails and follow links. */
  networks: Networks;
  /** Of addresses that sign-up forms refuse. */
  isThrowaway: IsThrowaway;
  /** Opens and clicks on their way to Postgres. */
  hits: HitBuffer;
  /** Undefined where the settings name no store. */
  images: FileStore | undefined;
  metrics: Registry;
  unreadableEvents: ApiMetrics["unreadableEvents"];
  requestEnded: ApiMetrics["requestEnded"];
  verifyToken: TokenVerifier;
  /** Of the sign-in to the console; undefined where the settings name none. */
  provider: SignInProvider | undefined;
}

/** The OAuth tokens that the settings allow; undefined without an issuer. */
export function tokenRulesOf({
  OAUTH_ISSUER,
  OAUTH_JWKS_URL,
  OAUTH_AUDIENCE,
  PUBLIC_URL,
}: Env): TokenRules | undefined {
  if (OAUTH_ISSUER === undefined || OAUTH_JWKS_URL === undefined) return undefined;
  const audience = OAUTH_AUDIENCE ? [OAUTH_AUDIENCE] : [resourceUrl(PUBLIC_URL), resourceUrl(PUBLIC_URL, MCP_PATH)];
  return { issuer: OAUTH_ISSUER, keySetUrl: OAUTH_JWKS_URL, audience };
}

/** Opens the dependencies; none connects before its first use. */
export async function openDeps(env: Env): Promise<Deps> {
  const log = openLog(env, "api");
  for (const sentence of renamedSettings()) log.warn(sentence);
  await openTracing(env, "api", log);
  const warning = allowedHostsWarning(env);
  if (warning !== undefined) log.warn(warning);
  const temporal = openTemporal(env);
  const vault = openVault(env);
  const { registry, watchConnections, hits: hitMetrics, ...metrics } = openMetrics();
  const guard = openUrlGuard(env);
  const { orm, connect } = await openAdmitted(env, vault, {
    poolMax: env.DATABASE_POOL_MAX,
    onPool: watchConnections,
    work: "request",
    aroundStatement: inStatementSpan,
  });
  const progress = new Progress();
  return {
    env,
    orm,
    connectDatabase: connect,
    vault,
    log,
    temporal,
    readiness: openReadiness(env, temporal, log),
    progress,
    checkWebhookUrl: guardedUrl(guard),
    fetchText: guardedFetch(guard),
    // The setting is of webhooks: mails may lead to http.
    probeUrl: guardedProbe(
      openUrlGuard({ ...env, WEBHOOK_HTTPS_ONLY: false }),
      `Mailkeel-Links/1 (+${env.PUBLIC_URL})`,
    ),
    limits: new RequestLimits(env),
    networks: readNetworks(env.TRACKING_NETWORKS_FILE),
    isThrowaway: readThrowawayDomains(env.THROWAWAY_DOMAINS_FILE),
    hits: new HitBuffer({
      record: (hits) => recordHits(orm.em.fork(), hits),
      metrics: hitMetrics,
      progress,
      log,
    }),
    images: openImageStore(env),
    metrics: registry,
    ...metrics,
    verifyToken: openTokenVerifier(tokenRulesOf(env)),
    provider: openProvider(env),
  };
}

export async function closeDeps({ orm, temporal, readiness, hits }: Deps): Promise<void> {
  await hits.close();
  await Promise.allSettled([orm.close(true), readiness.close(), temporal.close(), endTracing()]);
}

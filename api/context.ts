import type { Logger } from "pino";
import type { Env } from "../config/env.ts";
import type { EntityManager, Tenant } from "../db/orm.ts";
import type { Admitted, HeaderValues } from "../domain/access/authenticate.ts";
import type { ClaimingAnswer, IdempotencyHandle, RecordAnswer } from "../domain/access/idempotency.ts";
import type { ApiVersion } from "../domain/api-version.ts";
import type { Vault } from "../domain/secrets/crypto.ts";
import type { CheckUrl } from "../domain/webhooks/endpoints.ts";
import type { Deps } from "./deps.ts";
import type { LateReleases } from "./rest/late-releases.ts";
import type { Answering } from "./rest/turns.ts";
import type { TemporalGateway } from "./temporal-gateway.ts";

/** The facts of a request that the layers of the app share; none of them is personal data. */
export interface Locals {
  requestId: string;
  /** Headers of the answer, be it a success or a refusal. */
  headers: Record<string, string>;
  /** The path's pattern: the path itself may hold an address. */
  route?: string;
  teamId?: string;
}

/** A query string, decoded. */
export interface Query {
  /** The value of `dry_run`; undefined without one, and on a route that does not take it. */
  dryRun: string | undefined;
  /** Everything else. */
  parameters: Record<string, string>;
}

interface Services {
  vault: Vault;
  log: Logger;
  env: Env;
  temporal: TemporalGateway;
  lateReleases: LateReleases;
  /** Waits for the DNS: do not call it in a transaction. */
  checkWebhookUrl: CheckUrl;
}

/** A request as the adapter gives it to a procedure, all unchecked. It is read where the procedure asks for it. */
export interface Call {
  deps: Deps;
  locals: Locals;
  /** Credentials and the Idempotency-Key are in here. */
  headers: HeaderValues;
  /** An IPv4 address or an IPv6 network of 64 bits; null where it is not known. */
  clientAddress: string | null;
  answering: Answering;
  params: Record<string, string>;
  /** Decodes the query string. @throws {ApiError} `validation_failed` */
  readQuery: () => Query;
  /** @throws {ApiError} as `readBody` of `rest/http.ts` */
  readBody: () => Promise<unknown>;
}

/** The context of a handler. */
export interface RequestContext extends Services {
  /**
   * Sees the tenant's rows only. On a write it is inside the transaction that also holds the remembered answer; on a
   * read and on a write that a workflow commits it is in none.
   */
  em: EntityManager;
  /** Of no tenant, in no transaction: for statements that name their tenant. Unlike `em` it is not made for the request. */
  database: EntityManager;
  /** `em` in a transaction, else `database`: for statements that name their tenant. */
  statements: EntityManager;
  tenant: Tenant;
  access: Admitted;
  requestId: string;
  /** The dated version that the request is made in: for the fingerprint under an Idempotency-Key, not for handlers. */
  version: ApiVersion;
  /** Method, path pattern and path parameters: a cursor is bound to them. */
  target: string;
  /** True when nothing may be committed; the transaction is rolled back. */
  dryRun: boolean;
  /** The claim on the request's Idempotency-Key; null when it carries none. */
  idempotency: IdempotencyHandle | null;
  /**
   * The answer under the request's Idempotency-Key, for a handler that runs in no transaction because it is atomic
   * (`RouteDefinition.isAtomic`): its statement writes the answer, and claims the key if the answer has a `fingerprint`. Null
   * where nothing is remembered, or the transaction does it.
   */
  ownAnswer: RecordAnswer | ClaimingAnswer | null;
}

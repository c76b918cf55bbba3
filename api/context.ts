import type { Logger } from "pino";
import type { Env } from "../config/env.ts";
import type { EntityManager, MikroORM, Tenant } from "../db/orm.ts";
import type { Admitted, HeaderValues, TokenVerifier } from "../domain/access/authenticate.ts";
import type { RequestLimits } from "../domain/access/request-limit.ts";
import type { Vault } from "../domain/crypto.ts";
import type { IdempotencyHandle } from "../domain/idempotency.ts";
import type { CheckUrl } from "../domain/webhooks/endpoints.ts";
import type { TemporalGateway } from "./deps.ts";
import type { ApiVersion } from "./rest/versions.ts";

/** Fields of a request for the log; none of them is personal data. */
export interface Locals {
  requestId: string;
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
  /** Waits for the DNS: do not call it in a transaction. */
  checkWebhookUrl: CheckUrl;
}

/** The adapter gives a procedure its input and this: the services and the rest of the request, all unchecked. */
export interface CallContext extends Services {
  orm: MikroORM;
  requestId: string;
  verifyToken: TokenVerifier;
  /** Credentials and the Idempotency-Key are in here. */
  headers: HeaderValues;
  limits: RequestLimits;
  /** The address or network that sent the request; null where it is not known. */
  client: string | null;
  /** Puts headers on the answer, whatever the answer will be. */
  setHeaders: (headers: Record<string, string>) => void;
  /** Aborted once the answer has left the process, or the client has gone. */
  ended: AbortSignal;
  /** Decodes the query string. @throws {ApiError} `validation_failed` */
  query: () => Query;
  /** Method, path pattern and path parameters: a cursor is bound to them. */
  target: string;
  locals: Locals;
}

/** The context of a handler. */
export interface RequestContext extends Services {
  /**
   * Sees the tenant's rows only. On a write it is inside the transaction that also holds the remembered answer; on a
   * read and on a send it is in none.
   */
  em: EntityManager;
  tenant: Tenant;
  access: Admitted;
  requestId: string;
  /** The dated version of the API that the request is made in. */
  version: ApiVersion;
  target: string;
  /** True when nothing may be committed; the transaction is rolled back. */
  dryRun: boolean;
  /** The claim on the request's Idempotency-Key; null when it carries none. */
  idempotency: IdempotencyHandle | null;
}

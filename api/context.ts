import type { Logger } from "pino";
import type { Env } from "../config/env.ts";
import type { EntityManager, Tenant } from "../db/orm.ts";
import type { Admitted, CallerSummary, HeaderValues } from "../domain/access/authenticate.ts";
import type { IdempotencyHandle } from "../domain/access/idempotency.ts";
import type { Scope } from "../domain/access/scopes.ts";
import type { ApiVersion } from "../domain/api-version.ts";
import type { Edit } from "../domain/edits.ts";
import type { Vault } from "../domain/secrets/crypto.ts";
import type { Look } from "../domain/teams/brand.ts";
import type { CheckUrl } from "../domain/webhooks/endpoints.ts";
import type { ProbeUrl } from "../lib/fetch-text.ts";
import type { Deps } from "./deps.ts";
import type { Answering } from "./rest/turns.ts";
import type { TemporalGateway } from "./temporal-gateway.ts";

/** The facts of a request that the layers of the app share; its line of the log shows most of them. */
export interface Locals {
  requestId: string;
  /** An IPv4 address or an IPv6 network of 64 bits, for limits alone; null where it is not known. */
  clientAddress: string | null;
  /** Of a caller that is known: a refusal shows the id of a record only to one that may read it. */
  scopes?: readonly Scope[];
  /** Headers of the answer, be it a success or a refusal. */
  headers: Record<string, string>;
  /** The path's pattern: the path itself may hold an address. */
  route?: string;
  /** Of MCP: the operation that was called, and its method and status over REST. */
  tool?: string;
  method?: string;
  status?: number;
  teamId?: string;
  /** Of the API key; not of an OAuth token. */
  keyId?: string;
  /** The last ID in the path, or that of the record that was made. */
  resourceId?: string;
  /** Of a preview, a confirm, or a command to a send. */
  sendId?: string;
  /** Of the error that was answered. */
  code?: string;
  /** Of a preview or confirm that a gate refused: the gate's. */
  reason?: string;
  /** Of a page for recipients, once its link has named a team. */
  look?: Look;
}

/** What a request brings to a procedure besides its input, all unchecked. */
export interface Call {
  deps: Deps;
  locals: Locals;
  /** The Idempotency-Key and the version are in here. */
  headers: HeaderValues;
  /**
   * Identifies the caller: over REST by a key or a token, in the console by a session.
   * @param scope of the route @param onCallerKnown as `RequestOrigin.onCallerKnown`
   */
  authenticate: (scope: Scope | null, onCallerKnown: (summary: CallerSummary) => void) => Promise<Admitted>;
  answering: Answering;
  /** How long the call may take; undefined where a deadline runs around it. */
  deadlineMs?: number | undefined;
  /** The text of `dry_run`. @throws {ApiError} `validation_failed` for a query string that cannot be read */
  readDryRun: () => string | undefined;
}

export interface RequestContext {
  /** Sees the tenant's rows only. On a write it is inside the transaction that also holds the remembered answer. */
  em: EntityManager;
  tenant: Tenant;
  access: Admitted;
  requestId: string;
  locals: Locals;
  answering: Answering;
  /** The dated version of the request: for the fingerprint under an Idempotency-Key, not for handlers. */
  version: ApiVersion;
  /** Method, path pattern and path parameters: a cursor is bound to them. */
  target: string;
  /** True when nothing may be committed; the transaction is rolled back. */
  dryRun: boolean;
  /** Of a member in the console; null for any other caller. */
  edit: Edit | null;
  /** The claim on the request's Idempotency-Key; null when it carries none. */
  idempotency: IdempotencyHandle | null;
  vault: Vault;
  log: Logger;
  env: Env;
  temporal: TemporalGateway;
  /** Waits for the DNS: do not call it in a transaction. */
  checkWebhookUrl: CheckUrl;
  probeUrl: ProbeUrl;
}

import type { Logger } from "pino";
import type { Env } from "../config/env.ts";
import type { EntityManager, Tenant } from "../db/orm.ts";
import type { Access } from "../domain/access/authenticate.ts";
import type { Vault } from "../domain/crypto.ts";
import type { IdempotencyHandle } from "../domain/idempotency.ts";
import type { CheckUrl } from "../domain/webhooks/endpoints.ts";
import type { TemporalGateway } from "./deps.ts";

/** What a handler is given. */
export interface RequestContext {
  /**
   * Sees the tenant's rows only. On a write it is inside the transaction that also holds the idempotency answer;
   * on a read, and on a route that answers by itself (`answer: "handler"`), it is in none.
   */
  em: EntityManager;
  tenant: Tenant;
  access: Access;
  requestId: string;
  /** Method, path pattern and path parameters: what a cursor is bound to. */
  target: string;
  /** True when nothing may be committed; the adapter rolls `em` back. */
  dryRun: boolean;
  /** The hold on the request's Idempotency-Key; null when it carries none. */
  idempotency: IdempotencyHandle | null;
  vault: Vault;
  log: Logger;
  env: Env;
  temporal: TemporalGateway;
  /** Waits for the DNS: not to be called in a transaction. */
  checkWebhookUrl: CheckUrl;
}

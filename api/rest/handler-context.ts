import type { Logger } from "pino";
import { type EntityManager, forTenant } from "../../db/orm.ts";
import type { Admitted } from "../../domain/access/authenticate.ts";
import { firstClaim, type IdempotencyHandle, type KeyedRequest } from "../../domain/access/idempotency.ts";
import type { ApiVersion } from "../../domain/api-version.ts";
import { stableJson } from "../../lib/json-object.ts";
import type { Call, RequestContext } from "../context.ts";
import type { RouteDefinition } from "./definition.ts";
import { ownAnswer } from "./idempotency.ts";

/** An admitted call: the caller is known and may use the route. */
export interface Admission {
  access: Admitted;
  version: ApiVersion;
  dryRun: boolean;
}

/** The context of a handler. The parts that cost time are made when they are first asked for: many requests need none. */
export class HandlerContext implements RequestContext {
  readonly requestId: string;
  readonly access: Admitted;
  readonly version: ApiVersion;
  readonly dryRun: boolean;
  readonly idempotency: IdempotencyHandle | null;
  readonly #call: Call;
  readonly #definition: RouteDefinition;
  readonly #isInside: boolean;
  /** Of a request whose key is claimed with its effect. */
  readonly #fingerprint: string | undefined;
  #em: EntityManager | undefined;
  #log: Logger | undefined;

  constructor(
    call: Call,
    definition: RouteDefinition,
    { access, version, dryRun }: Admission,
    {
      idempotency = null,
      fingerprint,
      inside,
    }: { idempotency?: IdempotencyHandle | null; fingerprint?: string; inside?: EntityManager } = {},
  ) {
    this.#call = call;
    this.#definition = definition;
    this.requestId = call.locals.requestId;
    this.access = access;
    this.version = version;
    this.dryRun = dryRun;
    this.idempotency = idempotency;
    this.#fingerprint = fingerprint;
    this.#isInside = inside !== undefined;
    this.#em = inside;
  }

  get tenant() {
    return this.access.tenant;
  }

  get em() {
    this.#em ??= forTenant(this.#call.deps.orm.em, this.tenant);
    return this.#em;
  }

  get database() {
    return this.#call.deps.orm.em;
  }

  get statements() {
    return this.#isInside ? this.em : this.database;
  }

  get ownAnswer() {
    if (!this.idempotency || this.#isInside) return null;
    const answer = ownAnswer(this.#definition, this.idempotency);
    return this.#fingerprint === undefined ? answer : { ...answer, fingerprint: this.#fingerprint };
  }

  get log() {
    const { deps, locals } = this.#call;
    this.#log ??= deps.log.child({ requestId: locals.requestId, teamId: this.tenant.teamId });
    return this.#log;
  }

  get target() {
    const { method, path } = this.#definition;
    return `${method} ${path} ${stableJson(this.#call.params)}`;
  }

  get vault() {
    return this.#call.deps.vault;
  }

  get env() {
    return this.#call.deps.env;
  }

  get temporal() {
    return this.#call.deps.temporal;
  }

  get lateReleases() {
    return this.#call.deps.lateReleases;
  }

  get checkWebhookUrl() {
    return this.#call.deps.checkWebhookUrl;
  }

  /** The same call under a claim of its Idempotency-Key. */
  claimedBy(idempotency: IdempotencyHandle): HandlerContext {
    return new HandlerContext(this.#call, this.#definition, this, { idempotency });
  }

  /** The same call, which claims its Idempotency-Key with its effect. */
  claiming(request: KeyedRequest): HandlerContext {
    const { fingerprint } = request;
    return new HandlerContext(this.#call, this.#definition, this, { idempotency: firstClaim(request), fingerprint });
  }

  /** The same call inside a transaction. */
  inside(em: EntityManager): HandlerContext {
    return new HandlerContext(this.#call, this.#definition, this, { idempotency: this.idempotency, inside: em });
  }
}

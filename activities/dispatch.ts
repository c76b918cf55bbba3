import { setTimeout as delay } from "node:timers/promises";
import { domainToASCII } from "node:url";
import { Context } from "@temporalio/activity";
import { sql } from "kysely";
import { type EntityManager, kysely } from "../db/orm.ts";
import { isConflict } from "../db/transaction.ts";
import { recordAccountRecovery } from "../domain/accounts.ts";
import { unsubscribeUrl } from "../domain/links.ts";
import { type ComposedMessage, composeMessage } from "../domain/mail/message.ts";
import { type Quota, returnQuota, takeQuota } from "../domain/sends/account-capacity.ts";
import {
  closeDispatch,
  type DeferralPolicy,
  type OpenedDispatch,
  openDispatch,
  type RecipientOutcome,
  remaining,
  requeueDue,
  type StagedRecipient,
  settleOutcomes,
  stageBatch,
  unstageUnheard,
} from "../domain/sends/ledger.ts";
import { type AccountPool, AccountPools, type RowBudget } from "./account-pools.ts";
import type { ActivityDeps } from "./deps.ts";
import { failureCode } from "./failures.ts";
import { whileBeating } from "./heartbeat.ts";
import type { DrainEnd, SmtpPool, SmtpResult } from "./smtp/pool.ts";
import { NOT_ATTEMPTED } from "./smtp/result.ts";
import { messageDeadlineMs } from "./smtp/session.ts";

/** Policy refusals in a row that pause a send: the server has made up its mind about it. */
const POLICY_REFUSALS_TO_PAUSE = 20;
/** How long outcomes are kept for a database that is away, and how often it is tried. */
const SETTLE_FOR_MS = 120_000;
const SETTLE_AGAIN_MS = 250;
/** How soon a send asks again for an account whose connections other workers hold. */
const CONNECTIONS_BUSY_MS = 1_000;

export interface SliceRequest {
  sendId: string;
  /** Rows up to and including this one were dealt with, as far as the caller knows. */
  afterSeq: number;
}

/** What a slice came to, and what the workflow does next. */
export type SliceResult = { afterSeq: number; mailed: number; unknown: number } & (
  | { next: "continue" }
  /** Nothing is queued; the next deferred recipient is due in `waitMs`. */
  | { next: "deferred"; waitMs: number }
  /** The account's limits or connections are used up; they are free again in `waitMs`. */
  | { next: "account_full"; waitMs: number }
  /** The account is in trouble: `temporary` trouble may pass by itself. */
  | { next: "trouble"; reason: string; temporary: boolean }
  /** The send is not SENDING any more: paused, cancelled, or gone. */
  | { next: "stopped" }
  | { next: "done" }
);

export interface DispatchActivities {
  /** Mails one slice of a send: at most DISPATCH_SLICE_ROWS recipients or DISPATCH_SLICE_MS. */
  dispatchSlice(request: SliceRequest): Promise<SliceResult>;
}

export function createDispatchActivities(deps: ActivityDeps): DispatchActivities & { close(): Promise<void> } {
  const { orm, vault, log, workerId, env } = deps;
  const pools = new AccountPools({ orm, vault, log, workerId, timeoutMs: env.SMTP_TIMEOUT_MS });
  return {
    dispatchSlice: (request) => whileBeating(() => dispatchSlice(deps, pools, request)),
    close: () => pools.close(),
  };
}

async function dispatchSlice(deps: ActivityDeps, pools: AccountPools, request: SliceRequest): Promise<SliceResult> {
  const em = deps.orm.em.fork();
  const { sendId } = request;
  const opened = await openDispatch(em, sendId);
  const progress = { afterSeq: request.afterSeq, mailed: 0, unknown: opened?.unknown ?? 0 };
  deps.countMails({ UNKNOWN: progress.unknown });
  if (opened?.status !== "SENDING") return { ...progress, next: "stopped" };
  const account = await pools.acquire(opened.accountId);
  if (!account) {
    await closeDispatch(em, sendId, opened.epoch);
    return { ...progress, next: "account_full", waitMs: CONNECTIONS_BUSY_MS };
  }
  try {
    const slice = new Slice(deps, em, account, opened, request, Context.current().cancellationSignal);
    const result = await slice.run();
    await closeDispatch(em, sendId, opened.epoch);
    return { ...result, unknown: progress.unknown };
  } finally {
    pools.release(opened.accountId, account);
  }
}

/** What every recipient of a send has in common, made once per process. */
interface SendContent {
  message: ComposedMessage;
  messageIdDomain: string;
  listNames: ReadonlyMap<string, string>;
  limits: { hourly: number | null; daily: number | null };
  /** Its account was in trouble when the slice began. */
  accountTroubled: boolean;
}

class Slice {
  readonly #deps: ActivityDeps;
  readonly #em: EntityManager;
  readonly #pool: SmtpPool;
  readonly #rows: RowBudget;
  /** What of the rows' budget this slice holds. */
  #open = 0;
  readonly #send: OpenedDispatch;
  readonly #sendId: string;
  readonly #signal: AbortSignal;
  readonly #deferral: DeferralPolicy;
  readonly #stopMailing = new AbortController();

  #afterSeq: number;
  #taken = 0;
  #mailed = 0;
  /** A server took a mail. */
  #accepted = false;
  #returnedFrom: number | undefined;
  #policyRefusals = 0;
  #quotaWaitMs: number | undefined;
  #exhausted = false;
  #quota: Quota | undefined;

  #unsettled: RecipientOutcome[] = [];
  #settling: Promise<void> | undefined;
  #settleError: unknown;

  constructor(
    deps: ActivityDeps,
    em: EntityManager,
    { pool, rows }: AccountPool,
    send: OpenedDispatch,
    { sendId, afterSeq }: SliceRequest,
    cancelled: AbortSignal,
  ) {
    this.#deps = deps;
    this.#em = em;
    this.#pool = pool;
    this.#rows = rows;
    this.#send = send;
    this.#sendId = sendId;
    this.#afterSeq = afterSeq;
    this.#signal = AbortSignal.any([
      cancelled,
      deps.stopping,
      this.#stopMailing.signal,
      AbortSignal.timeout(deps.env.DISPATCH_SLICE_MS),
    ]);
    this.#deferral = {
      ladderSeconds: deps.env.DEFERRAL_LADDER_SECONDS,
      windowSeconds: deps.env.DEFERRAL_WINDOW_SECONDS,
    };
  }

  #ahead: Promise<readonly StagedRecipient[] | undefined> = Promise.resolve(undefined);

  async run(): Promise<SliceResult> {
    const content = await readContent(this.#deps, this.#em, this.#send);
    const due = await requeueDue(this.#em, this.#sendId);
    if (due !== undefined) this.#afterSeq = Math.min(this.#afterSeq, due - 1);

    // A process that was stopped and goes on long after must not begin what it had staged: it may be another's by now.
    const staleAfterMs = messageDeadlineMs(this.#deps.env.SMTP_TIMEOUT_MS);
    let end: DrainEnd;
    try {
      end = await this.#pool.drain(this.#batches(content), {
        fill: (recipient) => this.#fill(content, recipient),
        mayBegin: ({ stagedAt }) => performance.now() - stagedAt < staleAfterMs,
        onResult: (recipient, result) => this.#take(recipient, result),
        signal: this.#signal,
      });
    } finally {
      await this.#settleRest();
    }
    if (content.accountTroubled && this.#accepted)
      await recordAccountRecovery(this.#em, this.#send, this.#send.accountId);
    if (this.#returnedFrom !== undefined) this.#afterSeq = Math.min(this.#afterSeq, this.#returnedFrom - 1);

    const progress = { afterSeq: this.#afterSeq, mailed: this.#mailed, unknown: 0 };
    if (end.ended === "account") {
      return { ...progress, next: "trouble", reason: end.trouble.reason, temporary: end.trouble.temporary };
    }
    if (this.#policyRefusals >= POLICY_REFUSALS_TO_PAUSE) {
      return { ...progress, next: "trouble", reason: "policy_refusals", temporary: false };
    }
    if (this.#quotaWaitMs !== undefined) return { ...progress, next: "account_full", waitMs: this.#quotaWaitMs };
    if (!this.#exhausted) return { ...progress, next: "continue" };
    return { ...progress, ...(await this.#whatIsLeft()) };
  }

  /** Nothing was staged: because nothing is left, or because the send or its account may not go on. */
  async #whatIsLeft(): Promise<
    | { next: "continue" | "stopped" | "done"; afterSeq?: number }
    | { next: "deferred"; waitMs: number }
    | { next: "trouble"; reason: string; temporary: boolean }
  > {
    const { rows } = await sql<{ live: boolean; active: boolean }>`
      select s.status = 'SENDING' and s.epoch = ${this.#send.epoch} as live, coalesce(a.status = 'ACTIVE', false) as active
      from sends s left join email_accounts a on a.id = s.account_id where s.id = ${this.#sendId}`.execute(
      kysely(this.#em),
    );
    if (!rows[0]?.live) return { next: "stopped" };
    if (!rows[0].active) return { next: "trouble", reason: "account_not_active", temporary: false };
    const { firstQueuedSeq, retryInMs } = await remaining(this.#em, this.#sendId);
    if (firstQueuedSeq !== null) return { next: "continue", afterSeq: firstQueuedSeq - 1 };
    return retryInMs === null ? { next: "done" } : { next: "deferred", waitMs: retryInMs };
  }

  /**
   * Stages one sub-batch ahead of the one that is being sent: a commit takes its time, and connections must not wait
   * for it.
   */
  async *#batches(content: SendContent): AsyncGenerator<readonly StagedRecipient[]> {
    this.#stageAhead(content);
    for (;;) {
      const batch = await this.#ahead;
      if (batch === undefined) return;
      this.#stageAhead(content);
      yield batch;
    }
  }

  #stageAhead(content: SendContent): void {
    this.#ahead = this.#stageNext(content);
    // It may fail while nobody waits for it yet; whoever does is told.
    this.#ahead.catch(() => undefined);
  }

  /** The next sub-batch, once there is room for it; undefined when there is none, or no more may be staged. */
  async #stageNext(content: SendContent): Promise<readonly StagedRecipient[] | undefined> {
    const { DISPATCH_BATCH_SIZE, DISPATCH_SLICE_ROWS: most } = this.#deps.env;
    while (!this.#signal.aborted && this.#taken < most && !this.#settleError) {
      const limit = Math.min(DISPATCH_BATCH_SIZE, this.#pool.connections, most - this.#taken);
      if (!this.#rows.take(limit)) {
        await this.#rows.returned();
        continue;
      }
      this.#open += limit;
      const batch = await this.#stage(content, limit);
      this.#giveBack(limit - batch.length);
      if (this.#exhausted || this.#quotaWaitMs !== undefined) return undefined;
      if (batch.length > 0) return batch;
    }
    return undefined;
  }

  async #stage({ limits }: SendContent, limit: number): Promise<readonly StagedRecipient[]> {
    const { accountId, epoch } = this.#send;
    const limited = limits.hourly !== null || limits.daily !== null;
    if (limited) {
      this.#quota = await takeQuota(this.#em, accountId, limits, limit);
      if (this.#quota.granted === 0) {
        this.#quotaWaitMs = this.#quota.retryInMs;
        return [];
      }
    }
    const wanted = this.#quota?.granted ?? limit;
    const { recipients, suppressed, lastSeq } = await stageBatch(this.#em, {
      sendId: this.#sendId,
      epoch,
      afterSeq: this.#afterSeq,
      limit: wanted,
    });
    this.#deps.countMails({ SUPPRESSED: suppressed });
    if (this.#quota) await returnQuota(this.#em, accountId, this.#quota, wanted - recipients.length);
    if (lastSeq === undefined) {
      this.#exhausted = true;
      return [];
    }
    this.#afterSeq = lastSeq;
    this.#taken += recipients.length;
    return recipients;
  }

  #fill({ message, messageIdDomain, listNames }: SendContent, recipient: StagedRecipient) {
    const { vault, env } = this.#deps;
    return message.fill({
      email: recipient.email,
      firstName: recipient.firstName,
      lastName: recipient.lastName,
      listName: listNames.get(recipient.listId),
      unsubscribeUrl: unsubscribeUrl(vault, env.PUBLIC_URL, { sendId: this.#sendId, seq: recipient.seq }),
      // Derived from the ledger's row: the same mail sent again is recognisable as the same.
      messageId: `${recipient.seq}.${this.#sendId}@${messageIdDomain}`,
      date: new Date(),
    });
  }

  #take({ seq, email }: StagedRecipient, result: SmtpResult): void {
    const outcome = toOutcome(seq, email, result);
    if (outcome.state === "QUEUED") {
      this.#returnedFrom = Math.min(this.#returnedFrom ?? seq, seq);
    } else {
      this.#mailed++;
    }
    // What cannot be composed for one after the other is the newsletter's fault, no recipient's.
    if (result.policy || result.reason === "unsendable") {
      this.#policyRefusals++;
      if (this.#policyRefusals >= POLICY_REFUSALS_TO_PAUSE) this.#stopMailing.abort();
    } else if (result.outcome === "sent") {
      this.#policyRefusals = 0;
      this.#accepted = true;
    }
    this.#unsettled.push(outcome);
    // One settlement at a time: what comes in meanwhile goes together into the next.
    this.#settling ??= this.#settle();
  }

  async #settle(): Promise<void> {
    try {
      // What answers in the same turn of the event loop shares the statement.
      await new Promise((resolve) => setImmediate(resolve));
      while (this.#unsettled.length > 0) {
        const outcomes = this.#unsettled;
        this.#unsettled = [];
        const send = { ...this.#send, sendId: this.#sendId };
        // What the servers answered is known here alone.
        this.#deps.countMails(await this.#surely(() => settleOutcomes(this.#em, send, outcomes, this.#deferral)));
        this.#giveBack(outcomes.length);
        const returned = outcomes.reduce((count, { state }) => count + (state === "QUEUED" ? 1 : 0), 0);
        if (this.#quota && returned > 0) await returnQuota(this.#em, this.#send.accountId, this.#quota, returned);
      }
    } catch (error) {
      // The rows stay SENDING: the next attempt finds and lists them.
      this.#settleError = error;
      this.#stopMailing.abort();
      this.#rows.wake();
    } finally {
      this.#settling = undefined;
    }
  }

  /** Does what only this process can do, through an outage of the database that passes. */
  async #surely<T>(work: () => Promise<T>): Promise<T> {
    const since = performance.now();
    for (;;) {
      try {
        return await work();
      } catch (error) {
        const passing = isConflict(error) || failureCode(error) === "dependency_unavailable";
        const patienceMs = this.#deps.stopping.aborted ? this.#deps.env.SHUTDOWN_GRACE_MS : SETTLE_FOR_MS;
        if (!passing || performance.now() - since > patienceMs) throw error;
        await delay(SETTLE_AGAIN_MS);
      }
    }
  }

  /** Ends in order, however the mailing ended: what is known is settled, what was staged ahead goes back. */
  async #settleRest(): Promise<void> {
    this.#stopMailing.abort();
    try {
      const unsent = await this.#ahead.catch(() => "unheard" as const);
      if (unsent === "unheard") {
        const staged = { sendId: this.#sendId, epoch: this.#send.epoch, afterSeq: this.#afterSeq };
        await this.#surely(() => unstageUnheard(this.#em, staged));
      } else {
        for (const recipient of unsent ?? []) this.#take(recipient, NOT_ATTEMPTED);
      }
      while (this.#settling) await this.#settling;
      if (this.#settleError) throw this.#settleError;
    } finally {
      // Rows that could not be settled are the next attempt's to find; the room they took is not.
      this.#giveBack(this.#open);
    }
  }

  #giveBack(rows: number): void {
    this.#open -= rows;
    this.#rows.giveBack(rows);
  }
}

/** What an SMTP result means for the ledger's row. */
export function toOutcome(seq: number, email: string, result: SmtpResult): RecipientOutcome {
  const { code, enhanced, suppress } = result;
  const detail = [code, enhanced].filter((part) => part !== undefined).join("_");
  const reason = result.outcome === "sent" ? null : detail ? `${result.reason}:${detail}` : result.reason;
  switch (result.outcome) {
    case "sent":
      return { seq, email, state: "SENT", reason, suppress };
    case "rejected":
      return { seq, email, state: "REJECTED", reason, suppress };
    case "deferred":
      return { seq, email, state: "DEFERRED", reason, suppress };
    case "unknown":
      return { seq, email, state: "UNKNOWN", reason, suppress };
    case "account":
    case "not_attempted":
      return { seq, email, state: "QUEUED", reason: null, suppress: false };
  }
}

/** Reads what the send's mails have in common. A newsletter does not change once it is scheduled. */
async function readContent({ log }: ActivityDeps, em: EntityManager, send: OpenedDispatch): Promise<SendContent> {
  const db = kysely(em);
  const newsletter = await db
    .selectFrom("newsletters")
    .select(["subject", "body", "from_email", "from_name"])
    .where("id", "=", send.newsletterId)
    .executeTakeFirstOrThrow();
  const account = await db
    .selectFrom("email_accounts")
    .select(["hourly_limit", "daily_limit", "display_name", "last_error"])
    .where("id", "=", send.accountId)
    .executeTakeFirstOrThrow();
  const lists = await db
    .selectFrom("lists")
    .innerJoin("newsletter_lists", "newsletter_lists.list_id", "lists.id")
    .select(["lists.id", "lists.name"])
    .where("newsletter_lists.newsletter_id", "=", send.newsletterId)
    .execute();
  const fromEmail = newsletter.from_email ?? "";
  log.debug({ newsletterId: send.newsletterId }, "composing");
  return {
    message: composeMessage({
      subject: newsletter.subject ?? "",
      html: newsletter.body ?? "",
      fromEmail,
      fromName: newsletter.from_name ?? account.display_name,
    }),
    messageIdDomain: domainToASCII(fromEmail.slice(fromEmail.lastIndexOf("@") + 1)),
    listNames: new Map(lists.map(({ id, name }) => [id, name])),
    limits: { hourly: account.hourly_limit, daily: account.daily_limit },
    accountTroubled: account.last_error !== null,
  };
}

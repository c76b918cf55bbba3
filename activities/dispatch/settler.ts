import type { Env } from "../../config/env.ts";
import type { EntityManager } from "../../db/orm.ts";
import type { Mailed } from "../../domain/mail/outcome.ts";
import { isStagingLost, type OpenedDispatch } from "../../domain/sends/lanes.ts";
import { type SettlementPolicy, settleOutcomes } from "../../domain/sends/settlement.ts";
import type { ActivityDeps } from "../deps.ts";
import type { Allowance, AllowedRecipient, MailShare } from "./allowance.ts";
import { throughOutage } from "./outage.ts";

interface SettlerOptions {
  deps: Pick<ActivityDeps, "env" | "stopping" | "log" | "countMails">;
  em: EntityManager;
  dispatch: OpenedDispatch;
  allowance: Allowance;
}

const policyOf = (env: Env): SettlementPolicy => ({
  ladderSeconds: env.DEFERRAL_LADDER_SECONDS,
  windowSeconds: env.DEFERRAL_WINDOW_SECONDS,
  softBounces: env,
});

/** Settles a mail that its slice has left UNKNOWN because the reply to its dot was late. Never rejects. */
export async function settleLate(
  deps: Pick<ActivityDeps, "env" | "orm" | "stopping" | "log" | "countMails">,
  dispatch: OpenedDispatch,
  mailed: Mailed<AllowedRecipient>,
): Promise<void> {
  if (mailed.outcome.outcome === "unknown") return;
  const write = () => settleOutcomes(deps.orm.em.fork(), dispatch, [mailed], policyOf(deps.env));
  await throughOutage(deps, write).then(deps.countMails, (error: unknown) => {
    deps.log.warn({ sendId: dispatch.sendId, err: error }, "a late outcome could not be written: it stays unknown");
  });
}

/** Last part of a slice: writes outcomes to the ledger, and gives back the rest of the limits that the slice took. */
export class Settler {
  readonly #options: SettlerOptions;
  readonly #policy: SettlementPolicy;
  /** Mails that were begun and whose failure, if any, was not the account's. */
  mailed = 0;
  hasAccepted = false;
  /** Rows went back unbegun. */
  hasReturned = false;
  /** The first row that went back in the queue: one that was deferred before is found by its due time. */
  firstReturnedSeq = Number.POSITIVE_INFINITY;
  /** Outcomes could not be written: the rows stay SENDING, and the next attempt turns them into UNKNOWN. */
  failure: { error: unknown } | undefined;
  /** Postgres has lost the commit that staged one of the recipients: the ledger may offer those before it once more. */
  isSetBack = false;

  constructor(options: SettlerOptions) {
    this.#options = options;
    this.#policy = policyOf(options.deps.env);
  }

  /** Writes outcomes down, through an outage of the database that passes. Never rejects, see `failure`. */
  async settle(mails: readonly Mailed<AllowedRecipient>[]): Promise<void> {
    if (mails.length === 0) return;
    const { deps, em, dispatch, allowance } = this.#options;
    const returned = this.#count(mails);
    try {
      // Only this process knows these outcomes.
      const write = () => settleOutcomes(em, dispatch, mails, this.#policy);
      const counts = await throughOutage(deps, write, { patient: !this.failure });
      deps.countMails(counts);
      const settled = Object.values(counts).reduce((sum, count) => sum + count, 0);
      if (settled < mails.length) {
        const seqs = mails.map(({ item }) => item.seq);
        this.isSetBack ||= await isStagingLost(em, dispatch, seqs);
      }
      allowance.returnRows(mails.length);
      for (const [share, unused] of returned) await this.#giveBack(share, unused);
    } catch (error) {
      this.failure ??= { error };
    }
  }

  /** Mails that cannot be given back count as mailed until their window ends: the limit holds. */
  async #giveBack(share: MailShare, unused: number): Promise<void> {
    const { deps, allowance } = this.#options;
    await allowance.returnMails(share, unused).catch((error: unknown) => {
      deps.log.warn({ err: error, unused }, "unused mails could not be given back to the limits of their account");
    });
  }

  /** @returns the number of rows that go back in the queue, by share */
  #count(mails: readonly Mailed<AllowedRecipient>[]): Map<MailShare, number> {
    const returned = new Map<MailShare, number>();
    for (const { item, outcome } of mails) {
      if (outcome.outcome === "account_failure" || outcome.outcome === "not_attempted") {
        returned.set(item.share, (returned.get(item.share) ?? 0) + 1);
        this.hasReturned = true;
        if (!item.wasDeferred) this.firstReturnedSeq = Math.min(this.firstReturnedSeq, item.seq);
      } else {
        this.mailed++;
        if (outcome.outcome === "sent") this.hasAccepted = true;
      }
    }
    return returned;
  }
}

import { setTimeout as delay } from "node:timers/promises";
import { Gauge, type Registry } from "prom-client";
import type { ActivityDeps } from "../activities/deps.ts";
import { readWaitSeconds } from "../domain/mail/system-mail.ts";
import { readOverdueSeconds } from "../domain/retention/overdue.ts";
import type { RetentionSettings } from "../domain/retention/pruning.ts";
import { countOpenInEndedSends, overviewSends } from "../domain/sends/operators/overview.ts";
import { standstillSeconds } from "../domain/sends/operators/standstill.ts";
import { readPassAges } from "../domain/sends/operators/unfinished.ts";
import { countCreditMismatches } from "../domain/teams/credits.ts";
import { MOST_WAITING, overviewWebhooks } from "../domain/webhooks/webhooks-overview.ts";

/** How long an answer of Postgres serves all scrapes. Credits and the counts of sends are read whole, so they are read seldom. */
const KEPT_MS = { sends: 10_000, webhooks: 10_000, credits: 60_000, counts: 60_000 };
/** How long a scrape waits for Postgres: less than Prometheus waits for the scrape, 10 s by default. */
const READ_TIMEOUT_MS = 5_000;

/**
 * Gauges that are read from Postgres when they are scraped. One that cannot be read is left out of the answer: an old
 * number, or a 0, would say that all is well.
 * @param keptMs how long each answer of Postgres is used again
 */
export function addDatabaseMetrics(
  registry: Registry,
  { orm, log, env }: Pick<ActivityDeps, "orm" | "log"> & { env: RetentionSettings },
  keptMs = KEPT_MS,
): void {
  const unread = (error: unknown) => {
    log.warn({ err: error }, "metrics could not be read from Postgres");
    return undefined;
  };
  const registers = [registry];
  /** Makes gauges from one read of Postgres. */
  function gaugesOf<T>(everyMs: number, read: () => Promise<T>) {
    const reading = kept(everyMs, () => read().catch(unread));
    return {
      one(name: string, help: string, pick: (told: T) => number): void {
        new Gauge({
          name,
          help,
          registers,
          async collect() {
            const told = await reading();
            if (told === undefined) this.remove();
            else this.set(pick(told));
          },
        });
      },
      /** One value per key of the picked record. */
      by(label: string, name: string, help: string, pick: (told: T) => Record<string, number>): void {
        new Gauge({
          name,
          help,
          labelNames: [label],
          registers,
          async collect() {
            this.reset();
            const told = await reading();
            for (const [key, value] of Object.entries(told === undefined ? {} : pick(told))) {
              this.set({ [label]: key }, value);
            }
          },
        });
      },
    };
  }

  const sends = gaugesOf(keptMs.sends, () => overviewSends(orm.em.fork()));
  sends.by("status", "mailkeel_sends", "Sends by status", ({ byStatus }) => byStatus);
  sends.by(
    "reason",
    "mailkeel_sends_needing_operator",
    "Sends that a failure paused until an operator resumes them, by its code",
    ({ needingOperator }) => needingOperator,
  );
  sends.one(
    "mailkeel_sends_in_review",
    "Sends whose unknown outcomes wait for an operator's decision",
    ({ reviewsOpen }) => reviewsOpen,
  );
  gaugesOf(keptMs.sends, () => standstillSeconds(orm.em.fork())).by(
    "cause",
    "mailkeel_send_standstill_seconds",
    "For how long the send that has stood still the longest could have been mailed and was not, by cause",
    (seconds) => seconds,
  );
  sends.one(
    "mailkeel_queue_age_seconds",
    "For how long the recipient that has waited longest could have been mailed, without the pauses of its send",
    ({ queueAgeSeconds }) => queueAgeSeconds,
  );
  sends.by(
    "cause",
    "mailkeel_send_paused_seconds",
    "For how long the send that has been paused the longest is, by cause: a client, an operator or a failure",
    ({ pausedSeconds }) => pausedSeconds,
  );

  gaugesOf(keptMs.counts, () => countOpenInEndedSends(orm.em.fork())).one(
    "mailkeel_ended_sends_open_recipients",
    "Recipients without an outcome in sends that have ended",
    (open) => open,
  );

  gaugesOf(keptMs.sends, () => readPassAges(orm.em.fork())).by(
    "kind",
    "mailkeel_reconciler_age_seconds",
    "Since when the reconciler has not compared every open send with Temporal",
    (ages) => ages,
  );

  const webhooks = gaugesOf(keptMs.webhooks, () => overviewWebhooks(orm.em.fork()));
  webhooks.one(
    "mailkeel_webhook_outbox_age_seconds",
    "For how long the oldest change has waited to be handed to webhook endpoints",
    ({ outboxAgeSeconds }) => outboxAgeSeconds,
  );
  webhooks.by(
    "endpoint",
    "mailkeel_webhook_waiting_age_seconds",
    "For how long the delivery that has waited longest could have been attempted, by the state of its endpoint",
    ({ waitingAgeSeconds }) => waitingAgeSeconds,
  );
  webhooks.by(
    "endpoint",
    "mailkeel_webhook_deliveries_waiting",
    `Deliveries that have not ended, by the state of their endpoint, each counted up to ${MOST_WAITING}`,
    ({ waiting }) => waiting,
  );
  webhooks.one(
    "mailkeel_webhook_endpoints_failing",
    "Endpoints that failed several times in a row: their deliveries wait while one at a time probes them",
    ({ failing }) => failing,
  );
  webhooks.one(
    "mailkeel_webhook_endpoints_switched_off",
    "Endpoints switched off because nothing could be delivered to them",
    ({ switchedOff }) => switchedOff,
  );

  gaugesOf(keptMs.sends, () => readWaitSeconds(orm.em.fork())).by(
    "kind",
    "mailkeel_system_mail_wait_seconds",
    "For how long the service's own mail that has waited longest could not be handed over, by kind",
    (seconds) => ({ ...seconds }),
  );

  gaugesOf(keptMs.credits, () => countCreditMismatches(orm.em.fork())).one(
    "mailkeel_credit_mismatches",
    "Credit balances that differ from the sum of their ledger",
    (mismatches) => mismatches,
  );

  gaugesOf(keptMs.sends, () => readOverdueSeconds(orm.em.fork(), env)).one(
    "mailkeel_retention_overdue_seconds",
    "For how long the row that is longest overdue should have been deleted or shortened",
    (seconds) => seconds,
  );
}

/**
 * Reads at most every `forMs`, and never twice at the same time: callers during a read share its result.
 * @returns gives undefined when a read takes too long
 */
function kept<T>(forMs: number, read: () => Promise<T>): () => Promise<T | undefined> {
  let begun = Number.NEGATIVE_INFINITY;
  let reading = false;
  let answer: Promise<T>;
  return () => {
    if (!reading && performance.now() - begun >= forMs) {
      begun = performance.now();
      reading = true;
      answer = read().finally(() => {
        reading = false;
      });
    }
    return Promise.race([answer, delay(READ_TIMEOUT_MS, undefined, { ref: false })]);
  };
}

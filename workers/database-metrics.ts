import { Gauge, type Registry } from "prom-client";
import type { ActivityDeps } from "../activities/deps.ts";
import { countCreditMismatches } from "../domain/credits.ts";
import { overviewSends, type SendsOverview } from "../domain/sends/overview.ts";

/** How long an answer of Postgres serves all scrapes. The ledger of credits is read as a whole, so it is read seldom. */
const KEPT_MS = { sends: 10_000, credits: 60_000 };
/** A scrape gives up on Postgres before Prometheus, which waits 10 s unless told otherwise, gives up on the scrape. */
const PATIENCE_MS = 5_000;

/**
 * Gauges of what stands in Postgres, read when they are scraped. What cannot be read is left out of the answer: an old
 * number, or a 0, would say that all is well.
 * @param keptMs how long each answer of Postgres is used again
 */
export function addDatabaseMetrics(
  registry: Registry,
  { orm, log }: Pick<ActivityDeps, "orm" | "log">,
  keptMs = KEPT_MS,
): void {
  const unread = (error: unknown) => {
    log.warn({ err: error }, "metrics could not be read from Postgres");
    return undefined;
  };
  const sends = kept(keptMs.sends, () => overviewSends(orm.em.fork()).catch(unread));
  const creditMismatches = kept(keptMs.credits, () => countCreditMismatches(orm.em.fork()).catch(unread));
  const registers = [registry];

  new Gauge({
    name: "mailkeel_sends",
    help: "Sends by status",
    labelNames: ["status"],
    registers,
    async collect() {
      this.reset();
      for (const [status, count] of Object.entries((await sends())?.byStatus ?? {})) this.set({ status }, count);
    },
  });
  const ofSends = (name: string, help: string, pick: (overview: SendsOverview) => number) =>
    new Gauge({
      name,
      help,
      registers,
      async collect() {
        const overview = await sends();
        setOrRemove(this, overview && pick(overview));
      },
    });
  ofSends(
    "mailkeel_sends_needing_operator",
    "Sends that trouble paused until an operator resumes them",
    ({ needingOperator }) => needingOperator,
  );
  ofSends(
    "mailkeel_queue_age_seconds",
    "For how long the recipient that has waited longest could have been mailed",
    ({ queueAgeSeconds }) => queueAgeSeconds,
  );
  new Gauge({
    name: "mailkeel_credit_mismatches",
    help: "Credit balances that differ from the sum of their ledger",
    registers,
    async collect() {
      setOrRemove(this, await creditMismatches());
    },
  });
}

function setOrRemove(gauge: Gauge, value: number | undefined): void {
  if (value === undefined) gauge.remove();
  else gauge.set(value);
}

/**
 * Reads at most every `forMs`, and never while a reading is under way: whoever asks meanwhile shares it.
 * @returns gives undefined when a reading takes too long
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
    return inTime(answer);
  };
}

async function inTime<T>(answer: Promise<T>): Promise<T | undefined> {
  let timer: NodeJS.Timeout | undefined;
  const tooLate = new Promise<undefined>((resolve) => {
    timer = setTimeout(resolve, PATIENCE_MS, undefined);
  });
  try {
    return await Promise.race([answer, tooLate]);
  } finally {
    clearTimeout(timer);
  }
}

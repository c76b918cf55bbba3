import { Counter, Gauge, Histogram, type Registry } from "prom-client";
import type { ReportOutcome } from "../domain/reports/record.ts";

/** The outcomes of incoming mails; the help of the counter explains them. */
const OUTCOMES = [
  "recorded",
  "known",
  "unsettled",
  "not_mailed",
  "unidentified",
  "unsubscribe",
  "none",
] as const satisfies (ReportOutcome | "unidentified" | "unsubscribe" | "none")[];

/** Why the intake did not take a mail or a connection. */
const REFUSALS = [
  /** An address of another domain, or one that the service did not sign. */
  "recipient",
  "size",
  /** Of the client, in a minute. */
  "mails",
  "connections",
  /** It brought no mail in time. */
  "slow",
  /** The mail that the report is about has no outcome yet. */
  "unsettled",
  /** DNS did not answer for the key of a complaint's signature. */
  "unverified",
  /** The report could not be recorded. */
  "unavailable",
] as const;
export type IntakeRefusal = (typeof REFUSALS)[number];

export interface IntakeMetrics {
  reported(outcome: (typeof OUTCOMES)[number]): void;
  refused(reason: IntakeRefusal): void;
  /** @param seconds from a mail's last byte to its answer */
  answered(seconds: number): void;
}

/**
 * Adds the metrics of the intake.
 * @param read called at each scrape
 */
export function openIntakeMetrics(
  registry: Registry,
  read: { connections: () => number; reportsWaiting: () => number },
): IntakeMetrics {
  const registers = [registry];
  const reports = new Counter({
    name: "mailkeel_intake_reports_total",
    help: "Reports that came by mail, by outcome; `unidentified` counts those that show no mail of this service, `unsubscribe` recipients who unsubscribed by mail, `none` mails that change nothing",
    labelNames: ["outcome"],
    registers,
  });
  const refusals = new Counter({
    name: "mailkeel_intake_refusals_total",
    help: "Mails that the intake did not take, and connections that it closed, by reason",
    labelNames: ["reason"],
    registers,
  });
  // Begin at 0, because a rate needs a first value to rise from.
  for (const outcome of OUTCOMES) reports.inc({ outcome }, 0);
  for (const reason of REFUSALS) refusals.inc({ reason }, 0);
  const seconds = new Histogram({
    name: "mailkeel_intake_answer_seconds",
    help: "Time from the last byte of a mail to its answer",
    buckets: [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10],
    registers,
  });
  for (const [name, help, value] of [
    ["mailkeel_intake_reports_waiting", "Reports whose clients wait until they are committed", read.reportsWaiting],
    ["mailkeel_intake_connections", "Open connections of clients", read.connections],
  ] as const) {
    new Gauge({
      name,
      help,
      registers,
      collect() {
        this.set(value());
      },
    });
  }
  return {
    reported: (outcome) => reports.inc({ outcome }),
    refused: (reason) => refusals.inc({ reason }),
    answered: (value) => seconds.observe(value),
  };
}

import { sql } from "kysely";
import { claimPort } from "../config/ports.ts";
import { kysely } from "../db/orm.ts";
import { returnPath } from "../domain/mail/links.ts";
import { makeTeam } from "../test/support/factories.ts";
import { type StackChoice, withStack } from "../test/support/own-stack.ts";
import { pidOf } from "../test/support/processes.ts";
import { COMPLAINT, HARD, RETURN_PATH_DOMAIN, SOFT } from "../test/support/reports.ts";
import { writeLedger } from "./ledger.ts";
import { resetPeaks, usage } from "./processes.ts";
import { type BenchReport, type Row, round } from "./report.ts";
import { startReportLoad } from "./report-load.ts";
import { measureSends } from "./send.ts";
import { measureHits, measureOutage } from "./tracking.ts";

export interface IntakeOptions extends Pick<StackChoice, "cpuProf"> {
  reports: number;
  /** Connections that send reports. */
  connections: number;
  /** How long each of the two measurements of opens and clicks lasts. */
  seconds: number;
  perSecond: number;
  /** How long Postgres is away while opens and clicks come; not measured with 0. */
  outageSeconds: number;
  /** Recipients of each send with tracking and without. */
  recipients: number;
  /** Pairs of such sends. */
  repeat: number;
}

/** The reports are sent in this number of parts, whose peaks of memory are compared. */
const PARTS = 5;
/** This share of each part's reports is sent a second time. */
const REPEATED_SHARE = 0.1;
/** By how much the memory of the intake may grow after the first part: garbage is collected late. */
const MOST_GROWTH_MIB = 64;
const PROCESSES = ["intake", "postgres"] as const;

/** Measures all responses to mails: reports by mail, opens and clicks, and the cost of tracking for a send. */
export async function benchIntake(options: IntakeOptions): Promise<BenchReport> {
  const { reports, connections, seconds, perSecond, outageSeconds, recipients, repeat } = options;
  const port = await claimPort();
  const settings = {
    RETURN_PATH_DOMAIN,
    INTAKE_SMTP_PORT: String(port),
    INTAKE_MAX_CONNECTIONS: String(connections * 4),
    INTAKE_MAILS_PER_MINUTE: "1000000000",
    FEEDBACK_LOOP_ADDRESSES: "127.0.0.1",
  };
  return withStack({ ...options, settings }, async () => {
    const flood = await measureReports(port, options);
    const hits = await measureHits({ seconds, perSecond, clients: 64, mails: 100_000 });
    const outage =
      outageSeconds > 0
        ? await measureOutage({ outageSeconds, perSecond, clients: 64, mails: 100_000 })
        : { rows: [], problems: [] };
    const sends = await measureSends({
      recipients: [recipients],
      latencyMs: 0,
      connections: 100,
      accounts: 1,
      repeat,
      previews: 1,
      kill: false,
      ...{ tracking: true, consent: false },
      brief: true,
    });
    return {
      bench: "intake",
      options: {
        reports,
        connections,
        seconds,
        "per-second": perSecond,
        "outage-seconds": outageSeconds,
        recipients,
        repeat,
      },
      tables: {
        "Reports by mail": flood.rows,
        "Opens and clicks in turns": hits.rows,
        ...(outageSeconds > 0 && { "Opens and clicks while Postgres is away": outage.rows }),
        // The cost of the mails stands beside the rates: on a busy machine it is steadier.
        ...Object.fromEntries(Object.entries(sends.tables).filter(([heading]) => /^(?:Rates with|CPU)/.test(heading))),
      },
      problems: [...flood.problems, ...hits.problems, ...outage.problems, ...sends.problems],
    };
  });
}

/** Sends reports about the mails of one send, some of them twice, and checks that each is recorded once. */
async function measureReports(
  port: number,
  { reports, connections }: Pick<IntakeOptions, "reports" | "connections">,
): Promise<{ rows: Row[]; problems: string[] }> {
  const team = await makeTeam();
  const sendId = await writeLedger(team, reports);
  const mails = [HARD, COMPLAINT, SOFT].map((mail) => mail.replaceAll(/\r?\n/g, "\r\n"));
  const pids = Object.fromEntries(PROCESSES.map((name) => [name, pidOf(name)]));
  const load = startReportLoad();
  const rows: Row[] = [];
  const problems: string[] = [];
  const peaks: number[] = [];
  try {
    const size = Math.ceil(reports / PARTS);
    for (let from = 1; from <= reports; from += size) {
      const paths = Array.from({ length: Math.min(size, reports - from + 1) }, (_, i) =>
        returnPath(team.vault, RETURN_PATH_DOMAIN, { sendId, seq: from + i }),
      );
      // A multiple of the kinds, so that a mail comes again with the same report.
      const repeated = Math.floor((paths.length * REPEATED_SHARE) / mails.length) * mails.length;
      const recipients = [...paths.slice(0, repeated), ...paths];
      resetPeaks(pids);
      const before = usage(pids);
      const result = await load.run({ port, recipients, mails, connections });
      const after = usage(pids);
      const cpu = (name: (typeof PROCESSES)[number]) =>
        ((after[name]?.cpuSeconds ?? 0) - (before[name]?.cpuSeconds ?? 0)) / (recipients.length / 1_000);
      peaks.push(after["intake"]?.peakMiB ?? 0);
      rows.push({
        mails: recipients.length,
        "reports/s": round(recipients.length / result.seconds),
        "p50 ms": round(result.p50, 1),
        "p99 ms": round(result.p99, 1),
        ...Object.fromEntries(PROCESSES.map((name) => [`${name}, CPU s per 1,000`, round(cpu(name), 2)])),
        "intake, peak MiB": round(peaks.at(-1) ?? 0),
      });
      const { 250: taken = 0, ...others } = result.answers;
      if (taken !== recipients.length) problems.push(`reports were answered with ${JSON.stringify(others)}`);
    }
  } finally {
    load.close();
  }
  const { rows: counted } = await sql<{ count: number }>`
    select count(*)::int as count from mail_reports where send_id = ${sendId}`.execute(kysely(team.em));
  if (counted[0]?.count !== reports) problems.push(`of ${reports} reports ${counted[0]?.count} are facts`);
  // The first part is the warm-up.
  const growth = Math.max(...peaks) - (peaks[1] ?? 0);
  if (growth > MOST_GROWTH_MIB) problems.push(`the memory of the intake grew by ${round(growth)} MiB`);
  return { rows, problems };
}

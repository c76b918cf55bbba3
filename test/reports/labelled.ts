/** `node test/reports/labelled.ts`: how many of the labelled mails are classified right, by outcome and by reason. */
import { readFileSync } from "node:fs";
import { classifyMail } from "../../domain/reports/classify.ts";
import type { ReportKind } from "../../domain/reports/report.ts";

const DATA = `${import.meta.dirname}/../data/bounces`;
export const MAILS = `${DATA}/mails`;

interface Label {
  status: string;
  reply: string;
  reason: string;
  hard: boolean;
  feedback: string;
}

/** Of each mail, a label for each recipient that it speaks of. */
const labels: Record<string, Label[]> = JSON.parse(readFileSync(`${DATA}/labels.json`, "utf8"));
export const readLabelled = (file: string) => readFileSync(`${MAILS}/${file}`);

/** RFC 6591: a receiver reports a failed authentication, not a person a mail that they do not want. */
const isAuthFailure = ({ feedback }: Label) => feedback === "auth-failure";

function kindOf(label: Label): ReportKind {
  if (label.reason === "feedback") return isAuthFailure(label) ? "none" : "complaint";
  if (label.reason === "vacation" || label.reason === "delivered") return "none";
  return label.hard ? "hard" : "soft";
}

/** The labels of a mail and its classified kinds: one for each recipient, in order. */
export interface LabelledOutcome {
  file: string;
  reasons: string[];
  wanted: ReportKind[];
  found: ReportKind[];
}

export const isRight = ({ wanted, found }: LabelledOutcome): boolean => wanted.join() === found.join();

export async function classifyLabelled(): Promise<LabelledOutcome[]> {
  return Promise.all(
    Object.entries(labels).map(async ([file, entries]) => {
      const { recipients } = await classifyMail(readLabelled(file));
      const found = recipients.length > 0 ? recipients.map(({ kind }) => kind) : (["none"] as const);
      return { file, reasons: entries.map(({ reason }) => reason), wanted: entries.map(kindOf), found: [...found] };
    }),
  );
}

function tableOf(title: string, outcomes: readonly LabelledOutcome[], groupOf: "reasons" | "wanted"): string {
  const counts = new Map<string, { labels: number; right: number }>();
  for (const outcome of outcomes) {
    for (const [i, group] of outcome[groupOf].entries()) {
      const count = counts.get(group) ?? { labels: 0, right: 0 };
      count.labels++;
      if (outcome.found[i] === outcome.wanted[i]) count.right++;
      counts.set(group, count);
    }
  }
  const rows = [...counts].toSorted(([, a], [, b]) => b.labels - a.labels);
  return [
    `| ${title} | recipients | right |\n| --- | --- | --- |`,
    ...rows.map(([group, { labels, right }]) => `| ${group} | ${labels} | ${right} |`),
  ].join("\n");
}

if (import.meta.main) {
  const outcomes = await classifyLabelled();
  const wrong = outcomes.filter((outcome) => !isRight(outcome));
  console.log(`${outcomes.length - wrong.length} of ${outcomes.length} mails\n`);
  console.log(`${tableOf("outcome", outcomes, "wanted")}\n\n${tableOf("reason", outcomes, "reasons")}\n`);
  for (const { file, wanted, found } of wrong) console.log(`${file}: ${wanted.join()} was taken for ${found.join()}`);
}

import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { z } from "zod";
import { networkOf, plainAddress } from "../../config/client-network.ts";
import { ENGAGEMENT_KINDS, type EngagementKind } from "../../db/entities/engagement.ts";
import { labelHits, QUIET_SECONDS, type WaitingHit } from "../../domain/tracking/label.ts";
import { readNetworks } from "../../domain/tracking/networks.ts";
import { sourceOf } from "../../domain/tracking/record.ts";
import { findingOf } from "../../domain/tracking/rules.ts";

/*
 * `node test/public/hit-traces.ts` measures the rules by the labelled requests of test/data/hits: for each kind and label the
 * precision, of those that got the label, and the recall, of those that should have.
 */

export const LABELS = ["human", "machine", "unknown"] as const;
export type Label = (typeof LABELS)[number];

const file = z.strictObject({
  agents: z.record(z.string(), z.string()),
  traces: z.array(
    z.strictObject({
      name: z.string(),
      source: z.string(),
      hits: z.array(
        z.strictObject({
          after: z.number(),
          kind: z.enum(ENGAGEMENT_KINDS),
          link: z.int().optional(),
          agent: z.string(),
          method: z.enum(["GET", "HEAD"]).default("GET"),
          headers: z.record(z.string(), z.string()).default({}),
          from: z.string(),
          by: z.enum(LABELS),
        }),
      ),
    }),
  ),
});

export type Traces = z.infer<typeof file>;
export type Trace = Traces["traces"][number];
export type TracedHit = Trace["hits"][number];

export const TRACE_FILES = ["tuned", "held-out"] as const;

export const readTraces = (name: (typeof TRACE_FILES)[number]): Traces =>
  file.parse(JSON.parse(readFileSync(resolve(import.meta.dirname, `../data/hits/${name}.json`), "utf8")));

/** Counts of requests by kind, by the label that they should have, and by the one that they got. */
export type Confusion = Record<EngagementKind, Record<Label, Record<Label, number>>>;

/** @param labelOf the labels that the requests of a mail get, in their order */
export function confusionOf(
  { agents, traces }: Traces,
  labelOf: (hits: readonly TracedHit[], agents: Traces["agents"]) => Label[],
) {
  const zeros = () => Object.fromEntries(LABELS.map((label) => [label, 0])) as Record<Label, number>;
  const table = () => Object.fromEntries(LABELS.map((label) => [label, zeros()])) as Confusion[EngagementKind];
  const confusion: Confusion = { opened: table(), clicked: table() };
  const wrong: string[] = [];
  for (const { name, hits } of traces) {
    const labels = labelOf(hits, agents);
    for (const [i, { kind, by, after }] of hits.entries()) {
      const label = labels[i] ?? "human";
      confusion[kind][by][label]++;
      if (label !== by) wrong.push(`${name}: ${kind} after ${after} s is ${by}, not ${label}`);
    }
  }
  return { confusion, wrong };
}

/** Of a kind and a label, as fractions; null where nothing got it, or should have. */
export function measuresOf(confusion: Confusion, kind: EngagementKind, label: Label) {
  const right = confusion[kind][label][label];
  const got = LABELS.reduce((sum, by) => sum + confusion[kind][by][label], 0);
  const due = LABELS.reduce((sum, by) => sum + confusion[kind][label][by], 0);
  return { precision: got > 0 ? right / got : null, recall: due > 0 ? right / due : null, right, got, due };
}

const NETWORKS = readNetworks();
const ACCEPTED_AT = Date.parse("2026-11-27T10:00:00Z");

/** As the service labels them: those that are made at about the same time, together. */
function labelsOf(hits: readonly TracedHit[], agents: Traces["agents"]): Label[] {
  const waiting = hits.map(({ kind, method, headers, agent, after, link, from }) => {
    const clientAddress = networkOf(plainAddress(from));
    const request = { method, headers: { "user-agent": agents[agent], ...headers }, clientAddress };
    const { rule = null, early = false } = findingOf(kind, request, NETWORKS) ?? {};
    const url = link === undefined ? null : `https://shop.example/${link}`;
    return { kind, at: ACCEPTED_AT + after * 1_000, url, rule, early, source: sourceOf("token", clientAddress) };
  });
  const labels: Label[] = [];
  let isOpened = false;
  for (let from = 0; from < waiting.length; from = labels.length) {
    const isBreak = ({ at }: WaitingHit, i: number) =>
      i > from && at - (waiting[i - 1]?.at ?? at) > QUIET_SECONDS * 1_000;
    const to = waiting.findIndex(isBreak);
    const together = waiting.slice(from, to < 0 ? undefined : to);
    const settled = labelHits({ acceptedAt: ACCEPTED_AT, isOpened }, together);
    labels.push(...settled.map((label) => label?.by ?? "human"));
    isOpened ||= settled.some((label) => label && label.by !== "machine");
  }
  return labels;
}

export const measureTraces = (name: (typeof TRACE_FILES)[number]) => confusionOf(readTraces(name), labelsOf);

if (import.meta.main) {
  const rows = TRACE_FILES.flatMap((name) => {
    const { confusion, wrong } = measureTraces(name);
    // Those of the other file are not shown: they would be tuned by.
    if (name === "tuned") console.log(wrong.join("\n"));
    return ENGAGEMENT_KINDS.flatMap((kind) =>
      LABELS.map((label) => {
        const { precision, recall, right, got, due } = measuresOf(confusion, kind, label);
        return {
          file: name,
          kind,
          label,
          precision: `${right} of ${got}`,
          recall: `${right} of ${due}`,
          p: precision,
          r: recall,
        };
      }),
    );
  });
  console.table(rows);
}

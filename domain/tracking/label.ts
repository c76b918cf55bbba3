import type { EngagementKind, HitMaker, HitRule } from "../../db/entities/engagement.ts";
import { RULES } from "./rules.ts";

/** A hit beside the others of its mail that were made at about the same time. */
export interface WaitingHit {
  kind: EngagementKind;
  /** Milliseconds since 1970. */
  at: number;
  url: string | null;
  rule: HitRule | null;
  early: boolean;
  source: string | null;
}

export interface HitMail {
  /** When its server accepted it, in milliseconds since 1970; undefined where it has not. */
  acceptedAt: number | undefined;
  /** An open that counts came before. */
  isOpened: boolean;
}

export interface Label {
  by: HitMaker;
  /** Null for a person's. */
  rule: HitRule | null;
}

/** Gateways follow links when they take a mail; a person needs longer to read it. */
const TOO_SOON_MS = 1_000;
/** Most scanners come within seconds, and sandboxes after some minutes, as reports say. */
export const FIRST_MINUTES = 5;
/** Two links within this time are a burst: a person who opens several tabs takes longer for each. */
export const BURST_SECONDS = 2;
/** How long a mail is quiet before its hits are settled: longer than a burst, a hit's second in memory, and most reports. */
export const QUIET_SECONDS = 10;
/** No person makes more hits of a mail in a minute: a mail with more is settled at once, each as one of a burst. */
export const MOST_HITS = 200;
/** Between a hit here and the provider's own of the same open or click. */
const SAME_HIT_MS = 10_000;

/** A report of a provider about a hit, which is none itself. */
export const isReport = ({ rule, source }: Pick<WaitingHit, "rule" | "source">): boolean =>
  rule === "provider" && source === null;

const areWithin = (ms: number) => (one: WaitingHit, other: WaitingHit) => Math.abs(one.at - other.at) <= ms;
const areOneBurst = areWithin(BURST_SECONDS * 1_000);
const areSame = areWithin(SAME_HIT_MS);

/** The source followed two links at about that time, or showed itself as a program. */
function isInBurst(hit: WaitingHit, hits: readonly WaitingHit[]): boolean {
  const beside = hits.filter((other) => other.source === hit.source && areOneBurst(hit, other));
  const links = new Set(beside.flatMap(({ url }) => url ?? []));
  return links.size > 1 || beside.some(({ rule }) => rule === "head" || rule === "program");
}

/**
 * Says who made each hit.
 * @param hits all of the mail that were made at about the same time, by their times, and reports about them
 * @returns a label for each hit, in their order; undefined for a report
 */
export function labelHits(mail: HitMail, hits: readonly WaitingHit[]): (Label | undefined)[] {
  const { acceptedAt } = mail;
  const isWithin = (ms: number, { at }: WaitingHit) => acceptedAt === undefined || at < acceptedAt + ms;
  // Before any hit is compared with all others.
  if (hits.length > MOST_HITS) {
    return hits.map((hit) => (isReport(hit) ? undefined : { by: "machine", rule: hit.rule ?? "burst" }));
  }
  let { isOpened } = mail;
  const ruleOf = (hit: WaitingHit): HitRule | null => {
    const { kind, rule, early } = hit;
    const isEarly = isWithin(FIRST_MINUTES * 60_000, hit);
    if (rule && (!early || isEarly)) return rule;
    if (hits.some((other) => isReport(other) && other.kind === kind && areSame(hit, other))) return "provider";
    if (kind === "clicked" && isWithin(TOO_SOON_MS, hit)) return "too_soon";
    if (isInBurst(hit, hits)) return "burst";
    return kind === "clicked" && isEarly && !isOpened ? "first_minutes" : null;
  };
  return hits.map((hit) => {
    if (isReport(hit)) return undefined;
    const rule = ruleOf(hit);
    const by = rule ? RULES[rule] : "human";
    if (hit.kind === "opened" && by !== "machine") isOpened = true;
    return { by, rule };
  });
}

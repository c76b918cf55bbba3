import { z } from "zod";

const STAGES = ["connect", "auth", "mail", "rcpt", "data"] as const;
export type FaultStage = (typeof STAGES)[number];

function isPattern(source: string): boolean {
  try {
    new RegExp(source);
    return true;
  } catch {
    return false;
  }
}

/** The rules a test sets to make the mail catcher misbehave. The first one that fits is applied. */
export const faultRules = z.array(
  z.strictObject({
    /** The stage of the session that is answered so. `data` is the final dot. */
    stage: z.enum(STAGES),
    /**
     * Pattern of a recipient's address, of the sender's at `mail`, of the user name at `auth`; without one it fits all.
     * `connect` has none.
     */
    match: z.string().refine(isPattern, "must be a regular expression").default(""),
    /** SMTP reply code; without one the command succeeds (after the delay). 421 ends the connection. */
    code: z.int().min(400).max(599).optional(),
    message: z.string().max(500).default("by a fault rule"),
    /** How often it applies; without a number until the rules are replaced. */
    times: z.int().min(1).optional(),
    /** How long the answer takes. */
    delayMs: z.int().min(0).max(600_000).default(0),
    /** Cuts the connection instead of answering: after the final dot, the mail's outcome is unknown. */
    drop: z.boolean().default(false),
    /** With `drop` after the final dot: the mail is caught, and only its answer is lost. */
    taken: z.boolean().default(false),
  }),
);

export type FaultRule = z.infer<typeof faultRules>[number];

/** The rules in force, and how often each may still apply. */
export class Faults {
  #rules: { rule: FaultRule; pattern: RegExp; left: number }[] = [];

  /** @param match of the rules that are replaced; all of them unless given */
  replace(rules: FaultRule[], match?: string): void {
    const kept = this.#rules.filter(({ rule }) => match !== undefined && rule.match !== match);
    const added = rules.map((rule) => ({
      rule,
      pattern: new RegExp(rule.match, "i"),
      left: rule.times ?? Number.POSITIVE_INFINITY,
    }));
    this.#rules = [...kept, ...added];
  }

  list(): FaultRule[] {
    return this.#rules.map(({ rule }) => rule);
  }

  /** Takes the rule that applies here and now, if there is one. */
  take(stage: FaultStage, names: string[] = []): FaultRule | undefined {
    if (this.#rules.length === 0) return undefined;
    const entry = this.#rules.find(
      ({ rule, pattern, left }) =>
        left > 0 && rule.stage === stage && (rule.match === "" || names.some((name) => pattern.test(name))),
    );
    if (entry) entry.left--;
    return entry?.rule;
  }
}

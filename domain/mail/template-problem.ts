export type ContentField = "subject" | "html";

/** Precise enough for the author to repair it. Messages quote nothing of the template. */
export type TemplateProblem =
  | { kind: "syntax"; message: string }
  | { kind: "forbidden_tag"; tag: string }
  | { kind: "limits"; message: string };

/** A problem for sending only: a draft may hold one. */
export interface UnknownTag {
  kind: "unknown_tag";
  tag: string;
  /** A tag that there is and that may be meant. */
  nearest?: string;
}

export type ContentProblem = (TemplateProblem | UnknownTag) & { field: ContentField };

export class TemplateError extends Error {
  override name = "TemplateError";
  readonly problem: TemplateProblem;
  constructor(problem: TemplateProblem, options?: ErrorOptions) {
    super(describeProblem(problem), options);
    this.problem = problem;
  }
}

/** @param message a clause about the template: "it has more than 2000 tags" */
export const limits = (message: string) => new TemplateError({ kind: "limits", message });

/** Other text of an author is not repeated. */
const SHOWN_TAG = /^[\w-]{1,100}(?:\.[\w-]{1,100}){0,5}$/;

export function describeProblem(problem: TemplateProblem | UnknownTag): string {
  switch (problem.kind) {
    case "forbidden_tag":
      return `the tag "${problem.tag}" is not allowed`;
    case "unknown_tag":
      return (
        (SHOWN_TAG.test(problem.tag) ? `the merge tag {{ ${problem.tag} }} is unknown` : "a merge tag is unknown") +
        (problem.nearest === undefined ? "" : `: write {{ ${problem.nearest} }}`)
      );
    default:
      return problem.message;
  }
}

/** Those of them that are shown, each with the one that is meant where that is known. */
export const shownTags = (problems: readonly ContentProblem[]): { tag: string; nearest?: string }[] =>
  problems.flatMap((problem) => (problem.kind === "unknown_tag" && SHOWN_TAG.test(problem.tag) ? [problem] : []));

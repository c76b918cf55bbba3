/** Fields of a draft that hold templates. */
export type ContentField = "subject" | "html";

/**
 * A reason why a template cannot be used, precise enough for its author to repair it. Messages are sentences of this
 * project with numbers of lines and columns. They quote nothing of the template.
 */
export type TemplateProblem =
  | { kind: "syntax"; message: string }
  | { kind: "forbidden_tag"; tag: string }
  | { kind: "limits"; message: string };

/** A problem of a draft's subject or body. An unknown tag is a problem for sending only: a draft may hold one. */
export type ContentProblem = (TemplateProblem | { kind: "unknown_tag"; tag: string }) & { field: ContentField };

/** A template that cannot be used, or whose rendering exceeded a limit. */
export class TemplateError extends Error {
  override name = "TemplateError";
  readonly problem: TemplateProblem;
  constructor(problem: TemplateProblem, options?: ErrorOptions) {
    super(describeProblem(problem), options);
    this.problem = problem;
  }
}

/** The error of an exceeded limit. @param message a clause about the template: "it has more than 2000 tags" */
export const limits = (message: string) => new TemplateError({ kind: "limits", message });

/** A merge tag as it may be shown: names and their paths. Other text of an author is not repeated. */
const SHOWN_TAG = /^[\w-]{1,100}(?:\.[\w-]{1,100}){0,5}$/;

/** The problem as a clause for an error's message. */
export function describeProblem(problem: TemplateProblem | { kind: "unknown_tag"; tag: string }): string {
  switch (problem.kind) {
    case "forbidden_tag":
      return `the tag "${problem.tag}" is not allowed`;
    case "unknown_tag":
      return SHOWN_TAG.test(problem.tag) ? `the merge tag {{ ${problem.tag} }} is unknown` : "a merge tag is unknown";
    default:
      return problem.message;
  }
}

/** Names of unknown merge tags, as far as they may be shown. */
export const shownTags = (problems: readonly ContentProblem[]): string[] =>
  problems.flatMap((problem) => (problem.kind === "unknown_tag" && SHOWN_TAG.test(problem.tag) ? [problem.tag] : []));

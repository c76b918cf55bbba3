import { UnsendableError } from "./header.ts";
import { composeMessage, type MessageContent, type PreparedContent, prepareContent } from "./message.ts";
import { PREVIEW_BUDGET_MS } from "./render-budget.ts";
import { checkContent, fieldValuesOf, longestFieldValue } from "./template.ts";
import { type ContentField, type ContentProblem, TemplateError, type TemplateProblem } from "./template-problem.ts";

/** The tasks of the thread. Tasks and results are plain data. */
export type ExaminationTask =
  /** Are the templates of a draft usable? */
  | { task: "check"; content: Record<ContentField, string>; fields?: readonly string[] | undefined }
  /** Can messages be composed from this content? */
  | { task: "compose"; content: MessageContent }
  /** Reads the HTML, for `composeMessage`. */
  | { task: "prepare"; content: MessageContent };

export interface ExaminationResults {
  check: ContentProblem[];
  compose: null;
  prepare: PreparedContent;
}

export type ExaminationAnswer =
  | { ok: true; result: ExaminationResults[ExaminationTask["task"]] }
  | { ok: false; problem: TemplateProblem }
  | { ok: false; unsendable: string };

/** @throws {TemplateError | UnsendableError} as `composeMessage` */
export function runTask(task: ExaminationTask): ExaminationResults[ExaminationTask["task"]] {
  switch (task.task) {
    case "check":
      return checkContent(task.content, task.fields);
    case "compose":
      composeSamples(task.content);
      return null;
    case "prepare":
      return prepareContent(task.content);
  }
}

/** Composes a message for a recipient with a name and custom fields of the greatest length, and for one without. */
function composeSamples(content: MessageContent): void {
  const composed = composeMessage(content);
  const email = "jane.doe@example.com";
  const sample = { email, unsubscribeUrl: "https://example.com/u/1", messageId: "1@example.com", date: new Date() };
  try {
    const fields = fieldValuesOf(composed.fieldTags, longestFieldValue);
    composed.fill({ ...sample, firstName: "Jane", lastName: "Doe", listName: "News", fields }, PREVIEW_BUDGET_MS);
    composed.fill(sample, PREVIEW_BUDGET_MS);
  } catch (error) {
    // A fault that makes every recipient unsendable is a problem of the template.
    throw error instanceof UnsendableError && error.cause instanceof TemplateError ? error.cause : error;
  }
}

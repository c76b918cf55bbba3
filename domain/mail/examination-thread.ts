import { parentPort } from "node:worker_threads";
import { publicSubject } from "../../lib/subject.ts";
import { type BlockSource, compileBlocks } from "./blocks/compile.ts";
import { type ContentWarning, contentWarnings, tagsWithoutFallback } from "./content-warnings.ts";
import { UnsendableError } from "./header.ts";
import { cutInboxText, excerptOf } from "./inbox-text.ts";
import {
  composeMessage,
  type MessageContent,
  type PreparedContent,
  prepareContent,
  renderSubject,
  type ShownMessage,
  showMessage,
  type WrittenContent,
} from "./message.ts";
import { checkContent, fieldValuesOf, longestFieldValue, type MergeValues, tooSlow } from "./template.ts";
import { type ContentField, type ContentProblem, TemplateError, type TemplateProblem } from "./template-problem.ts";

// The thread behind `examination.ts`: takes one task at a time and answers it.

/** Tasks and results are plain data. The source of `compile` is JSON, which is copied faster. */
export type ExaminationTask =
  | { task: "check"; content: Record<ContentField, string>; fields?: readonly string[] | undefined }
  | { task: "compose"; content: MessageContent }
  | { task: "prepare"; content: MessageContent }
  | { task: "show" | "examine"; content: WrittenContent; values: MergeValues }
  | { task: "compile" | "titles"; source: string };

export interface Titles {
  /** `body`: the beginning of the HTML is enough. */
  mails: readonly Record<"subject" | "body", string>[];
  listName: string;
}

/** "" for a part that cannot be read. */
export interface Title {
  title: string;
  /** See `excerptOf`. */
  text: string;
}

export interface ExaminedMessage {
  warnings: ContentWarning[];
  /** See `tagsWithoutFallback`. */
  bareTags: string[];
}

export interface ExaminationResults {
  check: ContentProblem[];
  compose: null;
  prepare: PreparedContent;
  show: ShownMessage;
  examine: ExaminedMessage;
  compile: string;
  titles: Title[];
}

export type ExaminationAnswer =
  | { ok: true; result: ExaminationResults[ExaminationTask["task"]] }
  | { ok: false; problem: TemplateProblem }
  | { ok: false; unsendable: string };

/** Far below the limit of a send, whose machine may be busy. */
const SAMPLES_CPU_MS = 100;

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
    case "show":
      return showMessage(task.content, task.values);
    case "examine":
      return examineMessage(task.content, task.values);
    case "compile":
      return compileBlocks(JSON.parse(task.source) as BlockSource);
    case "titles":
      return renderTitles(JSON.parse(task.source));
  }
}

function renderTitles({ mails, listName }: Titles): Title[] {
  const print = (template: string): string => {
    try {
      return renderSubject(template, { list_name: listName }).trim();
    } catch (error) {
      if (error instanceof TemplateError) return "";
      throw error;
    }
  };
  return mails.map(({ subject, body }) => ({
    title: print(publicSubject(subject)),
    text: cutInboxText(print(excerptOf(body))),
  }));
}

function examineMessage(content: WrittenContent, values: MergeValues): ExaminedMessage {
  const warnings = contentWarnings(showMessage(content, values), Boolean(content.footer?.postalAddress));
  return { warnings, bareTags: tagsWithoutFallback(content) };
}

/** For a recipient with fields of the greatest length, and for one without. */
function composeSamples(content: MessageContent): void {
  const composed = composeMessage(content);
  const email = "jane.doe@example.com";
  const sample = { email, unsubscribeUrl: "https://example.com/u/1", messageId: "1@example.com", date: new Date() };
  const cpuAtStart = process.threadCpuUsage();
  try {
    const fields = fieldValuesOf(composed.fieldTags, longestFieldValue);
    composed.fill({ ...sample, firstName: "Jane", lastName: "Doe", listName: "News", fields });
    composed.fill(sample);
  } catch (error) {
    // A fault that makes every recipient unsendable is a problem of the template.
    throw error instanceof UnsendableError && error.cause instanceof TemplateError ? error.cause : error;
  }
  const { user, system } = process.threadCpuUsage(cpuAtStart);
  if ((user + system) / 1_000 > SAMPLES_CPU_MS) throw tooSlow(SAMPLES_CPU_MS);
}

function answer(task: ExaminationTask): ExaminationAnswer {
  try {
    return { ok: true, result: runTask(task) };
  } catch (error) {
    if (error instanceof TemplateError) return { ok: false, problem: error.problem };
    if (error instanceof UnsendableError) return { ok: false, unsendable: error.message };
    // A stack overflow, or a text longer than the engine's limit.
    if (error instanceof RangeError) {
      return { ok: false, problem: { kind: "limits", message: "it is nested too deep or too long" } };
    }
    throw error; // it ends the thread, and the caller gets it
  }
}

parentPort?.on("message", (task: ExaminationTask) => parentPort?.postMessage(answer(task)));
// It has loaded.
parentPort?.postMessage(undefined);

import { once } from "node:events";
import { Worker } from "node:worker_threads";
import type { BlockSource } from "./blocks/compile.ts";
import type { ExaminationAnswer, ExaminationResults, ExaminationTask, Title, Titles } from "./examination-thread.ts";
import { UnsendableError } from "./header.ts";
import type { MessageContent, PreparedContent, WrittenContent } from "./message.ts";
import type { MergeValues } from "./template.ts";
import { type ContentField, type ContentProblem, TemplateError } from "./template-problem.ts";

/** A task of 1 MiB takes less than a second. */
const TASK_LIMIT_MS = 5_000;
const MAX_MEMORY_MIB = 192;
/** Of one team. Contents that are slow to read take half a minute together. */
const MAX_WAITING_CHARS = 32_000_000;

interface Job {
  task: ExaminationTask;
  resolve(answer: ExaminationAnswer): void;
  reject(error: unknown): void;
}

const TOO_LONG: ExaminationAnswer = {
  ok: false,
  problem: { kind: "limits", message: "it takes too long to read; make it shorter or simpler" },
};

/** Reads clients' contents in a thread, one at a time, so that the process serves others meanwhile. Teams take turns. */
export class ExaminationThread {
  readonly #limitMs: number;
  readonly #jobs = new Map<string, Job[]>();
  #worker: Worker | undefined;
  /** Settles once the thread has loaded its code: a busy machine takes long, and no task is at fault. */
  #loaded: Promise<unknown> = Promise.resolve();
  #isBusy = false;

  constructor({ limitMs = TASK_LIMIT_MS } = {}) {
    this.#limitMs = limitMs;
  }

  /** Starts the thread, so that the first task does not wait for it. */
  start(): Worker {
    if (this.#worker) return this.#worker;
    const worker = new Worker(new URL("./examination-thread.ts", import.meta.url), {
      name: "examination",
      resourceLimits: { maxOldGenerationSizeMb: MAX_MEMORY_MIB },
    });
    worker.on("error", () => this.#forget(worker)).unref();
    this.#worker = worker;
    this.#loaded = once(worker, "message");
    // The task that waits for it has the error, if there is one.
    this.#loaded.catch(() => {});
    return worker;
  }

  /** Runs a task when its team's turn comes. @throws {Error} when the thread does not start or fails */
  run(teamId: string, task: ExaminationTask): Promise<ExaminationAnswer> {
    return new Promise((resolve, reject) => {
      const job = { task, resolve, reject };
      const waiting = this.#jobs.get(teamId);
      if (waiting) waiting.push(job);
      else this.#jobs.set(teamId, [job]);
      if (!this.#isBusy) void this.#work();
    });
  }

  waitingChars(teamId: string): number {
    const charsOf = (task: ExaminationTask) => ("source" in task ? task.source : task.content.html).length;
    return (this.#jobs.get(teamId) ?? []).reduce((sum, { task }) => sum + charsOf(task), 0);
  }

  async #work(): Promise<void> {
    this.#isBusy = true;
    for (let job = this.#takeNext(); job; job = this.#takeNext()) {
      await this.#examine(job.task).then(job.resolve, job.reject);
    }
    this.#isBusy = false;
  }

  #takeNext(): Job | undefined {
    for (const [teamId, jobs] of this.#jobs) {
      const job = jobs.shift();
      // To the end of the line of teams.
      this.#jobs.delete(teamId);
      if (jobs.length > 0) this.#jobs.set(teamId, jobs);
      return job;
    }
    return undefined;
  }

  async #examine(task: ExaminationTask): Promise<ExaminationAnswer> {
    const worker = this.start();
    worker.ref();
    let timeout: AbortSignal | undefined;
    try {
      await this.#loaded;
      timeout = AbortSignal.timeout(this.#limitMs);
      worker.postMessage(task);
      const [answer] = await once(worker, "message", { signal: timeout });
      return answer as ExaminationAnswer;
    } catch (error) {
      this.#forget(worker);
      void worker.terminate();
      if (timeout?.aborted || (error as NodeJS.ErrnoException).code === "ERR_WORKER_OUT_OF_MEMORY") return TOO_LONG;
      throw error;
    } finally {
      worker.unref();
    }
  }

  #forget(worker: Worker): void {
    if (this.#worker === worker) this.#worker = undefined;
  }
}

const thread = new ExaminationThread();

async function run<Task extends ExaminationTask>(
  teamId: string,
  task: Task,
): Promise<ExaminationResults[Task["task"]]> {
  const answer = await thread.run(teamId, task);
  if (answer.ok) return answer.result as ExaminationResults[Task["task"]];
  if ("problem" in answer) throw new TemplateError(answer.problem);
  throw new UnsendableError(answer.unsendable);
}

export const startExaminations = (): void => void thread.start();

/** One more content of the team would wait longer than its caller. */
export const isCrowded = (teamId: string): boolean => thread.waitingChars(teamId) > MAX_WAITING_CHARS;

export async function examineContent(
  teamId: string,
  content: Record<ContentField, string>,
  fields?: readonly string[],
): Promise<ContentProblem[]> {
  try {
    return await run(teamId, { task: "check", content, fields });
  } catch (error) {
    if (error instanceof TemplateError) return [{ ...error.problem, field: "html" }];
    throw error;
  }
}

/** @throws {TemplateError | UnsendableError} when no message can be composed */
export async function assertComposable(teamId: string, content: MessageContent): Promise<void> {
  await run(teamId, { task: "compose", content });
}

/** As `prepareContent`, in the thread. @throws {TemplateError} */
export const prepareInThread = (teamId: string, content: MessageContent): Promise<PreparedContent> =>
  run(teamId, { task: "prepare", content });

/** `show`: as `showMessage`, in the thread. `examine`: what could be better in that mail. @throws {TemplateError} */
export const showInThread = <Task extends "show" | "examine">(
  teamId: string,
  task: Task,
  content: WrittenContent,
  values: MergeValues,
): Promise<ExaminationResults[Task]> => run(teamId, { task, content, values });

/** Of mails, as all people of a list may read them. */
export const titlesInThread = (teamId: string, titles: Titles): Promise<Title[]> =>
  run(teamId, { task: "titles", source: JSON.stringify(titles) });

/** As `compileBlocks`, in the thread. @throws {TemplateError} */
export const compileInThread = (teamId: string, source: BlockSource): Promise<string> =>
  run(teamId, { task: "compile", source: JSON.stringify(source) });

import { Worker } from "node:worker_threads";
import type { ExaminationAnswer, ExaminationResults, ExaminationTask } from "./examination-task.ts";
import { UnsendableError } from "./header.ts";
import type { MessageContent, PreparedContent } from "./message.ts";
import { type ContentField, type ContentProblem, TemplateError } from "./template-problem.ts";

/**
 * CPU time that a task may take, in milliseconds, before its thread is ended. The limits of templates and HTML keep every
 * task of 1 MiB below a second; this covers a case that they miss.
 */
export const EXAMINATION_CPU_MS = 2_000;
/** The clock's time that a task may take, by its CPU time: on a busy machine a short task must not be refused. */
const CLOCK_FACTOR = 5;
/** How often in its limit the CPU time of a task is looked at. */
const LOOKS = 8;
/** Memory of the thread, in MiB. */
const MAX_MEMORY_MIB = 192;
/** Most characters of one team's contents that may wait. Those that are slow to read take half a minute together. */
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

/**
 * Reads contents that clients wrote in a thread of its own, one at a time, so that the process serves others meanwhile.
 * Teams take turns: many contents of one team do not delay those of another.
 */
export class ExaminationThread {
  readonly #cpuMs: number;
  readonly #jobs = new Map<string, Job[]>();
  #worker: Worker | undefined;
  #isReady = false;
  #current: Job | undefined;
  #timers: NodeJS.Timeout[] = [];

  constructor({ cpuMs = EXAMINATION_CPU_MS } = {}) {
    this.#cpuMs = cpuMs;
  }

  /** Starts the thread, so that the first task does not wait for it. */
  start(): void {
    if (this.#worker) return;
    this.#worker = this.#start();
    this.#worker.unref();
  }

  /** Runs a task when its team's turn comes. @throws {Error} when the thread does not start or fails */
  run(teamId: string, task: ExaminationTask): Promise<ExaminationAnswer> {
    return new Promise((resolve, reject) => {
      const job = { task, resolve, reject };
      const waiting = this.#jobs.get(teamId);
      if (waiting) waiting.push(job);
      else this.#jobs.set(teamId, [job]);
      this.#next();
    });
  }

  /** Characters of the contents of a team that wait for their turn. */
  waitingChars(teamId: string): number {
    return (this.#jobs.get(teamId) ?? []).reduce((sum, { task }) => sum + task.content.html.length, 0);
  }

  #next(): void {
    if (this.#current || this.#jobs.size === 0) return;
    this.#worker ??= this.#start();
    const worker = this.#worker;
    worker.ref();
    if (!this.#isReady) return;
    const [teamId, jobs] = this.#jobs.entries().next().value ?? ["", []];
    const job = jobs.shift();
    // To the end of the line of teams.
    this.#jobs.delete(teamId);
    if (jobs.length > 0) this.#jobs.set(teamId, jobs);
    if (!job) return;
    this.#current = job;
    this.#watch(worker);
    worker.postMessage(job.task);
  }

  /** Ends the thread when its task has used up its CPU time, or five times as long by the clock. */
  #watch(worker: Worker): void {
    const job = this.#current;
    const usage = worker.cpuUsage();
    const look = async () => {
      const { user, system } = await worker.cpuUsage(await usage);
      if (this.#current === job && (user + system) / 1_000 > this.#cpuMs) this.#stop(worker);
    };
    // It is refused when the thread has ended.
    usage.catch(() => undefined);
    this.#timers = [
      setInterval(() => void look().catch(() => undefined), this.#cpuMs / LOOKS),
      setTimeout(() => this.#stop(worker), this.#cpuMs * CLOCK_FACTOR),
    ];
  }

  #start(): Worker {
    const worker = new Worker(new URL("./examination-thread.ts", import.meta.url), {
      name: "examination",
      resourceLimits: { maxOldGenerationSizeMb: MAX_MEMORY_MIB },
    });
    worker.on("message", (message: "ready" | ExaminationAnswer) => {
      if (this.#worker !== worker) return;
      if (message === "ready") this.#isReady = true;
      else this.#finish()?.resolve(message);
      if (this.#jobs.size === 0) worker.unref();
      this.#next();
    });
    worker.on("error", (error: NodeJS.ErrnoException) => {
      if (this.#worker !== worker) return;
      this.#worker = undefined;
      if (!this.#isReady) {
        // It did not start: none of those that wait would be served.
        for (const { reject } of [...this.#jobs.values()].flat()) reject(error);
        this.#jobs.clear();
      }
      this.#isReady = false;
      const job = this.#finish();
      if (error.code === "ERR_WORKER_OUT_OF_MEMORY") job?.resolve(TOO_LONG);
      else job?.reject(error);
      this.#next();
    });
    return worker;
  }

  /** Ends a thread whose task takes too long; the next task gets a new one. */
  #stop(worker: Worker): void {
    this.#worker = undefined;
    this.#isReady = false;
    void worker.terminate();
    this.#finish()?.resolve(TOO_LONG);
    this.#next();
  }

  #finish(): Job | undefined {
    for (const timer of this.#timers) clearTimeout(timer);
    const job = this.#current;
    this.#current = undefined;
    return job;
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

/** Starts the thread of this process before there is a content to read. */
export const startExaminations = (): void => thread.start();

/** Whether so many contents of a team wait that no other one should: its caller would give up before its turn. */
export const isCrowded = (teamId: string): boolean => thread.waitingChars(teamId) > MAX_WAITING_CHARS;

/** Lists the problems of a draft's templates, as `checkContent` does, in a thread of its own. */
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

/**
 * Composes messages from a content as a send would, in a thread of its own.
 * @throws {TemplateError | UnsendableError} when none can be composed
 */
export async function assertComposable(teamId: string, content: MessageContent): Promise<void> {
  await run(teamId, { task: "compose", content });
}

/**
 * As `prepareContent`, in a thread of its own.
 * @throws {TemplateError} as `prepareContent`
 */
export const prepareInThread = (teamId: string, content: MessageContent): Promise<PreparedContent> =>
  run(teamId, { task: "prepare", content });

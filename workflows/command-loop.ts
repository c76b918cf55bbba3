import { allHandlersFinished, CancellationScope, condition, TemporalFailure, workflowInfo } from "@temporalio/workflow";
import { type FailingStep, failureCodeOf, stepWaitMs } from "./steps.ts";

/** Shortest timer: clocks that differ a little must not make a loop. */
export const SHORTEST_WAIT_MS = 50;

export interface PendingCommand<Command> {
  readonly command: Command;
  /** Its answer may come later. */
  remove(): this;
  reply(answer: string): void;
  refuse(error: Error): void;
  /** Lets the command wait without blocking those behind it. */
  postpone(ms: number): void;
}

/** The handlers of updates submit commands, and one function takes them in the order in which they came. */
export class CommandLoop<Command extends { kind: string }> {
  #waiting: (PendingCommand<Command> & { dueAt: number })[] = [];
  /** Rounds of three failures, by step, since a step succeeded. */
  readonly #failedRounds = new Map<string, number>();
  failing: FailingStep | undefined;

  /** @returns the answer to the command */
  submit(command: Command): Promise<string> {
    return new Promise((resolve, reject) => {
      const remove = () => {
        this.#waiting = this.#waiting.filter((other) => other !== pending);
        return pending;
      };
      const pending = {
        command,
        dueAt: Date.now(),
        remove,
        reply: (answer: string) => {
          remove();
          resolve(answer);
        },
        refuse: (error: Error) => {
          remove();
          reject(error);
        },
        postpone: (ms: number) => {
          pending.dueAt = Date.now() + ms;
        },
      };
      this.#waiting.push(pending);
    });
  }

  next(): PendingCommand<Command> | undefined {
    return this.#waiting.find(({ dueAt }) => dueAt <= Date.now());
  }

  dueAt(kind: Command["kind"]): number | undefined {
    return this.#waiting.find(({ command }) => command.kind === kind)?.dueAt;
  }

  /** All, or those that came before one. */
  drop(kind: Command["kind"], answer: string, before?: PendingCommand<Command>): void {
    for (const pending of this.#waiting) {
      if (pending === before) return;
      if (pending.command.kind === kind) pending.reply(answer);
    }
  }

  makeAllDue(): void {
    if (this.failing) this.failing = { ...this.failing, until: 0 };
    for (const pending of this.#waiting) pending.postpone(0);
  }

  /** Takes a step. A step that fails three times becomes `failing`; its command waits as long, and blocks no other. */
  async tryStep(step: string, work: () => Promise<void>, pending?: PendingCommand<Command>): Promise<void> {
    try {
      await work();
      this.#failedRounds.clear();
      this.failing = undefined;
    } catch (error) {
      // A workflow that ends by a cancel in the UI must not show a failure.
      if (!(error instanceof TemporalFailure) || CancellationScope.current().consideredCancelled) throw error;
      const rounds = (this.#failedRounds.get(step) ?? 0) + 1;
      this.#failedRounds.set(step, rounds);
      const waitMs = stepWaitMs(rounds);
      this.failing = { step, code: failureCodeOf(error), until: Date.now() + waitMs };
      pending?.postpone(waitMs);
    }
  }

  async wait(hasChanged: () => boolean, summary: string, ms = Number.POSITIVE_INFINITY): Promise<void> {
    const isWoken = () => this.next() !== undefined || hasChanged();
    const shortest = Math.min(ms, ...this.#waiting.map(({ dueAt }) => dueAt - Date.now()));
    if (shortest === Number.POSITIVE_INFINITY) await condition(isWoken);
    else await condition(isWoken, Math.max(shortest, SHORTEST_WAIT_MS), { summary });
  }

  /** Waits until every caller has its answer. @returns false when a command came first */
  async areAllAnswered(): Promise<boolean> {
    await this.wait(allHandlersFinished, "until every caller has its answer");
    return this.next() === undefined;
  }
}

const HISTORY_EVENTS = 3_000;

export function isRunLong(): boolean {
  const { historyLength, continueAsNewSuggested } = workflowInfo();
  return historyLength >= HISTORY_EVENTS || continueAsNewSuggested;
}

/** Answers commands that were carried out before, and forgets them. */
export function answerAll(commands: PendingCommand<unknown>[], answer: string): void {
  for (const pending of commands.splice(0)) pending.reply(answer);
}

import { parentPort } from "node:worker_threads";
import { type ExaminationAnswer, type ExaminationTask, runTask } from "./examination-task.ts";
import { UnsendableError } from "./header.ts";
import { TemplateError } from "./template-problem.ts";

// The thread behind `examination.ts`: takes one task at a time and answers it.

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
parentPort?.postMessage("ready");

import { unavailable } from "./failures.ts";

/** No request waits longer than this for its answer. A confirm may wait for Temporal for a minute. */
export const DEADLINE_MS = { read: 30_000, write: 30_000, workflow: 75_000 };

/** Waits for work that has a limit of its own. The deadline is off meanwhile and starts again afterwards. */
export type PauseDeadline = <T>(wait: () => Promise<T>) => Promise<T>;

/** @throws {ApiError} `service_unavailable` when the work does not end within `deadlineMs` */
export async function beforeDeadline<T>(
  deadlineMs: number,
  work: (pauseDeadline: PauseDeadline) => Promise<T>,
): Promise<T> {
  const { promise: late, reject } = Promise.withResolvers<never>();
  const expire = () => reject(unavailable(new Error(`No answer within ${deadlineMs} ms`)));
  let timer = setTimeout(expire, deadlineMs);
  const pauseDeadline: PauseDeadline = async (wait) => {
    clearTimeout(timer);
    try {
      return await wait();
    } finally {
      timer = setTimeout(expire, deadlineMs);
    }
  };
  try {
    return await Promise.race([work(pauseDeadline), late]);
  } finally {
    clearTimeout(timer);
  }
}

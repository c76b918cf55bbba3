import { performance } from "node:perf_hooks";

/** How often a process looks how busy it is, in ms. */
const LOOK_EVERY_MS = 500;
/** A process that was busy for a larger share of that time is called busy. */
const BUSY = 0.9;

/**
 * Whether the event loop of this process had work to do in the last half second or so, also while it waited for a processor:
 * it then reads answers late.
 */
export const watchEventLoop = (): (() => boolean) =>
  watch(() => {
    const before = performance.eventLoopUtilization();
    return () => performance.eventLoopUtilization(before).utilization;
  });

/** Whether the main thread of this process used a whole processor in the last half second or so: others could do more. */
export const watchProcessor = (): (() => boolean) =>
  watch(() => {
    const before = process.threadCpuUsage();
    const beganAt = performance.now();
    return () => {
      const { user, system } = process.threadCpuUsage(before);
      return (user + system) / 1_000 / (performance.now() - beganAt);
    };
  });

/** @param begin begins to measure; what it returns gives the share of the time since that was busy */
function watch(begin: () => () => number): () => boolean {
  let busyShare = begin();
  let lookedAt = performance.now();
  let isBusy = false;
  return () => {
    if (performance.now() - lookedAt < LOOK_EVERY_MS) return isBusy;
    isBusy = busyShare() > BUSY;
    busyShare = begin();
    lookedAt = performance.now();
    return isBusy;
  };
}

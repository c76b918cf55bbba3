import { performance } from "node:perf_hooks";

/** A sample is this long, in ms. The first question after a pause gets the share of the whole pause. */
const SAMPLE_MS = 500;
/** A process that was busy for a larger share of the latest sample is called busy. */
const BUSY = 0.9;

/**
 * Samples whether the event loop of this process has work to do, also while it waits for a processor: it then reads answers
 * late.
 */
export const watchEventLoop = (): (() => boolean) =>
  sampled(() => {
    const before = performance.eventLoopUtilization();
    return () => performance.eventLoopUtilization(before).utilization;
  });

/** Samples whether the main thread of this process uses a whole processor, so that it can do no more. */
export const watchProcessor = (): (() => boolean) =>
  sampled(() => {
    const before = process.threadCpuUsage();
    const beganAt = performance.now();
    return () => {
      const { user, system } = process.threadCpuUsage(before);
      return (user + system) / 1_000 / (performance.now() - beganAt);
    };
  });

/** @param begin begins a sample, and returns a function that gives the busy share of the time since */
function sampled(begin: () => () => number): () => boolean {
  let busyShare = begin();
  let beganAt = performance.now();
  let isBusy = false;
  return () => {
    if (performance.now() - beganAt < SAMPLE_MS) return isBusy;
    isBusy = busyShare() > BUSY;
    busyShare = begin();
    beganAt = performance.now();
    return isBusy;
  };
}

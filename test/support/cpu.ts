/** Starts a clock of this thread's CPU time, which other processes of the machine do not speed up. @returns reads it, in ms */
export function cpuClock(): () => number {
  const before = process.threadCpuUsage();
  return () => {
    const { user, system } = process.threadCpuUsage(before);
    return (user + system) / 1_000;
  };
}

/** @returns the CPU time of this thread during `work`, in ms */
export function cpuMs(work: () => unknown): number {
  const readMs = cpuClock();
  work();
  return readMs();
}

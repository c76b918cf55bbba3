import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { type ProcessStat, readStat, TICKS } from "../stack/process-stat.ts";

/** CPU seconds and memory of one part of the stack. */
export interface Usage {
  cpuSeconds: number;
  /** The most resident memory, in MiB, that one process of it had since `resetPeaks`, or ever. */
  peakMiB: number;
}

function peakMiB(pid: number): number {
  try {
    const kiB = /^VmHWM:\s+(\d+) kB/m.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1];
    return Number(kiB ?? 0) / 1024;
  } catch {
    return 0;
  }
}

/** Every process that descends from one of these, those included. */
function familyOf(root: number, stats: ReadonlyMap<number, ProcessStat>): number[] {
  const family = [root];
  for (const pid of family) for (const [child, { parent }] of stats) if (parent === pid) family.push(child);
  return family;
}

function allStats(): Map<number, ProcessStat> {
  const stats = new Map<number, ProcessStat>();
  for (const name of readdirSync("/proc")) {
    const stat = /^\d+$/.test(name) ? readStat(Number(name)) : undefined;
    if (stat) stats.set(Number(name), stat);
  }
  return stats;
}

/**
 * CPU time and memory that each part of the stack has used so far, with its descendants (the backends of Postgres).
 * @param pids process id by name
 */
export function usage(pids: Record<string, number>): Record<string, Usage> {
  const stats = allStats();
  const used: Record<string, Usage> = {};
  for (const [name, pid] of Object.entries(pids)) {
    let ticks = 0;
    let peak = 0;
    for (const member of familyOf(pid, stats)) {
      const { own = 0, ended = 0 } = stats.get(member) ?? {};
      ticks += own + ended;
      peak = Math.max(peak, peakMiB(member));
    }
    used[name] = { cpuSeconds: ticks / TICKS, peakMiB: peak };
  }
  return used;
}

/** Lets the peaks of memory begin anew, from the memory that is resident now. */
export function resetPeaks(pids: Record<string, number>): void {
  const stats = allStats();
  for (const member of Object.values(pids).flatMap((pid) => familyOf(pid, stats))) {
    try {
      writeFileSync(`/proc/${member}/clear_refs`, "5"); // see proc(5)
    } catch {
      // It has ended meanwhile.
    }
  }
}

/** CPU seconds that the whole machine has spent on anything, other people's work included. */
export function machineCpuSeconds(): number {
  const [, ...fields] = (readFileSync("/proc/stat", "utf8").split("\n")[0] ?? "").split(/\s+/);
  const [user = 0, nice = 0, system = 0, , , irq = 0, softirq = 0] = fields.map(Number);
  return (user + nice + system + irq + softirq) / TICKS;
}

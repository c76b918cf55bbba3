import { constants, type PerformanceEntry, PerformanceObserver } from "node:perf_hooks";
import { getHeapStatistics, setFlagsFromString } from "node:v8";

/** An entry of type "gc"; the types of Node leave `detail` out. */
type CollectionEntry = PerformanceEntry & { detail: { kind: number } };

/** How far a heap may grow: the larger of a share and a number of bytes. */
export interface HeapGrowth {
  /** A share of the memory in use, in per cent. */
  leastPercent: number;
  /** Asked at once and after each full collection. */
  leastBytes: () => number;
}

/** Sets how far the heap of this process may grow between two full collections, in place of V8's own estimate. */
export function setHeapGrowth({ leastPercent, leastBytes }: HeapGrowth): void {
  const set = () => {
    const percent = Math.ceil((leastBytes() * 100) / getHeapStatistics().used_heap_size);
    setFlagsFromString(`--heap-growing-percent=${Math.max(leastPercent, percent)}`);
  };
  set();
  // V8 reads the flag when a full collection ends, so each one sets it for the next.
  new PerformanceObserver((collections) => {
    const kinds = (collections.getEntries() as CollectionEntry[]).map(({ detail }) => detail.kind);
    if (kinds.includes(constants.NODE_PERFORMANCE_GC_MAJOR)) set();
  }).observe({ entryTypes: ["gc"] });
}

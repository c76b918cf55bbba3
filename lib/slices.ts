import { setImmediate as others } from "node:timers/promises";

/** Maps many items, and lets the process serve others after each slice of them. */
export async function mapInSlices<Item, Result>(
  items: readonly Item[],
  slice: number,
  map: (item: Item, index: number) => Result,
): Promise<Result[]> {
  const results: Result[] = [];
  for (const [index, item] of items.entries()) {
    if (index % slice === slice - 1) await others();
    results.push(map(item, index));
  }
  return results;
}

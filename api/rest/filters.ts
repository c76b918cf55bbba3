const declared = new Set<string>();

/** Makes the filters of a list known, so that other lists can say that they do not take them. */
export function declareFilters(names: Iterable<string>): void {
  for (const name of names) declared.add(name);
}

/** Whether some list has a filter of this name. */
export const isFilter = (name: string): boolean => declared.has(name);

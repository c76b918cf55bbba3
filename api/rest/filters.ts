/*
 * The filters of all lists. Filled when the modules of the lists are loaded, so complete as soon as `api/router.ts` is: the
 * schemas of the lists cannot be read from the router here, because its procedures parse their input with `isFilter`.
 */

const declared = new Set<string>();

/** Makes the filters of a list known, so that other lists can say that they do not take them. */
export function declareFilters(names: Iterable<string>): void {
  for (const name of names) declared.add(name);
}

export const isFilter = (name: string): boolean => declared.has(name);

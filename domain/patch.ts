/** Changes to a record: a field that is undefined or left out stays as it is. */
export type Patch<T> = { [Field in keyof T]?: T[Field] | undefined };

/** Drops the fields that are undefined. */
export const changesOf = <T extends object>(patch: Patch<T>): Partial<T> =>
  Object.fromEntries(Object.entries(patch).filter(([, value]) => value !== undefined)) as Partial<T>;

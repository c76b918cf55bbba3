import type { EntityManager } from "../db/orm.ts";

/** Changes to a record: a field that is undefined or left out stays as it is. */
export type Patch<T> = { [Field in keyof T]?: T[Field] | undefined };

/** A record as it is after a patch. */
export interface Patched<T> {
  record: T;
  /** False when every given field had its value already. */
  isChanged: boolean;
}

/** Whether a flush has to write the entity. */
export function isDirty(em: EntityManager, entity: object): boolean {
  const work = em.getUnitOfWork();
  work.computeChangeSets();
  return work.getChangeSets().some((changes) => changes.entity === entity);
}

/** Drops the fields that are undefined. */
export const changesOf = <T extends object>(patch: Patch<T>): Partial<T> =>
  Object.fromEntries(Object.entries(patch).filter(([, value]) => value !== undefined)) as Partial<T>;

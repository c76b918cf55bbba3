import { type CallContext, Kept, type Refusal, refusalOf } from "../api.ts";

/** A record as an editor sees it; its fields have the names of those that are saved. */
export interface Version {
  updated_at: string;
}

/** The record of an editor. */
export interface Edited<Record extends Version = Version> {
  id: string;
  record: Record;
  read: () => Promise<{ data: Record }>;
  /** As the page has read it last, also after another save of its own. */
  shown?: (() => Record | undefined) | undefined;
}

export interface Difference {
  name: string;
  theirs: string;
  yours: string;
}
export type Choice = "theirs" | "yours" | undefined;
type LastEdit = NonNullable<Refusal["edited"]>;

/**
 * Saves fields at the version that the member began with. Once others have changed them, the member decides between the two.
 * @param body the fields @param write the call of the service; it replaces `now`, which others may have changed in other fields
 * @throws {Kept} also a refusal, also when the member decides nothing
 */
export type SaveFrom = <Answer>(
  began: Version,
  body: object,
  write: (options: { context: CallContext }, now: Version) => Promise<Answer>,
) => Promise<Answer>;

const textOf = (value: unknown = "") =>
  typeof value === "string" ? value : value === null ? "" : JSON.stringify(value, null, 2);

/** The fields that the other one has changed, and not to what is saved now. */
function differencesOf(began: Version, now: Version, body: object, by: string | null): Difference[] {
  const texts = (of: object, name: string) => textOf((of as Record<string, unknown>)[name]);
  return Object.keys(body).flatMap((name) => {
    const [theirs, yours] = [texts(now, name), texts(body, name)];
    // A member may have changed what no record shows, as a password; the service itself changes none of it.
    if (!(name in now))
      return by === null ? [] : [{ name: name.replaceAll("_", " "), theirs: "(not shown)", yours: "(not shown)" }];
    if (theirs === texts(began, name) || theirs === yours) return [];
    return [{ name: name.replaceAll("_", " "), theirs, yours }];
  });
}

/** @param of without it no version is compared @param ask for the member's decision */
export const saverOf =
  (
    of: Omit<Edited, "record"> | undefined,
    ask: (edited: LastEdit, differences: readonly Difference[]) => Promise<Choice>,
  ): SaveFrom =>
  async (began, body, write) => {
    if (!of) return write({ context: {} }, began);
    const shown = of.shown?.();
    const isSame = shown && differencesOf(began, shown, body, null).length === 0;
    for (let seen = isSame ? shown : began; ; ) {
      try {
        return await write({ context: { began: { id: of.id, updated_at: seen.updated_at } } }, seen);
      } catch (refused) {
        const { edited } = refusalOf(refused);
        if (!edited) throw refused;
        const { data: now } = await of.read();
        const differences = differencesOf(seen, now, body, edited.by);
        // The change may be one of other fields, or of none that an editor sees.
        if (differences.length > 0) {
          const choice = await ask(edited, differences);
          if (choice === undefined) throw refused;
          if (choice === "theirs") throw new Kept();
        }
        seen = now;
      }
    }
  };

/** A line of a file that an import did not take. */
export interface RefusedLine {
  line: number;
  /** To look it up by; null without one, and once it is erased. */
  address: string | null;
  reason: string;
  /** As the file has them, for a file to mend; absent beyond a size, and once a person in them is erased. */
  cells?: string[] | undefined;
}

/** All that a line may name a person by. */
export const textOf = (line: RefusedLine): string => Object.values(line).flat().join("\n");

/** A reason may quote a cell. */
export const withoutPerson = ({ line, reason }: RefusedLine): RefusedLine => ({
  ...{ line, address: null },
  reason: reason.replace(/".*"/s, '"…"'),
});

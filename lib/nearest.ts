const lettersOf = (word: string): string => word.toLowerCase().replace(/[^\p{L}\p{N}]/gu, "");
const lastPart = (path: string): string => path.slice(path.lastIndexOf(".") + 1);

const MAX_CHARS = 40;

/**
 * The one of `candidates` that a misspelt word means: with at most two letters wrong, or one in a short word, or as the only
 * one that begins with the word. Case, blanks, signs and what stands before a dot do not count.
 */
export function nearestWord(word: string, candidates: readonly string[]): string | undefined {
  if (word.length > MAX_CHARS) return undefined;
  const spellings = [word, lastPart(word)].map(lettersOf);
  const ranked = candidates
    .map((candidate) => {
      const names = [candidate, lastPart(candidate)].map(lettersOf);
      return { candidate, wrong: Math.min(...spellings.flatMap((one) => names.map((name) => distance(one, name)))) };
    })
    .toSorted((a, b) => a.wrong - b.wrong);
  const [best] = ranked;
  const [letters = ""] = spellings;
  if (best && best.wrong <= Math.min(2, Math.floor(letters.length / 3))) return best.candidate;
  const longer = letters.length > 2 ? candidates.filter((candidate) => lettersOf(candidate).startsWith(letters)) : [];
  return longer.length === 1 ? longer[0] : undefined;
}

/** Letters to add, to leave out or to change. */
function distance(one: string, other: string): number {
  if (Math.abs(one.length - other.length) > 2) return Number.POSITIVE_INFINITY;
  let row = Array.from({ length: other.length + 1 }, (_, i) => i);
  for (const [i, letter] of [...one].entries()) {
    const next = [i + 1];
    for (const [j, otherLetter] of [...other].entries()) {
      const changed = (row[j] ?? 0) + (letter === otherLetter ? 0 : 1);
      next.push(Math.min(changed, (row[j + 1] ?? 0) + 1, (next[j] ?? 0) + 1));
    }
    row = next;
  }
  return row.at(-1) ?? 0;
}

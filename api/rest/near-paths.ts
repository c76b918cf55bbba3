/** A longer path is compared with none: the comparison takes time with the product of two lengths. */
const MAX_LENGTH = 100;
const MAX_NAMED = 3;
/** Two paths are near when at most this share of the longer one's characters must change. */
const MAX_CHANGED_SHARE = 0.4;
/** What stands before an endpoint's path. A common mistake is another version there, or none. */
const PREFIX = /^(?:\/api)?(?:\/v\d+)?(?=\/)/;

const ANY = "{}";
const isParam = (segment: string | undefined): boolean => segment?.startsWith("{") === true;

/** How many characters must be inserted, deleted or replaced to make one text the other: Levenshtein's distance. */
function distance(from: string, to: string): number {
  // Distances from the text so far to each beginning of the other text.
  let row = Array.from({ length: to.length + 1 }, (_, i) => i);
  for (let i = 1; i <= from.length; i++) {
    const next = [i];
    for (let j = 1; j <= to.length; j++) {
      const replaced = (row[j - 1] ?? 0) + (from[i - 1] === to[j - 1] ? 0 : 1);
      next.push(Math.min(replaced, (row[j] ?? 0) + 1, (next[j - 1] ?? 0) + 1));
    }
    row = next;
  }
  return row[to.length] ?? 0;
}

/**
 * Finds the endpoints' paths that are near one that none has.
 * @param paths those of the endpoints, parameters in braces
 * @returns a function that gives at most three paths, the nearest first
 */
export function nearPathsAmong(paths: readonly string[]): (asked: string) => string[] {
  const known = [...new Set(paths)].map((path) => ({ path, segments: path.split("/") }));
  return (asked) => {
    if (asked.length > MAX_LENGTH) return [];
    const given = asked.replace(PREFIX, "").split("/");
    const near: { path: string; apart: number }[] = [];
    for (const { path, segments } of known) {
      // A parameter may be anything: the segment in its place counts as equal.
      const there = segments.map((segment) => (isParam(segment) ? ANY : segment)).join("/");
      const here = given.map((segment, i) => (isParam(segments[i]) ? ANY : segment)).join("/");
      const most = MAX_CHANGED_SHARE * Math.max(here.length, there.length);
      if (Math.abs(here.length - there.length) > most) continue;
      const apart = distance(here, there);
      if (apart <= most) near.push({ path, apart });
    }
    return near
      .sort((a, b) => a.apart - b.apart)
      .slice(0, MAX_NAMED)
      .map(({ path }) => path);
  };
}

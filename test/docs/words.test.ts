import assert from "node:assert/strict";
import { globSync, readFileSync } from "node:fs";
import { join } from "node:path";

const ROOT = join(import.meta.dirname, "../..");

/** A place at which a word of the left column is allowed. */
interface Exception {
  word: string;
  /** A file, or a folder with its last slash */
  path: string;
  /** The line holds this text; without it, every line of the path may */
  text?: string;
  reason: string;
}

const EXCEPTIONS: Exception[] = [
  { word: "healthy", path: "docker-compose.temporal.yml", text: "service_healthy", reason: "the word of Compose" },
  { word: "healthy", path: "test/deploy/compose.test.ts", text: "service_healthy", reason: "the word of Compose" },
  { word: "is over", path: "test/reports/programs.ts", text: "quota", reason: "the words of mail programs" },
  { word: "is over", path: "test/mail/smtp-answer.test.ts", text: "is over", reason: "the words of mail servers" },
];

const FILES = ["**/*.{ts,mjs,cjs,md,sh}", "deploy/**/*.{yml,yaml,json}", "*.yml"];

const isOther = (name: string): boolean => name === "node_modules" || name.startsWith(".");

/** The words in backticks in the first column of the table under "Words". */
function forbiddenWords(contributing: string): string[] {
  const [, section = ""] = /^## Words$(.*?)^## /ms.exec(contributing) ?? [];
  const firstCells = section.split("\n").flatMap((line) => /^\|([^|]*)\|/.exec(line)?.[1] ?? []);
  return firstCells.flatMap((cell) => [...cell.matchAll(/`([^`]+)`/g)].map(([, word = ""]) => word));
}

/** Matches a word and its usual endings: wish, wishes; story, stories; judge, judged; climb, climbing. */
function patternOf(word: string): RegExp {
  if (word.includes(" ")) return new RegExp(`\\b${word}\\b`, "i");
  if (word.endsWith("y")) return new RegExp(`\\b${word.slice(0, -1)}(y|ies)\\b`, "i");
  if (word.endsWith("e")) return new RegExp(`\\b${word.slice(0, -1)}(e|es|ed|ing)\\b`, "i");
  return new RegExp(`\\b${word}(s|es|ed|ing)?\\b`, "i");
}

/** Takes names apart, so that `isStranger` and `given_up` hold words too. */
const inWords = (line: string): string => line.replace(/([a-z0-9])([A-Z])/g, "$1 $2").replaceAll("_", " ");

const isExcepted = (word: string, path: string, line: string): boolean =>
  EXCEPTIONS.some(
    (each) =>
      each.word === word &&
      (each.path.endsWith("/") ? path.startsWith(each.path) : path === each.path) &&
      line.includes(each.text ?? ""),
  );

/** Every use of a forbidden word in a text, each as "path:line: word". */
function usesIn(path: string, text: string, patterns: ReadonlyMap<string, RegExp>): string[] {
  const any = new RegExp([...patterns.values()].map(({ source }) => source).join("|"), "i");
  return text.split("\n").flatMap((line, index) => {
    const words = inWords(line);
    // Most lines hold none: one search is quicker than one for each word.
    if (!any.test(words)) return [];
    return [...patterns]
      .filter(([word, pattern]) => pattern.test(words) && !isExcepted(word, path, line))
      .map(([word]) => `${path}:${index + 1}: ${word}`);
  });
}

describe("The words of the project", () => {
  const contributing = readFileSync(join(ROOT, "CONTRIBUTING.md"), "utf8");
  const patterns = new Map(forbiddenWords(contributing).map((word) => [word, patternOf(word)]));

  it("are listed in CONTRIBUTING.md", () => {
    assert.ok(patterns.size >= 20, `${patterns.size} words`);
  });

  it("are used in every file of the tree instead of those that the table replaces", () => {
    const paths = FILES.flatMap((pattern) => globSync(pattern, { cwd: ROOT, exclude: isOther }));
    assert.ok(paths.length > 300, `${paths.length} files`);
    const own = new Set(["CONTRIBUTING.md", "test/docs/words.test.ts"]);
    const uses = paths
      .filter((path) => !own.has(path))
      .sort()
      .flatMap((path) => usesIn(path, readFileSync(join(ROOT, path), "utf8"), patterns));
    assert.deepEqual(uses, []);
  });
});

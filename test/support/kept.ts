import { createHash } from "node:crypto";
import { globSync, mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";

const ROOT = join(import.meta.dirname, "../..");
const DIGESTS = join(import.meta.dirname, "../release/kept.json");
/** Databases and running workflows remember them: no later version changes them. */
const KEPT = ["db/migrations/*.ts", "test/histories/*/*.json"];

/** SHA-256 in hex, by path. */
type Digests = Record<string, string>;

const digestOf = (path: string): string =>
  createHash("sha256")
    .update(readFileSync(join(ROOT, path)))
    .digest("hex");

export const currentDigests = (): Digests =>
  Object.fromEntries(
    globSync(KEPT, { cwd: ROOT })
      .sort()
      .map((path) => [path, digestOf(path)]),
  );

/** Of the files of all releases. */
export const releasedDigests = (): Digests => JSON.parse(readFileSync(DIGESTS, "utf8"));

/** The paths of files of a release that have changed or are gone. */
export const changedFiles = (released: Digests, current: Digests): string[] =>
  Object.keys(released).filter((path) => current[path] !== released[path]);

/** Puts the histories that no release has yet into a folder of this one, and writes down what later versions keep. */
export function keepFiles(version: string): void {
  const folder = join(ROOT, "test/histories", version);
  const recorded = globSync("test/histories/*.json", { cwd: ROOT });
  if (recorded.length > 0) mkdirSync(folder, { recursive: true });
  for (const path of recorded) renameSync(join(ROOT, path), join(folder, basename(path)));
  writeFileSync(DIGESTS, `${JSON.stringify(currentDigests(), null, 2)}\n`);
}

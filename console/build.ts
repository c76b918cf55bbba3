/** Builds the console, once per version: `npm run console`. */
import { createHash } from "node:crypto";
import { existsSync, globSync, readdirSync, readFileSync } from "node:fs";
import { rename, rm, writeFile } from "node:fs/promises";
import { resolve } from "node:path";
import { gzipSync } from "node:zlib";

const ROOT = resolve(import.meta.dirname, "..");
/** Where the API process finds it. */
const FOLDER = `${ROOT}/built/console`;

/** The files of the service that it imports. */
export const OF_OTHERS = [
  "lib/mail-link.ts",
  "lib/mail-style.ts",
  "lib/merge-tags.ts",
  "lib/subject.ts",
  "api/rest/messages.ts",
  "domain/audience/rules.ts",
];

function fingerprint(): string {
  const hash = createHash("sha256").update(readFileSync(`${ROOT}/package-lock.json`));
  for (const name of globSync(["console/**/*.{ts,tsx,css,html}", ...OF_OTHERS], { cwd: ROOT }).sort()) {
    hash.update(name).update(readFileSync(`${ROOT}/${name}`));
  }
  return hash.digest("hex");
}

/** Puts it in place by a rename: an API process may be reading the one before. */
export async function buildConsole(): Promise<void> {
  const version = fingerprint();
  const stamp = `${FOLDER}/version`;
  if (existsSync(stamp) && readFileSync(stamp, "utf8") === version) return;
  const [{ build }, { default: react }] = await Promise.all([import("vite"), import("@vitejs/plugin-react")]);
  const own = `${FOLDER}.${process.pid}`;
  await build({
    configFile: false,
    logLevel: "warn",
    root: import.meta.dirname,
    base: "/console/",
    plugins: [react()],
    build: {
      ...{ outDir: own, emptyOutDir: true, assetsInlineLimit: 0, modulePreload: { polyfill: false } },
      // A test adds up what each page loads. The editors are larger than the limit that Vite warns of.
      ...{ manifest: true, chunkSizeWarningLimit: 1_000 },
    },
  });
  for (const name of readdirSync(`${own}/assets`)) {
    const file = `${own}/assets/${name}`;
    await writeFile(`${file}.gz`, gzipSync(readFileSync(file), { level: 9 }));
  }
  await writeFile(`${own}/version`, version);
  await rm(FOLDER, { recursive: true, force: true });
  await rename(own, FOLDER);
}

if (import.meta.main) await buildConsole();

/** `npm run settings`. It stands in `test/` because it joins files of `config/`, `stack/` and `workers/`. */
import { readFileSync, writeFileSync } from "node:fs";
import { join, relative } from "node:path";
import type { z } from "zod";
import { settings } from "../../config/env.ts";
import { stackSettings } from "../../stack/settings.ts";
import { DEFAULT_ACTIVITIES, POOLS, type PoolDefinition } from "../../workers/pools.ts";

const ROOT = join(import.meta.dirname, "../..");

export const SETTINGS_PAGE = join(ROOT, "docs/operations/settings.md");

function purposesIn(path: string): Map<string, string> {
  const source = readFileSync(join(ROOT, path), "utf8");
  const comments = source.matchAll(/^ {2}\/\*\*((?:(?!\*\/)[\s\S])*)\*\/\n(?: {2}\/\/.*\n)*? {2}([A-Z][A-Z0-9_]*):/gm);
  return new Map(
    [...comments].map(([, comment = "", name = ""]) => [name, comment.replaceAll(/\s*\n\s*\*?/g, "").trim()]),
  );
}

function defaultOf(setting: z.ZodType): string {
  const { success, data } = setting.safeParse(undefined);
  if (!success) return "required";
  const text = [data ?? ""].flat().join(",");
  return text === "" ? "" : `\`${text}\``;
}

function tableOf(path: string, shape: Record<string, z.ZodType>, defaults: Record<string, string> = {}): string {
  const purposes = purposesIn(path);
  const rows = Object.entries(shape).map(([name, each]) => {
    const purpose = purposes.get(name);
    if (!purpose) throw new Error(`${path} does not say what ${name} is for`);
    return `| \`${name}\` | ${defaults[name] ?? defaultOf(each)} | ${purpose.replaceAll("|", "\\|")} |`;
  });
  return ["| setting | default | |", "| --- | --- | --- |", ...rows].join("\n");
}

export function settingsPage(): string {
  const ofPools = Object.entries<PoolDefinition>(POOLS).flatMap(([pool, { activities }]) =>
    activities === undefined ? [] : [`${pool} \`${activities}\``],
  );
  const ACTIVITY_CONCURRENCY = [`\`${DEFAULT_ACTIVITIES}\``, ...ofPools].join("; ");
  const DATA_DIR = `\`${relative(process.cwd(), stackSettings.shape.DATA_DIR.parse(undefined))}\``;
  return `<!-- Written by \`npm run settings\` from config/env.ts and stack/settings.ts: change the comments there. -->

# Settings

Every process reads them from its environment. It refuses to start on a wrong one and names it; an empty one counts as not set.
[Which process needs which secret](deploy.md#processes).

${tableOf("config/env.ts", settings.shape, { ACTIVITY_CONCURRENCY })}

\`npm start\` fills in the required ones, and has these of its own; port 0 takes a free one:

${tableOf("stack/settings.ts", stackSettings.shape, { DATA_DIR })}
`;
}

if (import.meta.main) writeFileSync(SETTINGS_PAGE, settingsPage());

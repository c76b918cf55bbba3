/** `npm run settings`. It stands in `test/` because it joins files of `config/`, `stack/` and `workers/`. */
import { readFileSync, writeFileSync } from "node:fs";
import { join, relative } from "node:path";
import { SETTINGS_FACTS, type SettingFacts } from "../../config/env.ts";
import { STACK_SETTINGS_FACTS } from "../../stack/settings.ts";
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

function defaultOf({ required, defaultText }: SettingFacts): string {
  if (required) return "required";
  return defaultText === undefined ? "" : `\`${defaultText}\``;
}

function tableOf(path: string, facts: Record<string, SettingFacts>, defaults: Record<string, string> = {}): string {
  const purposes = purposesIn(path);
  const rows = Object.entries(facts).map(([name, each]) => {
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
  const DATA_DIR = `\`${relative(process.cwd(), STACK_SETTINGS_FACTS.DATA_DIR.defaultText ?? "")}\``;
  return `<!-- Written by \`npm run settings\` from config/env.ts and stack/settings.ts: change the comments there. -->

# Settings

Every process reads them from its environment. It refuses to start on a wrong one and names it; an empty one counts as not set.
[Which process needs which secret](deploy.md#processes).

${tableOf("config/env.ts", SETTINGS_FACTS, { ACTIVITY_CONCURRENCY })}

\`npm start\` fills in the required ones, and has these of its own; port 0 takes a free one:

${tableOf("stack/settings.ts", STACK_SETTINGS_FACTS, { DATA_DIR })}
`;
}

if (import.meta.main) writeFileSync(SETTINGS_PAGE, settingsPage());

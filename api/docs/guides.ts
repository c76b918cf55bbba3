import { readFileSync } from "node:fs";
import { Liquid } from "liquidjs";
import { durationText, numberText, sizeText } from "../units.ts";
import { ASSETS } from "./assets.ts";
import type { Facts } from "./facts.ts";
import { renderMarkdown } from "./markdown.ts";

/** A guide: a Markdown file of the folder `guides` that takes facts as Liquid's `{{ … }}`. */
export interface Guide {
  path: string;
  title: string;
  file: string;
}

const guide = (name: string, title: string, path = `/docs/${name}`): Guide => ({
  path,
  title,
  file: `${import.meta.dirname}/guides/${name}.md`,
});

/** Around the interactive reference, which is made in the browser from `/openapi.json`. */
export const REFERENCE = guide("reference", "API reference", "/docs");

export const GUIDES: readonly Guide[] = [
  guide("getting-started", "Getting started"),
  guide("console", "The console"),
  guide("authentication", "Authentication"),
  guide("audience", "Your audience"),
  guide("forms", "Sign-up forms"),
  guide("sending", "Sending safely"),
  guide("merge-tags", "Merge tags"),
  guide("campaign", "A campaign"),
  guide("sequences", "A welcome series"),
  guide("providers", "Reports by providers"),
  guide("idempotency", "Idempotency and retries"),
  guide("pagination", "Pagination and sync"),
  guide("webhooks", "Webhooks"),
  guide("assistants", "Assistants (MCP)"),
  guide("errors", "Errors"),
  guide("limits", "Limits"),
  guide("versioning", "Versioning"),
  guide("changelog", "Changelog"),
];

/** A fact that a guide misspells is an error, never an empty place. */
const liquid = new Liquid({ strictVariables: true, strictFilters: true });
liquid.registerFilter("duration", durationText);
liquid.registerFilter("size", sizeText);
liquid.registerFilter("number", numberText);

const PAGE = readFileSync(`${import.meta.dirname}/page.liquid`, "utf8");

/** @throws {Error} for a guide that names a fact or a filter that does not exist */
export const markdownOf = ({ file }: Guide, facts: Facts): string =>
  liquid.parseAndRenderSync(readFileSync(file, "utf8"), { ...facts, assets: ASSETS });

/** Every guide in one Markdown text, for assistants: see llmstxt.org. */
export const LLMS_PATH = "/llms.txt";

export const guidesAsMarkdown = (facts: Facts): string =>
  [
    `# Mailkeel\n\n> An email marketing service. API: ${facts.base}. OpenAPI document: ${facts.origin}/openapi.json. MCP server: ${facts.base}/mcp.\n`,
    ...GUIDES.map((guide) => markdownOf(guide, facts)),
  ].join("\n");

export function renderGuide(guide: Guide, facts: Facts): string {
  const { html, sections } = renderMarkdown(markdownOf(guide, facts));
  const { path, title } = guide;
  const [heading = "", content = ""] = html.split(/(?<=<\/h1>\n)/);
  const pages = [REFERENCE, ...GUIDES];
  return liquid.parseAndRenderSync(PAGE, { path, title, pages, heading, sections, content, assets: ASSETS });
}

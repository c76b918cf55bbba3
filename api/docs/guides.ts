import { readFileSync } from "node:fs";
import { Liquid } from "liquidjs";
import { durationText, numberText, sizeText } from "../units.ts";
import type { Facts } from "./facts.ts";
import type { PageEntry } from "./layout.ts";
import { type Rendered, renderMarkdown } from "./markdown.ts";

/** A guide: a Markdown file of the folder `guides` that takes facts as Liquid's `{{ … }}`. */
export interface Guide extends PageEntry {
  file: string;
}

const guide = (name: string, title: string): Guide => ({
  path: `/docs/${name}`,
  title,
  file: `${import.meta.dirname}/guides/${name}.md`,
});

export const GUIDES: readonly Guide[] = [
  guide("getting-started", "Getting started"),
  guide("authentication", "Authentication"),
  guide("audience", "Your audience"),
  guide("sending", "Sending safely"),
  guide("campaign", "A campaign"),
  guide("idempotency", "Idempotency and retries"),
  guide("pagination", "Pagination and sync"),
  guide("webhooks", "Webhooks"),
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

/** @throws {Error} for a guide that names a fact or a filter that does not exist */
export function renderGuide({ file }: Guide, facts: Facts): Rendered {
  return renderMarkdown(liquid.parseAndRenderSync(readFileSync(file, "utf8"), facts));
}

import { readFileSync } from "node:fs";
import { z } from "zod";
import { blockDocument } from "../blocks/schema.ts";

const ownTemplate = z.strictObject({
  name: z.string(),
  description: z.string(),
  subject: z.string(),
  preheader: z.string(),
  blocks: blockDocument,
});
export type OwnTemplate = z.infer<typeof ownTemplate>;

const NAMES = ["letter", "articles", "announcement", "invitation", "digest", "welcome"];

const read = (name: string) =>
  ownTemplate.parse(JSON.parse(readFileSync(new URL(`${name}.json`, import.meta.url), "utf8")));

/** The service's templates by their ids. They state no colours, so each mail has those of its team. */
export const OWN_TEMPLATES: ReadonlyMap<string, OwnTemplate> = new Map(NAMES.map((name) => [name, read(name)]));

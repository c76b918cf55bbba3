import { readFileSync } from "node:fs";
import { z } from "zod";
import { blockDocument } from "../blocks/schema.ts";

const text = z.string();
const ownTemplate = z.strictObject({
  ...{ name: text, description: text, subject: text, preheader: text },
  blocks: blockDocument,
});

/** The service's templates by their ids. They state no colours, so each mail has those of its team. */
export const OWN_TEMPLATES = new Map(
  ["letter", "articles", "announcement", "invitation", "digest", "welcome"].map((id) => {
    const file = new URL(`${id}.json`, import.meta.url);
    return [id, ownTemplate.parse(JSON.parse(readFileSync(file, "utf8")))] as const;
  }),
);

/** A draft without any text. */
export const BLANK = { blocks: blockDocument.parse({ type: "doc", content: [{ type: "paragraph" }] }) };

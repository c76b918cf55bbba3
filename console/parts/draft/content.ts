/** The content of a mail as its editor changes and saves it. */

import { withoutGreeting } from "../../../lib/subject.ts";
import type { CallContext } from "../../api.ts";
import type { SaveFrom } from "../save-from.ts";
import { linesOfText } from "./blocks/text.ts";

/** A draft, or a step with its sequence's id and the version of all steps. */
export interface Written {
  id: string;
  updated_at: string;
  is_of_old_brand: boolean;
}

/** The fields of every mail that its editor changes, and some of its own kind; "" for none. */
export const TEXTS = ["subject", "preheader", "body", "blocks"] as const;
export type Content = Record<(typeof TEXTS)[number], string> & Record<string, string>;

/** Where an editor reads and saves. */
export interface Place {
  /** Below the workspace's: where `read` is cached. */
  queryKey: readonly string[];
  /** Fields beside `TEXTS`. */
  fields: readonly string[];
  /** Else only by a press on Save. */
  isAutosaved: boolean;
  read: () => Promise<{ data: Written & { blocks: string; body: string | null } }>;
  /** @param content with the changes */
  write: (changes: Partial<Content>, content: Content, options: { context: CallContext }) => Promise<Partial<Written>>;
}

/** Of neither kind is a new draft; it begins as blocks. */
export const isHtml = ({ blocks, body }: Content) => blocks === "" && body !== "";

/** A subject as lists show it: without its greeting, and a merge tag as its fallback, or as the name of its field. */
export const plainSubject = (subject: string): string =>
  withoutGreeting(subject)
    .replace(/\{%.*?%\}/gs, "")
    .replace(/\{\{-?\s*(?:fields\.)?(\w*)(.*?)\}\}/gs, (_tag, name: string, filters: string) => {
      const [, , fallback] = /\bdefault:\s*(["'])(.*?)\1/s.exec(filters) ?? [];
      return fallback ?? name.replaceAll("_", " ");
    });

/** "" for none. */
export const contentOf = (draft: object, fields: readonly string[]) =>
  Object.fromEntries([...TEXTS, ...fields].map((name) => [name, (draft as Content)[name] ?? ""])) as Content;

/** The edits that differ from a content. */
export const changesFrom = (content: Content, edits: Partial<Content>): Partial<Content> =>
  Object.fromEntries(Object.entries(edits).filter(([name, value]) => value !== content[name]));

/** The fields of a save; blocks by their lines, which a member can compare. */
const shownFields = ({ blocks, ...fields }: Partial<Content>) => ({
  ...Object.fromEntries(Object.entries(fields).map(([name, value]) => [name, value || null])),
  ...(blocks !== undefined && { text: linesOfText(blocks) }),
});

/** Saves edits, with all other content as it is in the version that they replace. */
export const saveEdits = (
  saveFrom: SaveFrom,
  { fields, write }: Pick<Place, "fields" | "write">,
  began: Written,
  edits: Partial<Content>,
) =>
  saveFrom({ ...began, ...shownFields(contentOf(began, fields)) }, shownFields(edits), async (options, now) => {
    const content = { ...contentOf(now, fields), ...edits } as Content;
    return { ...content, ...(await write(edits, content, options)) };
  });

/** Documents of blocks as texts; without the editor's code, which only a draft loads. */
import type { JSONContent } from "@tiptap/core";
import { linkProblem as problemOf, URL_TAG } from "../../../../lib/mail-link.ts";
import { capitalized } from "../../../api.ts";

type Values = Readonly<Record<string, unknown>>;

/** Of blocks that have values. */
export const NAMES: Readonly<Record<string, string>> = {
  image: "Image",
  button: "Button",
  spacer: "Space",
  html: "HTML",
  columns: "Columns",
  mergeTag: "Merge tag",
  socialLinks: "Social links",
};
const VALUES: Readonly<Record<string, string>> = { href: "link", src: "address", alt: "text", label: "text" };

/** The document of a new draft, as `blocksText` writes it. */
export const EMPTY = '{"content":[{"type":"paragraph"}],"type":"doc"}';

/** A merge tag as the service reads it. */
export const tagText = ({ name, fallback }: Values) => `{{ ${name}${fallback ? ` | default: "${fallback}"` : ""} }}`;

const TAG_NAMES: Readonly<Record<string, string>> = {
  email: "Email address",
  unsubscribe_url: "Link to unsubscribe",
  tracking_url: "Link to the choice of tracking",
  web_url: "Link to the web version",
};
/** A merge tag as people call it. */
export const tagName = (name: string): string =>
  TAG_NAMES[name] ?? capitalized(name.replace(/^fields\./, "").replaceAll("_", " "));
/** By the tags, those of which a person may lack a value first. */
export const tagNames = (tags: readonly string[]): Record<string, string> =>
  Object.fromEntries(
    tags.toSorted((a, b) => Number(needsFallback(b)) - Number(needsFallback(a))).map((tag) => [tag, tagName(tag)]),
  );

/** Whether a person may lack its value. */
export const needsFallback = (name: string): boolean => /^(first_name|last_name|fields\..*)$/.test(name);

/** The merge tags that are a whole link, as the service reads them. */
export const linkTags = (tags: readonly string[]): string[] =>
  tags.map((name) => tagText({ name })).filter((text) => URL_TAG.test(text));

/** The link that a writer means by an address. */
export function linkOf(typed: string): string {
  const text = typed.trim();
  if (/^[^\s@:/]+@[\w-]+(\.[\w-]+)+$/.test(text)) return `mailto:${text}`;
  return /^[\w-]+(\.[\w-]+)+([/?#]|$)/.test(text) ? `https://${text}` : text;
}

/** Why the service would refuse a link; undefined for one that it takes, and for none. */
export function linkProblem(href: string): string | undefined {
  const problem = href && problemOf(href);
  return problem ? `The link ${problem}.` : undefined;
}

/** As one text for one document: in the order of the names, and without attributes and contents that say nothing. */
export const blocksText = (document: unknown): string =>
  JSON.stringify(document, (_, value) => {
    if (value === null || typeof value !== "object" || Array.isArray(value)) return value;
    const said = Object.entries(value).filter(
      ([name, one]) => !(name === "attrs" || name === "content" ? isEmpty : isNone)(one),
    );
    return Object.fromEntries(said.sort(([a], [b]) => (a < b ? -1 : 1)));
  });

const isNone = (value: unknown) => value === null || value === undefined;
const isEmpty = (value: unknown) => isNone(value) || Object.values(value as object).every(isNone);

/** The lines of a document, to be compared. */
export function linesOf({ type, text, attrs = {}, content = [], marks = [] }: JSONContent): string {
  const inner = content.map(linesOf).join(/paragraph|heading/.test(type ?? "") ? "" : "\n");
  const { href } = marks.find(({ type: name }) => name === "link")?.attrs ?? {};
  if (type === "text") return href ? `${text} <${href}>` : (text ?? "");
  if (type === "mergeTag") return tagText(attrs);
  if (type === "hardBreak") return "\n";
  if (type === "heading") return `${"#".repeat(attrs["level"])} ${inner}`;
  if (type === "listItem") return `- ${inner}`;
  if (content.length > 0 || type === "paragraph") return inner;
  const values = Object.values(attrs).filter((value) => value != null);
  return `[${[type, ...values.map((value) => (typeof value === "object" ? JSON.stringify(value) : value))].join(" ")}]`;
}

/** @param blocks as `blocksText` writes them, or "" */
export const linesOfText = (blocks: string): string => (blocks ? linesOf(JSON.parse(blocks)) : "");

const PLACEHOLDER = /\[\p{L}[^[\]\n]{2,200}\]/u;
/** Whether a node has the weakness that the service warns of. */
const WEAK: Readonly<Record<string, (node: JSONContent) => boolean>> = {
  placeholder: ({ text = "" }) => PLACEHOLDER.test(text),
  empty_link: ({ type, attrs }) => type === "button" && !attrs?.["href"],
  empty_image: ({ type, attrs }) => type === "image" && !attrs?.["src"],
  image_without_text: ({ type, attrs }) => type === "image" && Boolean(attrs?.["src"]) && !attrs?.["alt"]?.trim(),
};

/** The paths to all of its nodes of which something is true. */
const pathsTo = (node: JSONContent, isIt: (node: JSONContent) => boolean): number[][] =>
  isIt(node)
    ? [[]]
    : (node.content ?? []).flatMap((child, index) => pathsTo(child, isIt).map((path) => [index, ...path]));

/** Where a draft has a weakness: the paths to its nodes, an empty one to its subject. @param kind or the address of a broken link */
export function weakPlaces(kind: string, { subject, blocks }: { subject: string | null; blocks: string }): number[][] {
  const isIt =
    WEAK[kind] ??
    (({ attrs, marks = [] }) => [attrs, ...marks.map((mark) => mark.attrs)].some((at) => at?.["href"] === kind));
  const isOfSubject = kind === "long_subject" || (kind === "placeholder" && PLACEHOLDER.test(subject ?? ""));
  return [...(isOfSubject ? [[]] : []), ...(blocks ? pathsTo(JSON.parse(blocks), isIt) : [])];
}

/** A place in a document, by the index of each node on the way to it, and what stands there. */
export interface RefusedPlace {
  path: readonly number[];
  words: string;
}

/** Where a refusal's `…blocks.content[0].attrs.href` is. @param blocks as `blocksText` writes them */
export function refusedPlace(blocks: string, param = ""): RefusedPlace | undefined {
  const [, places = "", key = ""] = /\bblocks((?:\.content\[\d+\])+).*?(\w*)$/.exec(param) ?? [];
  const path = [...places.matchAll(/\d+/g)].map(Number);
  let node: JSONContent | undefined = path.length > 0 && blocks !== "" ? JSON.parse(blocks) : undefined;
  for (const index of path) node = node?.content?.[index];
  if (!node) return undefined;
  const name = NAMES[node.type ?? ""]?.replace(/^[A-Z](?=[a-z])/, (letter) => letter.toLowerCase()) ?? "text";
  const shown = node.text ?? node.attrs?.["label"] ?? node.attrs?.["alt"];
  return { path, words: `The ${VALUES[key] ?? key} of the ${name}${shown ? ` “${shown}”` : ""}` };
}

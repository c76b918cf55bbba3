import { type AnyExtension, Extension, getSchema, InputRule, Node, nodePasteRule, PasteRule } from "@tiptap/core";
import { type DOMOutputSpec, type Node as PageNode, DOMParser as PageParser, type Slice } from "@tiptap/pm/model";
import { Plugin } from "@tiptap/pm/state";
import StarterKit from "@tiptap/starter-kit";
import { isWebUrl } from "../../../../lib/mail-link.ts";
import { CONTENT_WIDTH, NETWORKS, textOn } from "../../../../lib/mail-style.ts";
import { TAG_NAME } from "../../../../lib/merge-tags.ts";
import { cleanPaste } from "./paste.ts";
import { blocksText, tagName, tagText } from "./text.ts";

export interface SocialLink {
  network: string;
  href: string;
}

/** An extension of the kit, before `NARROWED` changes it. */
interface Base<Part> {
  parent: () => Part[];
}

function hasLink({ content }: PageNode | Slice, { from, to } = { from: 0, to: content.size }): boolean {
  let isIn = false;
  content.nodesBetween(from, to, ({ marks }) => {
    isIn ||= marks.some(({ type }) => type.name === "link");
  });
  return isIn;
}

const TEXTS = "paragraph | bulletList | orderedList";
/** Narrower than the kit's: what a mail can hold. */
const NARROWED: Readonly<Record<string, object>> = {
  // Columns stand in no other block.
  doc: { content: "(block | columns)+" },
  listItem: { content: `paragraph (${TEXTS})*` },
  blockquote: { content: `(${TEXTS})+` },
  orderedList: { addAttributes: () => ({}) },
  link: {
    ...{ inclusive: false, addAttributes: () => ({ href: { default: null } }) },
    // The kit would link a text that looks like an address to that, also where the text is a link to another one.
    addPasteRules(this: Base<PasteRule>) {
      return this.parent().map(
        ({ find, handler }) =>
          new PasteRule({
            find,
            handler: (paste) => (hasLink(paste.state.doc, paste.range) ? undefined : handler(paste)),
          }),
      );
    },
    addProseMirrorPlugins(this: Base<Plugin>) {
      return this.parent().map((plugin) => {
        const paste = plugin.props.handlePaste;
        if (paste)
          plugin.props.handlePaste = (view, event, slice) => !hasLink(slice) && paste.call(plugin, view, event, slice);
        return plugin;
      });
    },
  },
};

const Kit = StarterKit.extend({
  addExtensions() {
    return (this.parent?.() ?? []).map((one: AnyExtension) => (one as Node).extend(NARROWED[one.name]));
  },
}).configure({
  codeBlock: false,
  horizontalRule: false,
  // A paragraph at the end would be one of the mail.
  trailingNode: false,
  heading: { levels: [1, 2, 3] },
  link: { openOnClick: false, defaultProtocol: "https" },
});

const TextAlign = Extension.create({
  name: "textAlign",
  addGlobalAttributes: () => [
    {
      types: ["paragraph", "heading"],
      attributes: {
        textAlign: {
          default: null,
          parseHTML: (element) => /^(center|right)$/.exec(element.getAttribute("align") ?? "")?.[0] ?? null,
          renderHTML: ({ textAlign }) => (textAlign ? { style: `text-align: ${textAlign}` } : {}),
        },
      },
    },
  ],
});

type Values = Readonly<Record<string, unknown>>;
interface Leaf {
  name: string;
  /** The attributes, and their first values. */
  attributes: Values;
  /** Its elements in the editor. */
  show: (values: Values) => DOMOutputSpec;
  isInline?: boolean;
  /** Of others: a tag, and the attributes that it gives. */
  parse?: readonly [tag: string, read: (element: HTMLElement) => Values | false];
}

/** A block, or a part of a text, that is written in the fields of a panel. */
const leaf = ({ name, attributes, show, isInline = false, parse }: Leaf) =>
  Node.create({
    name,
    ...{ atom: true, draggable: true, inline: isInline, group: isInline ? "inline" : "block" },
    addAttributes: () =>
      Object.fromEntries(Object.entries(attributes).map(([key, first]) => [key, { default: first, rendered: false }])),
    renderHTML: ({ node: { attrs } }) => {
      const style = "align" in attrs ? `text-align: ${alignment(attrs["align"])}` : undefined;
      const own = { "data-block": name, "data-values": JSON.stringify(attrs), style };
      return [isInline ? "span" : "div", own, show(attrs)] as DOMOutputSpec;
    },
    parseHTML: () => [
      { tag: `[data-block="${name}"]`, getAttrs: ({ dataset }) => valuesOf(dataset["values"]) },
      ...(parse ? [{ tag: parse[0], getAttrs: parse[1] }] : []),
    ],
  });

const alignment = (align: unknown) => (align === "left" || align === "right" ? align : "center");

function valuesOf(text = ""): Values | false {
  try {
    return JSON.parse(text);
  } catch {
    return false;
  }
}

/** The policy of the page lets it load images of its own origin alone; the preview shows all. */
export const isOwn = (src: string) => src.startsWith(`${window.location.origin}/`);

/** The values of a block that shows an image of the team; a small one is not enlarged. */
export const imageValues = ({ url, width }: { url: string; width: number }) => ({
  src: url,
  width: width < CONTENT_WIDTH ? width : null,
});

const Image = leaf({
  name: "image",
  attributes: { src: "", alt: "", width: null, href: null, align: null, shape: null },
  show: ({ src, alt, width, shape }) =>
    isOwn(String(src))
      ? ["img", { src, alt, width, class: shape }]
      : ["span", { class: src ? "muted" : "no-image" }, src ? `Image: ${alt || src}` : "Choose an image"],
  parse: [
    "img[src]",
    (element) => {
      const { src, alt, width } = element as HTMLImageElement;
      const href = element.closest("a")?.getAttribute("href") ?? null;
      return isWebUrl(src) && { src, alt, href, width: element.hasAttribute("width") && width > 1 ? width : null };
    },
  ],
});

const Button = leaf({
  name: "button",
  attributes: { label: "Read more", href: "", align: null, look: null },
  show: ({ label, look, align }) => [
    "span",
    { class: `button ${look ?? "primary"} ${align ?? ""}` },
    String(label || " "),
  ],
});

const Divider = leaf({ name: "divider", attributes: {}, show: () => ["hr"], parse: ["hr", () => ({})] });

const Spacer = leaf({
  name: "spacer",
  attributes: { height: 24 },
  show: ({ height }) => ["span", { class: "chip", style: `height: ${Number(height)}px` }, `Space of ${height} pixels`],
});

const SocialLinks = leaf({
  name: "socialLinks",
  attributes: { links: [], align: null },
  show: ({ links }) => {
    const given = (Array.isArray(links) ? links : []) as SocialLink[];
    const names = given.map(({ network }) => NETWORKS[network as keyof typeof NETWORKS] ?? network);
    return ["span", { class: "muted" }, names.join(" · ") || "No social links yet"];
  },
});

const Html = leaf({
  name: "html",
  attributes: { html: "" },
  show: ({ html }) => ["code", String(html || "HTML, empty yet")],
});

/** `{{ first_name }}` and `{{ first_name | default: "there" }}`. */
const TAG = String.raw`\{\{\s*(${TAG_NAME})\s*(?:\|\s*default:\s*["']([^"'{}]*)["']\s*)?\}\}`;
const tagOf = ([, name, fallback]: readonly (string | undefined)[]) => ({ name, fallback: fallback ?? null });

const MergeTag = leaf({
  name: "mergeTag",
  isInline: true,
  attributes: { name: "", fallback: null },
  show: ({ name, fallback }) => [
    "span",
    { class: "chip" },
    `${tagName(String(name))}${fallback ? `, or “${fallback}”` : ""}`,
  ],
}).extend({
  addInputRules() {
    const find = new RegExp(`${TAG}$`);
    // A rule of the kit would leave the braces: it replaces the first group alone.
    return [
      new InputRule({
        find,
        handler: ({ state, range, match }) => {
          state.tr.replaceWith(range.from, range.to, this.type.create(tagOf(match)));
        },
      }),
    ];
  },
  addPasteRules() {
    return [nodePasteRule({ find: new RegExp(TAG, "g"), type: this.type, getAttributes: tagOf })];
  },
  renderText: ({ node: { attrs } }) => tagText(attrs),
});

const styleOn = (background: string | null) =>
  background ? `background-color: ${background}; color: ${textOn(background)}` : "";

const Columns = Node.create({
  name: "columns",
  content: "column{1,3}",
  addAttributes: () => ({
    background: { default: null, parseHTML: ({ dataset }) => dataset["background"] || null, rendered: false },
    widths: { default: null, parseHTML: ({ dataset }) => dataset["columns"] || null, rendered: false },
  }),
  isolating: true,
  draggable: true,
  parseHTML: () => [{ tag: "div[data-columns]" }],
  renderHTML: ({ node: { attrs } }) => {
    const { background, widths } = attrs;
    return ["div", { "data-columns": widths ?? "", "data-background": background, style: styleOn(background) }, 0];
  },
  // Its element stays when its values change: a new one would lose the cursor.
  addNodeView: () => (first) => {
    const dom = document.createElement("div");
    const update = ({ type, attrs: { background, widths } }: typeof first.node) => {
      if (type !== first.node.type) return false;
      dom.dataset["columns"] = widths ?? "";
      dom.style.cssText = styleOn(background);
      return true;
    };
    update(first.node);
    return { dom, contentDOM: dom, update };
  },
});

const Column = Node.create({
  name: "column",
  content: "block+",
  isolating: true,
  parseHTML: () => [{ tag: "div[data-column]" }],
  renderHTML: () => ["div", { "data-column": "" }, 0],
});

const Paste = Extension.create({
  name: "cleanPaste",
  addProseMirrorPlugins: () => [new Plugin({ props: { transformPastedHTML: cleanPaste } })],
});

export const EXTENSIONS = [
  ...[Kit, TextAlign, Image, Button, Divider, Spacer, SocialLinks, Html, MergeTag, Columns, Column, Paste],
];

/** The blocks of an HTML: its texts, links and pictures, without its layout. */
export function blocksOf(html: string): string {
  const schema = getSchema(EXTENSIONS);
  const { body } = new DOMParser().parseFromString(cleanPaste(html), "text/html");
  return blocksText(PageParser.fromSchema(schema).parse(body).toJSON());
}

/** Short ways to write a document of blocks. */

/** Of a new team. */
export const BRAND = {
  ...{ language: "en" as const, font: "sans" as const },
  ...{ accentColor: "#0b57d0", backgroundColor: "#ffffff" },
};

export interface Node {
  type: string;
  text?: string;
  attrs?: Record<string, unknown>;
  marks?: Node[];
  content?: Node[];
}

export const document = (...content: Node[]): Node => ({ type: "doc", content });
export const words = (text: string, ...marks: Node[]): Node => ({
  type: "text",
  text,
  ...(marks.length > 0 && { marks }),
});
export const paragraph = (...content: (Node | string)[]): Node => ({
  type: "paragraph",
  content: content.map((part) => (typeof part === "string" ? words(part) : part)),
});
export const linkTo = (href: string): Node => ({ type: "link", attrs: { href } });
export const tag = (name: string, fallback?: string): Node => ({
  type: "mergeTag",
  attrs: { name, ...(fallback !== undefined && { fallback }) },
});
export const button = (label: string, href: string): Node => ({ type: "button", attrs: { label, href } });
export const list = (...items: Node[][]): Node => ({
  type: "bulletList",
  content: items.map((content) => ({ type: "listItem", content })),
});
export const columns = (...content: Node[][]): Node => ({
  type: "columns",
  content: content.map((blocks) => ({ type: "column", content: blocks })),
});

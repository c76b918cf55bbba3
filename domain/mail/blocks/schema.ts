import { z } from "zod";
import { isWebUrl, linkProblem, MAX_LINK_CHARS } from "../../../lib/mail-link.ts";
import { NETWORKS } from "../../../lib/mail-style.ts";
import { TAG_NAME } from "../../../lib/merge-tags.ts";

/** A document of blocks, as ProseMirror writes it in JSON: a writer's text, from which `compileBlocks` makes the HTML of a mail. */

export const BLOCK_LIMITS = { bytes: 500_000, depth: 12, nodes: 5_000 } as const;
const MAX_TEXT = 100_000;
const MAX_LABEL = 1_000;

const url = z.string().max(MAX_LINK_CHARS, { abort: true });
const href = url.superRefine((value, context) => {
  const message = linkProblem(value);
  if (message !== undefined) context.addIssue({ code: "custom", message });
});
export const imageUrl = url.refine(isWebUrl, "must begin with http: or https:");
/** A block is saved before its URL is known. */
const orNone = (schema: z.ZodString) => z.union([z.literal(""), schema]);

const ALIGNMENTS = ["left", "center", "right"] as const;
const align = z.enum(ALIGNMENTS).nullish();

const mark = z.discriminatedUnion("type", [
  z.strictObject({ type: z.enum(["bold", "italic", "underline", "strike", "code"]) }),
  z.strictObject({ type: z.literal("link"), attrs: z.strictObject({ href }) }),
]);
const marks = z.array(mark).max(6).optional();

const inline = z.discriminatedUnion("type", [
  z.strictObject({ type: z.literal("text"), text: z.string().min(1).max(MAX_TEXT), marks }),
  z.strictObject({ type: z.literal("hardBreak"), marks }),
  z.strictObject({
    type: z.literal("mergeTag"),
    attrs: z.strictObject({
      name: z.string().regex(new RegExp(`^${TAG_NAME}$`), "must be the name of a merge tag"),
      fallback: z.string().max(200).nullish(),
    }),
    marks,
  }),
]);
const words = z.array(inline).default([]);

const paragraph = z.strictObject({
  type: z.literal("paragraph"),
  attrs: z.strictObject({ textAlign: align }).optional(),
  content: words,
});

interface ListNode {
  type: "bulletList" | "orderedList";
  content: ListItemNode[];
}
interface ListItemNode {
  type: "listItem";
  content: (z.output<typeof paragraph> | ListNode)[];
}
const list = z.strictObject({
  type: z.enum(["bulletList", "orderedList"]),
  get content(): z.ZodArray<z.ZodType<ListItemNode>> {
    return z.array(listItem);
  },
});
const textBlock = z.discriminatedUnion("type", [paragraph, list]);
const listItem: z.ZodType<ListItemNode> = z.strictObject({ type: z.literal("listItem"), content: z.array(textBlock) });

const network = z.enum(Object.keys(NETWORKS) as (keyof typeof NETWORKS)[]);

const block = z.discriminatedUnion("type", [
  paragraph,
  z.strictObject({
    type: z.literal("heading"),
    attrs: z.strictObject({ level: z.union([z.literal(1), z.literal(2), z.literal(3)]), textAlign: align }),
    content: words,
  }),
  list,
  z.strictObject({ type: z.literal("blockquote"), content: z.array(textBlock) }),
  z.strictObject({
    type: z.literal("image"),
    attrs: z.strictObject({
      src: orNone(imageUrl),
      alt: z.string().max(MAX_LABEL).nullish(),
      width: z.number().min(1).max(10_000).nullish(),
      href: orNone(href).nullish(),
      align,
      shape: z.literal("round").nullish(),
    }),
  }),
  z.strictObject({
    type: z.literal("button"),
    attrs: z.strictObject({
      label: z.string().max(MAX_LABEL),
      href: orNone(href),
      align: z.enum([...ALIGNMENTS, "full"]).nullish(),
      look: z.literal("outline").nullish(),
    }),
  }),
  z.strictObject({ type: z.literal("divider") }),
  z.strictObject({ type: z.literal("spacer"), attrs: z.strictObject({ height: z.int().min(4).max(120) }) }),
  z.strictObject({
    type: z.literal("socialLinks"),
    attrs: z.strictObject({ links: z.array(z.strictObject({ network, href: orNone(href) })).max(20), align }),
  }),
  z.strictObject({ type: z.literal("html"), attrs: z.strictObject({ html: z.string().max(BLOCK_LIMITS.bytes) }) }),
]);

const columns = z.strictObject({
  type: z.literal("columns"),
  attrs: z
    .strictObject({
      background: z
        .string()
        .regex(/^#[0-9a-f]{6}$/, "must be a colour, as #0b57d0")
        .nullish(),
      /** Of two columns, the thirds that each takes; else they are equal. */
      widths: z.enum(["1:2", "2:1"]).nullish(),
    })
    .optional(),
  content: z
    .array(z.strictObject({ type: z.literal("column"), content: z.array(block) }))
    .min(1)
    .max(3),
});

const document = z.strictObject({
  type: z.literal("doc"),
  content: z.array(z.discriminatedUnion("type", [...block.options, columns])),
});

export type BlockDocument = z.output<typeof document>;
export type Inline = z.output<typeof inline>;
export type Mark = z.output<typeof mark>;
export type Block = BlockDocument["content"][number];

/** By the nodes alone, in a loop: a deep document would exhaust the stack of what reads it. */
function boundsProblem(value: unknown): string | undefined {
  let nodes = 0;
  let level = [value];
  for (let depth = 1; level.length > 0; depth++) {
    if (depth > BLOCK_LIMITS.depth) return `is nested over ${BLOCK_LIMITS.depth} nodes deep`;
    nodes += level.length;
    if (nodes > BLOCK_LIMITS.nodes) return `may have ${BLOCK_LIMITS.nodes} nodes at most`;
    level = level.flatMap((node) => {
      const content = (node as { content?: unknown } | null)?.content;
      return Array.isArray(content) ? content : [];
    });
  }
  if (Buffer.byteLength(JSON.stringify(value) ?? "") > BLOCK_LIMITS.bytes)
    return `may have ${BLOCK_LIMITS.bytes} bytes at most`;
  return undefined;
}

/** Bounds first: nothing of a larger document is looked at. */
export const blockDocument = z
  .unknown()
  .superRefine((value, context) => {
    const message = boundsProblem(value);
    if (message !== undefined) context.addIssue({ code: "custom", message });
  })
  .pipe(document);

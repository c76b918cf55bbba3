import type { Editor, JSONContent } from "@tiptap/core";
import { GapCursor } from "@tiptap/pm/gapcursor";
import { Fragment, type Node } from "@tiptap/pm/model";
import { NodeSelection, type Selection, TextSelection, type Transaction } from "@tiptap/pm/state";

/** A block, and where it begins. */
export interface Block {
  from: number;
  node: Node;
}

export const TOP = /^doc$/;
const HOLDERS = /^(doc|column)$/;
const MOVABLE = /^(doc|column|bulletList|orderedList)$/;

/** The innermost block of a selection that stands in one of these. */
export function blockOf({ $from }: Pick<Selection, "$from">, parents = HOLDERS): Block | undefined {
  if (parents.test($from.parent.type.name) && $from.nodeAfter) return { from: $from.pos, node: $from.nodeAfter };
  for (let depth = $from.depth; depth > 0; depth--) {
    if (parents.test($from.node(depth - 1).type.name)) return { from: $from.before(depth), node: $from.node(depth) };
  }
  return undefined;
}

/** The block without content, or the merge tag, that is selected. */
export const selectedLeaf = ({ state: { selection } }: Editor): Block | undefined =>
  selection instanceof NodeSelection && selection.node.isAtom
    ? { from: selection.from, node: selection.node }
    : undefined;

/** The columns that are selected, or in which the cursor stands. */
export function columnsAround({ state: { selection } }: Editor): Block | undefined {
  const block = blockOf(selection, TOP);
  return block?.node.type.name === "columns" ? block : undefined;
}

/** Puts a block in place of the empty paragraph at the cursor, or below the block there. */
export const insertBlock = (editor: Editor, json: JSONContent): boolean =>
  editor
    .chain()
    .command(({ tr }) => {
      const node = editor.schema.nodeFromJSON(json);
      const at = blockOf(tr.selection, node.type.name === "columns" ? TOP : HOLDERS);
      const isEmpty = at?.node.isTextblock && at.node.content.size === 0;
      const end = at ? at.from + at.node.nodeSize : tr.selection.to;
      const begin = at && isEmpty ? at.from : end;
      tr.replaceWith(begin, end, node);
      const selection = node.isAtom
        ? NodeSelection.create(tr.doc, begin)
        : TextSelection.near(tr.doc.resolve(begin + 1));
      tr.setSelection(selection).scrollIntoView();
      return true;
    })
    .run();

/** Puts the cursor behind a block: into the paragraph there, or a new one. */
export const caretAfter = (editor: Editor, { from, node }: Block): boolean =>
  editor
    .chain()
    .command(({ tr }) => {
      const end = from + node.nodeSize;
      if (!node.isInline && !tr.doc.resolve(end).nodeAfter?.isTextblock)
        tr.insert(end, editor.schema.node("paragraph"));
      tr.setSelection(TextSelection.near(tr.doc.resolve(end))).scrollIntoView();
      return true;
    })
    .focus()
    .run();

/** The image above the cursor that lacks its text: it was put there just now. */
export function imageAbove({ state: { selection } }: Editor): Block | undefined {
  const { $from, empty } = selection;
  if (!empty || $from.depth === 0 || $from.parentOffset > 0) return undefined;
  const node = $from.doc.resolve($from.before()).nodeBefore;
  const isIt = node?.type.name === "image" && node.attrs["src"] && !node.attrs["alt"];
  return isIt ? { from: $from.before() - node.nodeSize, node } : undefined;
}

/** Changes the places of a block, or an item of a list, and the one before it (-1) or behind it (1). */
export const moveBlock = (editor: Editor, step: -1 | 1): boolean =>
  editor.commands.command(({ tr }) => {
    const { selection, doc } = tr;
    const block = blockOf(selection, MOVABLE);
    if (!block) return false;
    const $from = doc.resolve(block.from);
    const index = $from.index() + step;
    if (index < 0 || index >= $from.parent.childCount) return false;
    const other = $from.parent.child(index);
    const begin = step < 0 ? block.from - other.nodeSize : block.from;
    const pair = step < 0 ? [block.node, other] : [other, block.node];
    tr.replaceWith(begin, begin + block.node.nodeSize + other.nodeSize, Fragment.from(pair));
    shiftSelection(tr, selection, step * other.nodeSize);
    return true;
  });

function shiftSelection(tr: Transaction, selection: Selection, by: number): void {
  tr.setSelection(
    selection instanceof NodeSelection
      ? NodeSelection.create(tr.doc, selection.from + by)
      : TextSelection.create(tr.doc, selection.anchor + by, selection.head + by),
  ).scrollIntoView();
}

/** Puts a copy below the block of the selection, and selects there what was selected. */
export const duplicateBlock = (editor: Editor): boolean =>
  editor
    .chain()
    .focus()
    .command(({ tr }) => {
      const { selection } = tr;
      const block = blockOf(selection, MOVABLE);
      if (!block) return false;
      const { nodeSize } = block.node;
      tr.insert(block.from + nodeSize, block.node);
      shiftSelection(tr, selection, nodeSize);
      return true;
    })
    .run();

/** Between two blocks no text is there yet that could be bold or aligned. */
export const beginText = (editor: Editor): boolean =>
  editor.state.selection instanceof GapCursor && editor.commands.insertContent({ type: "paragraph" });

/** Aligns the texts of the selection. @param key the letter of its shortcut: l, e or r */
export const alignText = (editor: Editor, key: string): boolean => {
  beginText(editor);
  const textAlign = { e: "center", r: "right" }[key] ?? null;
  const { storedMarks } = editor.state;
  return editor
    .chain()
    .focus()
    .updateAttributes("paragraph", { textAlign })
    .updateAttributes("heading", { textAlign })
    .command(({ tr }) => Boolean(tr.setStoredMarks(storedMarks)))
    .run();
};

/** Removes the block of the selection, and with its last item a list. */
export const removeBlock = (editor: Editor): boolean =>
  editor
    .chain()
    .focus()
    .command(({ tr }) => {
      const block = blockOf(tr.selection, MOVABLE);
      if (block) tr.deleteRange(block.from, block.from + block.node.nodeSize);
      return block !== undefined;
    })
    .run();

export const setValues = (editor: Editor, { from, node }: Block, values: Readonly<Record<string, unknown>>): boolean =>
  editor.commands.command(({ tr }) => {
    const { selection } = tr;
    tr.setNodeMarkup(from, undefined, { ...node.attrs, ...values });
    // In columns, the cursor stays.
    if (node.isAtom || (selection instanceof NodeSelection && selection.from === from))
      tr.setSelection(NodeSelection.create(tr.doc, from));
    return true;
  });

/** Selects a block or a text, and scrolls to it. @param path the index of each node on the way to it */
export const selectAt = (editor: Editor, path: readonly number[]): boolean => {
  // The chain's own focus comes later, and would take that of the block's values.
  editor.view.focus();
  return editor.commands.command(({ tr }) => {
    let [at, node]: [number, Node] = [-1, tr.doc];
    for (const index of path) {
      // The text may have changed since.
      if (index >= node.childCount) return false;
      at += 1;
      for (let before = 0; before < index; before++) at += node.child(before).nodeSize;
      node = node.child(index);
    }
    const { doc } = tr;
    const isText = node.isText;
    tr.setSelection(isText ? TextSelection.create(doc, at, at + node.nodeSize) : NodeSelection.create(doc, at));
    tr.scrollIntoView();
    return true;
  });
};

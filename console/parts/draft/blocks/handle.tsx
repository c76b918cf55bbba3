import type { Editor } from "@tiptap/core";
import { NodeSelection } from "@tiptap/pm/state";
import { useLayoutEffect, useRef } from "react";
import { showDock } from "../preview.tsx";
import { type Block, blockOf, TOP } from "./commands.ts";

/** The outermost block at a height of the editor. */
export function blockAtHeight({ view, state }: Editor, y: number): Block | undefined {
  const { left, width } = view.dom.getBoundingClientRect();
  const at = view.posAtCoords({ left: left + width / 2, top: y });
  if (!at) return undefined;
  const isLeaf = at.inside >= 0 && state.doc.nodeAt(at.inside)?.isAtom;
  return blockOf({ $from: state.doc.resolve(isLeaf ? at.inside : at.pos) }, TOP);
}

interface HandleProps {
  editor: Editor;
  block: Block | undefined;
}

/** Moves the block beside it: dragged, or by the keys that its name says. */
export function Handle({ editor, block }: HandleProps) {
  const ref = useRef<HTMLButtonElement>(null);
  const from = block?.from;
  useLayoutEffect(() => {
    const dom = from === undefined ? undefined : editor.view.nodeDOM(from);
    const around = ref.current?.offsetParent;
    if (!ref.current || !around || !(dom instanceof HTMLElement)) return;
    ref.current.style.top = `${dom.getBoundingClientRect().top - around.getBoundingClientRect().top}px`;
  });
  return (
    <button
      ref={ref}
      type="button"
      className="plain handle"
      draggable
      aria-label="Select this block. Drag it, or press Alt and an arrow up or down, to move it"
      title="Drag to move, or press Alt+↑ or Alt+↓"
      onClick={() => {
        if (from === undefined) return;
        const { selection } = editor.state;
        // A second press on columns goes to their first block.
        const isAgain = selection instanceof NodeSelection && selection.from === from;
        const at = isAgain && block?.node.type.name === "columns" ? from + 2 : from;
        editor.commands.setNodeSelection(at);
        // The command "focus" waits for a frame, and a key pressed before it went to this button.
        editor.view.focus();
        showDock();
      }}
      onDragStart={({ dataTransfer }) => {
        if (from === undefined) return;
        const { view, state } = editor;
        const node = NodeSelection.create(state.doc, from);
        const { dom, text, slice } = view.serializeForClipboard(node.content());
        dataTransfer.setData("text/html", dom.innerHTML);
        dataTransfer.setData("text/plain", text);
        dataTransfer.effectAllowed = "copyMove";
        // Moves this block, and not the selection, which stays.
        const dragging = { slice, move: true, node };
        view.dragging = dragging;
      }}
      onDragEnd={() => {
        editor.view.dragging = null;
      }}
    >
      ⠿
    </button>
  );
}

import type { ChainedCommands, Editor } from "@tiptap/core";
import { type KeyboardEvent, type ReactNode, useEffect, useRef } from "react";
import { Select } from "../../form.tsx";
import { duplicateBlock, moveBlock, removeBlock } from "./commands.ts";
import type { Kind } from "./menu.tsx";

type Tool = readonly [
  name: string,
  shown: string,
  run: (editor: Editor, chain: ChainedCommands) => unknown,
  /** The name of the mark or block that it sets and ends. */
  active?: string,
];

const MARKS: readonly Tool[] = [
  ["Bold", "B", (_, chain) => chain.toggleBold().run(), "bold"],
  ["Italic", "I", (_, chain) => chain.toggleItalic().run(), "italic"],
  ["Underline", "U", (_, chain) => chain.toggleUnderline().run(), "underline"],
  ["Strikethrough", "S", (_, chain) => chain.toggleStrike().run(), "strike"],
  ["Code", "<>", (_, chain) => chain.toggleCode().run(), "code"],
];
const BLOCKS: readonly Tool[] = [
  ["List", "List", (_, chain) => chain.toggleBulletList().run(), "bulletList"],
  ["Numbered list", "Numbered", (_, chain) => chain.toggleOrderedList().run(), "orderedList"],
  ["Quote", "Quote", (_, chain) => chain.toggleBlockquote().run(), "blockquote"],
];
const PLACES: readonly Tool[] = [
  ["Move the block up", "↑", (editor) => moveBlock(editor, -1)],
  ["Move the block down", "↓", (editor) => moveBlock(editor, 1)],
  ["Duplicate the block", "⧉", duplicateBlock],
  ["Remove the block", "✕", removeBlock],
  ["Undo", "↶", (_, chain) => chain.undo().run()],
  ["Redo", "↷", (_, chain) => chain.redo().run()],
];

const STYLES = { "0": "Text", "1": "Heading 1", "2": "Heading 2", "3": "Heading 3" };
const ALIGNMENTS = { "": "Left", center: "Centre", right: "Right" };

interface ToolbarProps {
  editor: Editor;
  onOpen: (menu: Kind) => void;
  /** The link's button. */
  children: ReactNode;
}

/** One stop of the Tab key: the arrows lead from tool to tool. */
export function Toolbar({ editor, onOpen, children }: ToolbarProps) {
  const ref = useRef<HTMLDivElement>(null);
  const at = useRef<Element | null>(null);
  const tools = () => [...(ref.current?.querySelectorAll<HTMLElement>(":scope > button, :scope > select") ?? [])];
  useEffect(() => {
    const all = tools();
    const current = all.find((tool) => tool === at.current) ?? all[0];
    for (const tool of all) tool.tabIndex = tool === current ? 0 : -1;
  });
  const press = (event: KeyboardEvent) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (event.key === "Escape") editor.commands.focus();
    if (step === undefined) return;
    event.preventDefault();
    const all = tools();
    all[(all.indexOf(event.target as HTMLElement) + step + all.length) % all.length]?.focus();
  };
  const button = ([name, shown, run, active]: Tool) => (
    <button
      key={name}
      type="button"
      aria-label={name}
      title={name}
      aria-pressed={active === undefined ? undefined : editor.isActive(active)}
      onClick={() => run(editor, editor.chain().focus())}
    >
      {shown}
    </button>
  );
  const level = editor.isActive("heading") ? editor.getAttributes("heading")["level"] : 0;
  const { textAlign } = editor.getAttributes(level ? "heading" : "paragraph");
  return (
    <div
      ref={ref}
      className="toolbar"
      role="toolbar"
      aria-label="Format"
      onKeyDown={press}
      onFocus={({ target }) => {
        at.current = target;
        for (const tool of tools()) tool.tabIndex = tool === target ? 0 : -1;
      }}
    >
      <button type="button" className="primary" onClick={() => onOpen("block")}>
        Insert
      </button>
      <button type="button" onClick={() => onOpen("tag")}>
        Merge tag
      </button>
      <Select
        aria-label="Style"
        choices={STYLES}
        value={String(level)}
        onChange={(value) =>
          value === "0"
            ? editor.commands.setParagraph()
            : editor.commands.setHeading({ level: Number(value) as 1 | 2 | 3 })
        }
      />
      {MARKS.map(button)}
      {children}
      <Select
        aria-label="Alignment"
        choices={ALIGNMENTS}
        value={String(textAlign ?? "")}
        onChange={(value) => {
          const attributes = { textAlign: value || null };
          editor.chain().updateAttributes("paragraph", attributes).updateAttributes("heading", attributes).run();
        }}
      />
      {BLOCKS.map(button)}
      {PLACES.map(button)}
    </div>
  );
}

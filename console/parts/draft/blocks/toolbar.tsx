import type { ChainedCommands, Editor } from "@tiptap/core";
import { type KeyboardEvent, type ReactNode, useEffect, useRef } from "react";
import { Select } from "../../form.tsx";
import { More, Opener } from "../../more.tsx";
import { alignText, duplicateBlock, moveBlock, removeBlock } from "./commands.ts";
import type { Kind } from "./menu.tsx";

type Run = (editor: Editor, chain: ChainedCommands) => unknown;
type Tool = readonly [
  name: string,
  shown: string,
  run: Run,
  /** The name of the mark that it sets and ends. */
  active?: string,
];

const MARKS: readonly Tool[] = [
  ["Bold", "B", (_, chain) => chain.toggleBold().run(), "bold"],
  ["Italic", "I", (_, chain) => chain.toggleItalic().run(), "italic"],
  ["Underline", "U", (_, chain) => chain.toggleUnderline().run(), "underline"],
];
const STEPS: readonly Tool[] = [
  ["Undo", "↶", (_, chain) => chain.undo().run()],
  ["Redo", "↷", (_, chain) => chain.redo().run()],
];
/** Of the menu, by their names. */
const RARE: Readonly<Record<string, Run>> = {
  Strikethrough: (_, chain) => chain.toggleStrike().run(),
  Code: (_, chain) => chain.toggleCode().run(),
  "Align left (Ctrl+Shift+L)": (editor) => alignText(editor, "l"),
  "Align centre (Ctrl+Shift+E)": (editor) => alignText(editor, "e"),
  "Align right (Ctrl+Shift+R)": (editor) => alignText(editor, "r"),
  "Move the block up": (editor) => moveBlock(editor, -1),
  "Move the block down": (editor) => moveBlock(editor, 1),
  "Duplicate the block (Ctrl+D)": duplicateBlock,
  "Remove the block": removeBlock,
};

const HEADINGS = { "0": "Text", "1": "Heading 1", "2": "Heading 2", "3": "Heading 3" };
const AROUND = { bulletList: "List", orderedList: "Numbered list", blockquote: "Quote" };

/** The style of the text at the cursor. */
function styleOf(editor: Editor): string {
  const level = editor.isActive("heading") ? editor.getAttributes("heading")["level"] : 0;
  return Object.keys(AROUND).find((name) => editor.isActive(name)) ?? String(level);
}

function setStyle(editor: Editor, value: string): void {
  const chain = editor.chain();
  if (value === "bulletList") chain.toggleBulletList();
  else if (value === "orderedList") chain.toggleOrderedList();
  else {
    // Only these are left: it would take the alignment of a text, too.
    if (styleOf(editor) in AROUND) chain.clearNodes();
    chain.command(({ tr, state: { schema } }) => {
      const type = schema.nodes[value in HEADINGS && value !== "0" ? "heading" : "paragraph"];
      const { from, to } = tr.selection;
      return Boolean(type && tr.setBlockType(from, to, type, ({ attrs }) => ({ ...attrs, level: Number(value) })));
    });
    if (value === "blockquote") chain.setBlockquote();
  }
  chain.run();
}

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
    const all = tools();
    // The keys of the menu are its own.
    if (!all.includes(event.target as HTMLElement)) return;
    event.preventDefault();
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
  return (
    <div
      ref={ref}
      className="toolbar"
      role="toolbar"
      aria-label="Format"
      onKeyDown={press}
      onFocus={({ target }) => {
        if (!tools().includes(target)) return;
        at.current = target;
        for (const tool of tools()) tool.tabIndex = tool === target ? 0 : -1;
      }}
    >
      <button type="button" className="primary" onClick={() => onOpen("block")}>
        Insert
      </button>
      <button type="button" onClick={() => onOpen("tag")}>
        Personalise
      </button>
      <Select
        aria-label="Style"
        choices={{ ...HEADINGS, ...AROUND }}
        value={styleOf(editor)}
        onChange={(value) => setStyle(editor, value)}
      />
      {MARKS.map(button)}
      {children}
      {STEPS.map(button)}
      <More of="text and block">
        {Object.entries(RARE).map(([name, run]) => (
          <Opener key={name} title={name} onOpen={() => run(editor, editor.chain().focus())} />
        ))}
      </More>
    </div>
  );
}

import type { ChainedCommands, Editor, JSONContent } from "@tiptap/core";
import { useLayoutEffect, useRef } from "react";
import { insertBlock } from "./commands.ts";
import { needsFallback, tagNames } from "./text.ts";

export interface Option {
  name: string;
  /** By which it is found, too. */
  tag?: string;
  group?: string;
  run: (editor: Editor) => unknown;
}

const PARAGRAPH = { type: "paragraph" };
const column = { type: "column", content: [PARAGRAPH] };
const styled = (name: string, apply: (chain: ChainedCommands) => ChainedCommands): Option => ({
  name,
  run: (editor) => apply(editor.chain()).run(),
});
const block = (name: string, json: JSONContent): Option => ({ name, run: (editor) => insertBlock(editor, json) });

const GROUPS: Readonly<Record<string, readonly Option[]>> = {
  Text: [
    block("Text", PARAGRAPH),
    ...([1, 2, 3] as const).map((level) => block(`Heading ${level}`, { type: "heading", attrs: { level } })),
    styled("List", (chain) => chain.toggleBulletList()),
    styled("Numbered list", (chain) => chain.toggleOrderedList()),
    styled("Quote", (chain) => chain.toggleBlockquote()),
  ],
  Media: [
    block("Image", { type: "image" }),
    block("Button", { type: "button" }),
    block("Social links", { type: "socialLinks" }),
    block("HTML", { type: "html" }),
  ],
  Layout: [
    block("Divider", { type: "divider" }),
    block("Space", { type: "spacer" }),
    block("Two columns", { type: "columns", content: [column, column] }),
    block("One third and two", { type: "columns", attrs: { widths: "1:2" }, content: [column, column] }),
    block("Two thirds and one", { type: "columns", attrs: { widths: "2:1" }, content: [column, column] }),
    block("Three columns", { type: "columns", content: [column, column, column] }),
    block("Area with a colour", { type: "columns", attrs: { background: "#f3f4f6" }, content: [column] }),
  ],
};
const BLOCKS = Object.entries(GROUPS).flatMap(([group, options]) => options.map((one) => ({ ...one, group })));

export type Kind = "block" | "tag";

/** A menu at the cursor, and the text that chooses among its options. */
export interface Menu {
  kind: Kind;
  /** Begins with the `/` or `{{` that opened it; "" for a button. */
  typed: string;
  options: readonly Option[];
}

/** The menu that was typed, or that a button has opened. */
export function menuAt({ state: { selection } }: Editor, tags: readonly string[], opened?: Kind): Menu | undefined {
  const { $from, empty } = selection;
  const before = empty && $from.parent.isTextblock ? $from.parent.textBetween(0, $from.parentOffset, "", "\ufffc") : "";
  const [slash, blockName] = /^\/([\w ]*)$/.exec(before) ?? [];
  const [braces, tagName] = /\{\{ ?([\w.]*)$/.exec(before) ?? [];
  const kind = opened ?? (slash ? "block" : braces ? "tag" : undefined);
  if (!kind) return undefined;
  const query = opened ? "" : (blockName ?? tagName ?? "").toLowerCase();
  const all: readonly Option[] = kind === "block" ? BLOCKS : Object.entries(tagNames(tags)).map(tagOption);
  const options = all.filter(({ name, tag }) => `${name} ${tag}`.toLowerCase().includes(query));
  return options.length > 0 ? { kind, typed: opened ? "" : (slash ?? braces ?? ""), options } : undefined;
}

const tagOption = ([tag, name]: readonly [string, string]): Option => ({
  name,
  tag,
  run: (editor) => {
    const { from } = editor.state.selection;
    editor.commands.insertContent({ type: "mergeTag", attrs: { name: tag } });
    if (needsFallback(tag)) editor.commands.setNodeSelection(from);
  },
});

export function choose(editor: Editor, { typed }: Menu, { run }: Option): void {
  const { from } = editor.state.selection;
  if (typed) editor.commands.deleteRange({ from: from - typed.length, to: from });
  run(editor);
}

export const MENU_ID = "editor-menu";

const scrolledTo = ({ offsetTop, offsetHeight }: HTMLElement, { scrollTop, clientHeight }: HTMLElement) =>
  Math.min(offsetTop, Math.max(scrollTop, offsetTop + offsetHeight - clientHeight));

interface OptionsProps {
  editor: Editor;
  menu: Menu;
  active: number;
  onChoose: (option: Option) => void;
}

/** Between the options, the line that they belong to and the edge of the window. */
const SPACE_PX = 4;
const MOST_PX = 420;

/** The options below the cursor or the tools, or above where there is more room. The editor keeps the focus, and its keys choose. */
export function Options({ editor, menu: { kind, typed, options }, active, onChoose }: OptionsProps) {
  const ref = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    const list = ref.current;
    const around = list?.offsetParent?.getBoundingClientRect();
    if (!list || !around) return;
    // Those of a button belong to the tools.
    const { top, bottom, left } = typed ? editor.view.coordsAtPos(editor.state.selection.from) : around;
    const fitting = (room: number) => Math.min(MOST_PX, room - 2 * SPACE_PX);
    const [above, below] = [fitting(top), fitting(window.innerHeight - bottom)];
    const isAbove = below < Math.min(list.scrollHeight, above);
    const [room, near] = isAbove ? [above, around.bottom - top] : [below, bottom - around.top];
    list.style.maxHeight = `${room}px`;
    list.style[isAbove ? "bottom" : "top"] = `${near + SPACE_PX}px`;
    list.style[isAbove ? "top" : "bottom"] = "auto";
    list.style.left = `${Math.max(0, Math.min(left - around.left, around.width - list.offsetWidth))}px`;
    const active = list.querySelector<HTMLElement>("[aria-selected=true]");
    // Not by "scrollIntoView", which may scroll the page, too.
    if (active) list.scrollTop = scrolledTo(active, list);
  });
  return (
    <div ref={ref} id={MENU_ID} className="tags" role="listbox" aria-label={kind === "tag" ? "Merge tags" : "Blocks"}>
      {[...Map.groupBy(options, ({ group }) => group)].map(([group, some]) => (
        // biome-ignore lint/a11y/useSemanticElements: a list of options has no fields
        <div key={group} role="group" aria-label={group}>
          {group && <small aria-hidden="true">{group}</small>}
          {some.map((option) => (
            // biome-ignore lint/a11y/useFocusableInteractive: the editor keeps the focus
            <div
              key={option.tag ?? option.name}
              id={`${MENU_ID}-${options.indexOf(option)}`}
              role="option"
              aria-selected={option === options[active]}
              onMouseDown={(event) => {
                event.preventDefault();
                onChoose(option);
              }}
            >
              {option.name}
            </div>
          ))}
        </div>
      ))}
    </div>
  );
}

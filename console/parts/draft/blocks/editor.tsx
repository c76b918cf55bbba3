import { Editor } from "@tiptap/core";
import { NodeSelection, Selection } from "@tiptap/pm/state";
import { type CSSProperties, useEffect, useReducer, useRef, useState } from "react";
import { createPortal, flushSync } from "react-dom";
import { FONT_FAMILIES, readableOn, textOn } from "../../../../lib/mail-style.ts";
import { HttpRefusal } from "../../../api.ts";
import { useData } from "../../../session.tsx";
import { Dialog } from "../../dialog.tsx";
import { Form } from "../../form.tsx";
import { type Image, imagesIn, useUpload } from "../../images.tsx";
import { Icon, Notice, Problem } from "../../page.tsx";
import type { BodyProps } from "../drafts.ts";
import { dock, follow, showDock } from "../preview.tsx";
import {
  alignText,
  type Block,
  beginText,
  blockOf,
  caretAfter,
  columnsAround,
  duplicateBlock,
  imageAbove,
  insertBlock,
  moveBlock,
  selectAt,
  selectedLeaf,
  setValues,
} from "./commands.ts";
import { blockAtHeight, Handle } from "./handle.tsx";
import { choose, type Kind, MENU_ID, menuAt, type Option, Options } from "./menu.tsx";
import { Panel } from "./panel.tsx";
import { EXTENSIONS, imageValues } from "./schema.ts";
import { blocksText, linkOf, linkProblem, linkTags } from "./text.ts";
import { Toolbar } from "./toolbar.tsx";

const WORDS =
  "Type / to insert a block or {{ to personalise, paste or drop an image, and press Alt+F10 for the toolbar or Enter on a selected block for its settings.";

/** Between the tools and the place of the cursor. */
const SPACE_PX = 8;
/** Height of the bar above the tools. */
const SAVE_PX = 56;

/** What the values of a block cover at the bottom of a phone. */
const dockPx = () => {
  const place = dock();
  return place && getComputedStyle(place).position === "fixed" ? place.offsetHeight : 0;
};

type Look = Record<"accent_color" | "background_color", string> & { font: keyof typeof FONT_FAMILIES };

/** The brand's colours and font, for the style sheet. */
const lookOf = ({ accent_color: accent, background_color: page, font }: Look) =>
  ({
    "--mail-page": page,
    "--mail-font": FONT_FAMILIES[font],
    "--mail-accent": accent,
    "--mail-on-accent": textOn(accent),
    "--mail-link": readableOn("#ffffff", accent),
  }) as CSSProperties;

/** Edits a document of blocks. @param value as `blocksText` writes it */
export function BlocksEditor({ value, onChange, tags, readOnly, shownPath }: BodyProps) {
  const brand = useData(["brand"], ({ app }) => app.team.brand.query({}));
  const place = useRef<HTMLDivElement>(null);
  const around = useRef<HTMLDivElement>(null);
  const tools = useRef<HTMLDivElement>(null);
  const [editor, setEditor] = useState<Editor>();
  const [, render] = useReducer((count: number) => count + 1, 0);
  const [opened, setOpened] = useState<Kind>();
  const [isDismissed, setDismissed] = useState(false);
  const [chosen, setChosen] = useState(0);
  const [hovered, setHovered] = useState<Block>();
  const [isClosed, setClosed] = useState(false);
  const [isLinking, setLinking] = useState(false);

  const begun = editor && !readOnly ? menuAt(editor, tags, opened) : undefined;
  const menu = isDismissed ? undefined : begun;
  const active = Math.min(chosen, (menu?.options.length ?? 1) - 1);
  // The page stays where it is: its padding for the tools would scroll it although the values are in view.
  const focus = (selector: string) => document.querySelector<HTMLElement>(selector)?.focus({ preventScroll: true });
  const focusPanel = (input = ":is(input, select, textarea)") => {
    showDock();
    focus(`.panel ${input}`);
  };
  const pick = (option: Option | undefined) => {
    if (!editor || !menu || !option) return;
    editor.view.focus();
    flushSync(() => choose(editor, menu, option));
    if (selectedLeaf(editor)) focusPanel();
  };
  const isReplacing = useRef(false);
  const upload = useUpload((image: Image) => {
    // The page may have been left.
    if (!editor || editor.isDestroyed) return;
    const [attrs, old] = [imageValues(image), isReplacing.current ? selectedLeaf(editor) : undefined];
    isReplacing.current = false;
    if (old?.node.type.name === "image") setValues(editor, old, attrs);
    else insertBlock(editor, { type: "image", attrs });
    const made = selectedLeaf(editor);
    if (made) caretAfter(editor, made);
  });
  /** Uploads what was pasted or dropped, if it is images. @param at a place of the document */
  const take = (data: DataTransfer | null, at?: { pos: number; inside: number } | null): boolean => {
    const files = imagesIn(data);
    // Word and Excel add a picture of the text that was copied.
    if (files.length === 0 || /<(p|table)[\s>]/i.test(data?.getData("text/html") ?? "")) return false;
    // An image that is selected, and on which another one is dropped, changes to it.
    isReplacing.current = !at || at.inside === editor?.state.selection.from;
    if (at && !isReplacing.current) {
      editor?.commands.command(({ tr }) => Boolean(tr.setSelection(Selection.near(tr.doc.resolve(at.pos)))));
    }
    upload.mutate(files);
    return true;
  };
  const press = ({ key, altKey, shiftKey, ctrlKey, metaKey }: KeyboardEvent): boolean => {
    const step = ({ ArrowUp: -1, ArrowDown: 1 } as const)[key];
    if (!editor || readOnly) return false;
    if (menu && !altKey) {
      const count = menu.options.length;
      if (step !== undefined) setChosen((active + step + count) % count);
      else if (key === "Enter" || key === "Tab") pick(menu.options[active]);
      else if (key !== "Escape") return false;
      else if (opened) setOpened(undefined);
      else setDismissed(true);
    } else if (altKey && step !== undefined) moveBlock(editor, step);
    else if (altKey && key === "F10") focus(".blocks [role=toolbar] [tabindex='0']");
    else if ((ctrlKey || metaKey) && key.toLowerCase() === "k") setLinking(true);
    else if ((ctrlKey || metaKey) && key.toLowerCase() === "d") duplicateBlock(editor);
    else if ((ctrlKey || metaKey) && shiftKey && /^[elr]$/i.test(key)) alignText(editor, key.toLowerCase());
    else if (key === "Enter" && selectedLeaf(editor)) {
      flushSync(() => setClosed(false));
      focusPanel();
    } else {
      if ((ctrlKey || metaKey) && /^[biu]$/i.test(key)) beginText(editor);
      return false;
    }
    return true;
  };

  // The editor is made once, and calls what was rendered last.
  const now = useRef({ value, readOnly, onChange, press, take });
  useEffect(() => {
    now.current = { value, readOnly, onChange, press, take };
  });
  useEffect(() => {
    const reset = () => {
      setOpened(undefined);
      setChosen(0);
      setHovered(undefined);
      setClosed(false);
    };
    const covered = {
      ...{ right: 0, left: 0 },
      get top() {
        return (tools.current?.offsetHeight ?? 0) + SAVE_PX + SPACE_PX;
      },
      get bottom() {
        return dockPx() + SPACE_PX;
      },
    };
    const made = new Editor({
      element: place.current,
      extensions: EXTENSIONS,
      content: JSON.parse(now.current.value),
      editable: !now.current.readOnly,
      // The policy of the page takes no style elements.
      injectCSS: false,
      // Not those of marks: "_" and "*" of a text that is pasted are its own.
      enablePasteRules: ["link", "mergeTag"],
      enableContentCheck: true,
      onContentError: ({ error }) => {
        throw error;
      },
      onTransaction: render,
      onSelectionUpdate: reset,
      onUpdate: ({ editor: { state } }) => {
        reset();
        now.current.onChange(blocksText(state.doc.toJSON()));
      },
      editorProps: {
        scrollThreshold: covered,
        scrollMargin: covered,
        attributes: { role: "textbox", "aria-multiline": "true", "aria-label": "Text of the email" },
        // Text that is typed over a selected block does not replace it.
        handleTextInput: ({ state: { selection } }, _from, _to, typed) =>
          selection instanceof NodeSelection &&
          selection.node.isBlock &&
          insertBlock(made, { type: "paragraph" }) &&
          made.commands.command(({ tr }) => Boolean(tr.insertText(typed))),
        handleKeyDown: (_, event) => now.current.press(event),
        handleDOMEvents: {
          // Once it is selected.
          click: (_, { target }) => {
            flushSync(() => setClosed(false));
            if ((target as Element).closest(".ProseMirror-selectednode")) showDock();
            const isPlace = !now.current.readOnly && (target as Element).matches(".no-image");
            if (isPlace) document.querySelector<HTMLElement>(".panel button")?.click();
          },
        },
        handlePaste: (_, { clipboardData }) => now.current.take(clipboardData),
        handleDrop: (view, { dataTransfer, clientX, clientY }, _slice, isMoved) =>
          !isMoved && now.current.take(dataTransfer, view.posAtCoords({ left: clientX, top: clientY })),
      },
    });
    // Not an image that comes first: its values would cover the text.
    const text = Selection.findFrom(made.state.doc.resolve(0), 1, true);
    if (text) made.commands.setTextSelection(text.from);
    setEditor(made);
    return () => made.destroy();
  }, []);
  useEffect(() => {
    // Others may have changed it.
    if (!editor || blocksText(editor.getJSON()) === value) return;
    editor.commands.setContent(JSON.parse(value), { emitUpdate: false });
  }, [editor, value]);

  const isShowing = useRef(false);
  useEffect(() => {
    if (!isShowing.current || !editor) return;
    isShowing.current = false;
    const leaf = selectedLeaf(editor);
    // The first value that it lacks, else its link, which is broken.
    const lacked = ["src", "alt", "href"].find((name) => (leaf?.node.attrs[name] ?? "-") === "");
    if (leaf) focusPanel(`[name=block-${lacked ?? "href"}]`);
  });
  useEffect(() => {
    // Its values come with the next render.
    isShowing.current = Boolean(editor && shownPath && selectAt(editor, shownPath));
    if (isShowing.current) render();
  }, [editor, shownPath]);

  // The tools stick to the top, and on a phone the values of a block to the bottom: no text moves as they come.
  useEffect(() => {
    const { style } = document.documentElement;
    const observer = new ResizeObserver(() => {
      const above = (tools.current?.offsetHeight ?? 0) + SAVE_PX + SPACE_PX;
      style.scrollPaddingBlock = `${above}px ${dockPx() + SPACE_PX}px`;
      editor?.view.dom.querySelector(".ProseMirror-selectednode")?.scrollIntoView({ block: "nearest" });
    });
    for (const one of [tools.current, dock()]) if (one) observer.observe(one);
    return () => {
      observer.disconnect();
      style.scrollPaddingBlock = "";
    };
  }, [editor]);

  const options = editor && menu && <Options editor={editor} menu={menu} active={active} onChoose={pick} />;
  const option = menu && `${MENU_ID}-${active}`;
  useEffect(() => {
    const dom = editor?.view.dom;
    if (option) dom?.setAttribute("aria-activedescendant", option);
    else dom?.removeAttribute("aria-activedescendant");
    if (!begun) setDismissed(false);
  }, [editor, option, begun]);

  const closePanel = () => {
    setClosed(true);
    editor?.view.focus();
  };
  const block = editor && !isClosed && (selectedLeaf(editor) ?? imageAbove(editor) ?? columnsAround(editor));
  const values = dock();
  const index = editor?.state.selection.$from.index(0) ?? 0;
  // The preview begins at the top of the mail, also where its text begins below an image.
  const hasBegun = useRef(false);
  useEffect(() => {
    hasBegun.current ||= editor?.isFocused ?? false;
    follow(hasBegun.current ? index : 0);
  }, [editor, index]);
  return (
    <div ref={around} className="blocks">
      {editor && !readOnly && (
        <div ref={tools} className="tools">
          <Toolbar
            editor={editor}
            onOpen={(kind) => {
              editor.view.focus();
              setOpened(kind);
            }}
          >
            <button
              type="button"
              aria-label="Link"
              title="Link"
              aria-pressed={editor.isActive("link")}
              onClick={() => setLinking(true)}
            >
              <Icon path="M10 13a5 5 0 0 0 7 0l3-3a5 5 0 0 0-7-7l-1 1m2 7a5 5 0 0 0-7 0l-3 3a5 5 0 0 0 7 7l1-1" />
            </button>
          </Toolbar>
          {opened && options}
        </div>
      )}
      {/* biome-ignore lint/a11y/noStaticElementInteractions: keys do all that the handle does */}
      <div
        className="paper"
        onMouseMove={({ clientY }) => editor && setHovered(blockAtHeight(editor, clientY))}
        onMouseLeave={() => setHovered(undefined)}
        style={lookOf(brand)}
      >
        {editor && !readOnly && <Handle editor={editor} block={hovered ?? blockOf(editor.state.selection)} />}
        <div ref={place} />
        {!opened && options}
      </div>
      {block &&
        !readOnly &&
        values &&
        createPortal(<Panel key={block.from} {...{ editor, block, tags }} onClose={closePanel} />, values)}
      <Notice>{upload.isPending && "Uploading…"}</Notice>
      <Problem error={upload.error} />
      {!readOnly && <p className="muted">{WORDS}</p>}
      {editor && isLinking && <LinkDialog editor={editor} tags={tags} onClose={() => setLinking(false)} />}
    </div>
  );
}

interface LinkDialogProps {
  editor: Editor;
  tags: readonly string[];
  onClose: () => void;
}

function LinkDialog({ editor, tags, onClose }: LinkDialogProps) {
  const current = editor.getAttributes("link")["href"] as string | undefined;
  const needsText = editor.state.selection.empty && current === undefined;
  useEffect(() => () => void editor.commands.focus(), [editor]);
  const save = async ({ href = "", text }: Record<string, string>) => {
    const url = linkOf(href);
    const problem = linkProblem(url);
    if (problem) throw new HttpRefusal({ message: problem, status: 400, param: "href", problems: { href: problem } });
    const chain = editor.chain().extendMarkRange("link");
    const link = { type: "text", text: text || url, marks: [{ type: "link", attrs: { href: url } }] };
    (url === "" ? chain.unsetLink() : needsText ? chain.insertContent(link) : chain.setLink({ href: url })).run();
    return "";
  };
  return (
    <Dialog title="Link" onClose={onClose}>
      <Form
        submit="Save link"
        inputs={[
          [
            "href",
            "Address",
            {
              suggestions: linkTags(tags),
              hint: "https://…, an email address or a merge tag. Leave empty for no link.",
            },
          ],
          ...(needsText ? [["text", "Text", { required: true }] as const] : []),
        ]}
        values={{ href: current }}
        onSubmit={save}
        onDone={onClose}
        onCancel={onClose}
      />
    </Dialog>
  );
}

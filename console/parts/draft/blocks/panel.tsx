import type { Editor } from "@tiptap/core";
import { useState } from "react";
import { NETWORKS } from "../../../../lib/mail-style.ts";
import { Field, type FieldProps } from "../../form.tsx";
import { PickImage } from "../../images.tsx";
import { type Block, caretAfter, setValues } from "./commands.ts";
import { imageValues, isOwn, type SocialLink } from "./schema.ts";
import { linkOf, linkProblem, linkTags, NAMES, tagName, tagNames } from "./text.ts";

type Input = readonly [name: string, label: string, more?: Omit<FieldProps, "name" | "label">];

const ALIGN: Input = ["align", "Alignment", { choices: { "": "Centre", left: "Left", right: "Right" } }];
const WHITE = "#ffffff";
const LINK: Input = ["href", "Link", { placeholder: "https://… or {{ tag }}" }];
const INPUTS: Readonly<Record<string, readonly Input[]>> = {
  image: [
    ["src", "Image address", { type: "url", placeholder: "https://…" }],
    ["alt", "Alternative text", { maxLength: 500, placeholder: "Where it is not seen" }],
    ["width", "Width in pixels", { type: "number", min: 1, max: 1_200 }],
    LINK,
    ALIGN,
    ["shape", "Shape", { choices: { "": "As it is", round: "Round" } }],
  ],
  button: [
    ["label", "Text", { maxLength: 200 }],
    LINK,
    ["look", "Style", { choices: { "": "Filled", outline: "Outline" } }],
    ["align", "Alignment", { choices: { ...ALIGN[2]?.choices, full: "Full width" } }],
  ],
  spacer: [["height", "Height in pixels", { type: "number", min: 4, max: 120 }]],
  html: [["html", "HTML", { rows: 8, className: "code", spellCheck: false }]],
  columns: [
    // The white of the mail is none of the area's own: it is dark in the dark.
    ["background", "Background", { type: "color" }],
    ["widths", "Widths of two columns", { choices: { "": "Equal", "1:2": "1/3 and 2/3", "2:1": "2/3 and 1/3" } }],
  ],
  mergeTag: [
    ["fallback", "For people without one", { maxLength: 200, hint: "As “there” in “Hello there”. Then press Enter." }],
  ],
};

/** @param current may be a name that a writer has typed */
const tagChoices = (tags: readonly string[], current: string) => ({
  ...(tags.includes(current) ? {} : { [current]: `${tagName(current)} (unknown in this email)` }),
  ...tagNames(tags),
});

interface PanelProps {
  editor: Editor;
  block: Block;
  tags: readonly string[];
  onClose: () => void;
}

/** The values of the selected block. */
export function Panel({ editor, block, tags, onClose }: PanelProps) {
  const name = block.node.type.name;
  const set =
    (key: string, type = "") =>
    (value: string) => {
      const isNone = (value === "" || value === WHITE) && block.node.type.spec.attrs?.[key]?.default === null;
      setValues(editor, block, { [key]: isNone ? null : type === "number" ? Number(value) : value });
    };
  const inputs: readonly Input[] = [
    ...(INPUTS[name] ?? []).filter(([key]) =>
      key === "widths" ? block.node.childCount === 2 : key !== "src" || !isOwn(block.node.attrs["src"]),
    ),
    ...(name === "mergeTag"
      ? [["name", "Shows", { choices: tagChoices(tags, block.node.attrs["name"]) }] as const]
      : []),
  ];
  if (inputs.length === 0 && name !== "socialLinks") return null;
  return (
    <fieldset
      className="card panel fields"
      onKeyDown={({ key, target }) => {
        if (key !== "Escape" && (key !== "Enter" || !(target instanceof HTMLInputElement))) return;
        const next = editor.state.doc.resolve(block.from + block.node.nodeSize).nodeAfter;
        // Nothing is added between two blocks.
        if (block.node.isInline || (key === "Enter" && (!next || next.isTextblock))) caretAfter(editor, block);
        else editor.commands.focus();
      }}
    >
      <legend>{name === "columns" && block.node.childCount === 1 ? "Area" : NAMES[name]}</legend>
      {name === "image" && (
        <PickImage
          onPick={(image) => {
            setValues(editor, block, imageValues(image));
            caretAfter(editor, block);
          }}
        />
      )}
      {inputs.map(([key, label, more]) => {
        const value = String(block.node.attrs[key] ?? (more?.type === "color" ? WHITE : ""));
        const field = { ...{ name: `block-${key}`, label, value, onChange: set(key, more?.type) }, ...more };
        return key === "href" ? (
          <LinkField key={key} {...{ ...field, editor, block, tags }} />
        ) : (
          <Field key={key} {...field} />
        );
      })}
      {name === "socialLinks" && <SocialInputs editor={editor} block={block} />}
      <button type="button" className="icon" aria-label="Close the settings" onClick={onClose}>
        ✕
      </button>
    </fieldset>
  );
}

/** The link of a block, which is completed and checked once the writer leaves it. */
function LinkField({ editor, block: { from }, tags, ...field }: Omit<PanelProps, "onClose"> & FieldProps) {
  const [isLeft, setLeft] = useState(true);
  const leave = () => {
    setLeft(true);
    const typed: string = editor.state.doc.nodeAt(from)?.attrs["href"] ?? "";
    const link = linkOf(typed);
    // The selection stays: it may be elsewhere by now.
    if (link !== typed) editor.commands.command(({ tr }) => Boolean(tr.setNodeAttribute(from, "href", link)));
  };
  return (
    <Field
      {...field}
      suggestions={linkTags(tags)}
      problem={isLeft ? linkProblem(field.value ?? "") : undefined}
      onFocus={() => setLeft(false)}
      onBlur={leave}
      onKeyDown={({ key }) => key === "Enter" && leave()}
    />
  );
}

function SocialInputs({ editor, block }: Pick<PanelProps, "editor" | "block">) {
  const links = block.node.attrs["links"] as SocialLink[];
  return (
    <>
      {Object.entries(NETWORKS).map(([network, label]) => (
        <Field
          key={network}
          name={`block-${network}`}
          type="url"
          label={label}
          value={links.find((link) => link.network === network)?.href ?? ""}
          onChange={(href) => {
            const all = Object.keys(NETWORKS).map((name) =>
              name === network ? { network, href } : links.find((link) => link.network === name),
            );
            const given = all.filter((link) => link?.href);
            setValues(editor, block, { links: given });
          }}
        />
      ))}
    </>
  );
}

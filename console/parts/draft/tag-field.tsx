import { type KeyboardEvent, type RefObject, useState } from "react";
import { Field } from "../form.tsx";

type Element = HTMLInputElement | HTMLTextAreaElement;

interface TagFieldProps {
  label: string;
  name: string;
  value: string;
  onChange: (value: string) => void;
  /** Offered behind `{{`. */
  tags: readonly string[];
  field: RefObject<Element | null>;
  readOnly: boolean;
  problem?: string | undefined;
  hint?: string;
  /** Lines of text; one unless given. */
  rows?: number;
}

/** Where a merge tag is being typed: from its braces to the cursor. */
const BEGUN = /\{\{[ ]?([\w.]*)$/;

/** A text with merge tags: behind `{{` it offers those that there are. */
export function TagField({ name, value, onChange, tags, field, readOnly, rows, ...rest }: TagFieldProps) {
  const [typed, setTyped] = useState<string>();
  const [chosen, setChosen] = useState(0);
  const options = typed === undefined ? [] : tags.filter((tag) => tag.includes(typed));
  const isOpen = options.length > 0;
  const active = Math.min(chosen, options.length - 1);

  const look = ({ value: text, selectionStart, selectionEnd }: Element) => {
    const isTyping = selectionStart === selectionEnd && !readOnly;
    setTyped(isTyping ? BEGUN.exec(text.slice(0, selectionStart ?? 0))?.[1] : undefined);
  };
  const insert = (tag: string) => {
    const { current: element } = field;
    if (!element) return;
    const end = element.selectionStart ?? 0;
    const begin = end - (BEGUN.exec(element.value.slice(0, end))?.[0].length ?? 0);
    const closed = /^ ?\}\}/.exec(element.value.slice(end))?.[0].length ?? 0;
    element.focus();
    element.setSelectionRange(begin, end + closed);
    // Deprecated, but the only change that can be undone by keyboard.
    document.execCommand("insertText", false, `{{ ${tag} }}`);
    setTyped(undefined);
  };
  const press = (event: KeyboardEvent) => {
    if (!isOpen) return;
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const tag = options[active];
    if (step !== undefined) setChosen((active + step + options.length) % options.length);
    else if ((event.key === "Enter" || event.key === "Tab") && tag !== undefined) insert(tag);
    else if (event.key === "Escape") setTyped(undefined);
    else return;
    event.preventDefault();
  };

  const sharedOf = (id: string, describedBy: string | undefined) => ({
    ...{ id, name, value, readOnly, spellCheck: rows === undefined, autoComplete: "off" },
    "aria-autocomplete": "list" as const,
    "aria-controls": isOpen ? `${id}-tags` : undefined,
    "aria-activedescendant": isOpen ? `${id}-${active}` : undefined,
    "aria-describedby": describedBy,
    "aria-invalid": rest.problem ? true : undefined,
    onChange: ({ currentTarget }: { currentTarget: Element }) => {
      setChosen(0);
      onChange(currentTarget.value);
      look(currentTarget);
    },
    onSelect: ({ currentTarget }: { currentTarget: Element }) => look(currentTarget),
    onBlur: () => setTyped(undefined),
    onKeyDown: press,
  });
  const control = (id: string, describedBy: string | undefined) => (
    <>
      {rows === undefined ? (
        <input ref={field as RefObject<HTMLInputElement>} {...sharedOf(id, describedBy)} />
      ) : (
        <textarea
          ref={field as RefObject<HTMLTextAreaElement>}
          className="code"
          rows={rows}
          {...sharedOf(id, describedBy)}
        />
      )}
      {isOpen && (
        <div id={`${id}-tags`} className="tags" role="listbox" aria-label="Merge tags">
          {options.map((tag, index) => (
            // biome-ignore lint/a11y/useFocusableInteractive: the field keeps the focus, and its keys choose
            <div
              key={tag}
              id={`${id}-${index}`}
              role="option"
              aria-selected={index === active}
              onMouseDown={(event) => {
                event.preventDefault();
                insert(tag);
              }}
            >
              {tag}
            </div>
          ))}
        </div>
      )}
    </>
  );
  return <Field name={name} control={control} {...rest} />;
}

/** Puts the cursor at a place of the text, both counted from 1. The browser scrolls to it as the field takes the focus. */
export function goTo(element: Element, line: number, column: number): void {
  const before = element.value.split("\n").slice(0, line - 1);
  const place = before.reduce((sum, { length }) => sum + length + 1, column - 1);
  element.blur();
  element.setSelectionRange(place, place);
  element.focus();
}

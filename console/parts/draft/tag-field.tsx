import { type KeyboardEvent, type SyntheticEvent, useId, useState } from "react";
import { Field, type FieldProps } from "../form.tsx";

/** An input, or a text area: both have all that is used here. */
type Element = HTMLInputElement;

interface TagFieldProps extends FieldProps {
  /** Offered behind `{{`. */
  tags: readonly string[];
}

/** Where a merge tag is being typed: from its braces to the cursor. */
const BEGUN = /\{\{[ ]?([\w.]*)$/;

/** A text with merge tags: behind `{{` it offers those that there are. */
export function TagField({ tags, ...field }: TagFieldProps) {
  const id = useId();
  const [typed, setTyped] = useState<{ element: Element; text: string }>();
  const [chosen, setChosen] = useState(0);
  const options = typed ? tags.filter((tag) => tag.includes(typed.text)) : [];
  const isOpen = options.length > 0;
  const active = Math.min(chosen, options.length - 1);

  const look = ({ currentTarget: element }: SyntheticEvent<Element>) => {
    const { value, selectionStart, selectionEnd, readOnly } = element;
    const isTyping = selectionStart === selectionEnd && !readOnly;
    const text = isTyping ? BEGUN.exec(value.slice(0, selectionStart ?? 0))?.[1] : undefined;
    setTyped(text === undefined ? undefined : { element, text });
  };
  const insert = (tag: string) => {
    if (!typed) return;
    const { element } = typed;
    const end = element.selectionStart ?? 0;
    const begin = end - (BEGUN.exec(element.value.slice(0, end))?.[0].length ?? 0);
    const closed = /^ ?\}\}/.exec(element.value.slice(end))?.[0].length ?? 0;
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

  return (
    <div className="field">
      <Field
        {...field}
        className={field.rows ? "code" : undefined}
        spellCheck={!field.rows}
        autoComplete="off"
        aria-autocomplete="list"
        aria-controls={isOpen ? id : undefined}
        aria-activedescendant={isOpen ? `${id}-${active}` : undefined}
        onInput={(event) => {
          setChosen(0);
          look(event);
        }}
        onSelect={look}
        onBlur={() => setTyped(undefined)}
        onKeyDown={press}
      />
      {isOpen && (
        <div id={id} className="tags" role="listbox" aria-label="Merge tags">
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
    </div>
  );
}

/** Puts the cursor at a place of the text, both counted from 1. The browser scrolls to it as the field takes the focus. */
export function goTo(element: HTMLTextAreaElement, line: number, column: number): void {
  const before = element.value.split("\n").slice(0, line - 1);
  const place = before.reduce((sum, { length }) => sum + length + 1, column - 1);
  element.blur();
  element.setSelectionRange(place, place);
  element.focus();
}

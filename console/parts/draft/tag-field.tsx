import { type KeyboardEvent, type SyntheticEvent, useId, useState } from "react";
import { Field, type FieldProps } from "../form.tsx";

interface TagFieldProps extends FieldProps {
  /** Offered behind `{{`. */
  tags: readonly string[];
}

/** Where a merge tag is being typed: from its braces to the cursor. */
const BEGUN = /\{\{[ ]?([\w.]*)$/;

/** A text with merge tags: behind `{{` it offers those that there are. */
export function TagField({ tags, ...field }: TagFieldProps) {
  const id = useId();
  const [typed, setTyped] = useState<{ element: HTMLInputElement; text: string }>();
  const [chosen, setChosen] = useState(0);
  const options = typed ? tags.filter((tag) => tag.includes(typed.text)) : [];
  const isOpen = options.length > 0;
  const active = Math.min(chosen, options.length - 1);

  const look = ({ currentTarget: element }: SyntheticEvent<HTMLInputElement>) => {
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
        spellCheck
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

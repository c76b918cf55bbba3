import { useRef } from "react";
import { Field, type FieldProps, ListSelect } from "../form.tsx";
import { needsFallback, tagNames } from "./blocks/text.ts";

interface TagFieldProps extends FieldProps {
  tags: readonly string[];
}

const FALLBACK = "there";

/** A text with merge tags, which the choice below it inserts. */
export function TagField({ tags, ...field }: TagFieldProps) {
  const ref = useRef<HTMLDivElement>(null);
  const insert = (tag: string) => {
    const input = ref.current?.querySelector<HTMLInputElement>(`[name=${field.name}]`);
    if (!input || !tag) return;
    input.focus();
    const end = needsFallback(tag) ? ` | default: "${FALLBACK}" }}` : " }}";
    // Deprecated, but the only change that can be undone by keyboard.
    document.execCommand("insertText", false, `{{ ${tag}${end}`);
    // The writer is asked for another fallback.
    const after = (input.selectionEnd ?? 0) - 4;
    if (needsFallback(tag)) input.setSelectionRange(after - FALLBACK.length, after);
  };
  return (
    <div ref={ref} className="tagged">
      <Field {...field} spellCheck autoComplete="off" />
      {!field.readOnly && (
        <ListSelect
          aria-label={`Personalise: ${field.label}`}
          value=""
          title="Personalise"
          choices={{ "": "{ }", ...tagNames(tags) }}
          onChange={insert}
        />
      )}
    </div>
  );
}

import { autocompletion, type Completion, type CompletionContext } from "@codemirror/autocomplete";
import { html } from "@codemirror/lang-html";
import { syntaxHighlighting } from "@codemirror/language";
import { type Diagnostic, lintGutter, setDiagnostics } from "@codemirror/lint";
import { EditorState } from "@codemirror/state";
import { classHighlighter } from "@lezer/highlight";
import { basicSetup, EditorView } from "codemirror";
import { useEffect, useRef } from "react";
import type { BodyProps } from "./drafts.ts";

/** In the colours of the console, which a shadow root inherits. */
const THEME = EditorView.theme({
  "&": { height: "36rem", border: "1px solid var(--muted)", borderRadius: "6px", fontSize: "0.9rem" },
  "&.cm-focused": { outline: "3px solid var(--accent)", outlineOffset: "2px" },
  ".cm-scroller": { fontFamily: "ui-monospace, monospace" },
  ".cm-content": { caretColor: "var(--text)" },
  ".cm-cursor": { borderLeftColor: "var(--text)" },
  ".cm-activeLine, .cm-activeLineGutter": { backgroundColor: "transparent" },
  ".cm-gutters, .cm-panels, .cm-tooltip": { backgroundColor: "var(--raised)", color: "var(--text)" },
  ".cm-gutters": { borderColor: "var(--line)" },
  "&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground": {
    backgroundColor: "light-dark(#b9d7f7, #1d4875)",
  },
  ".cm-textfield, .cm-button": { backgroundImage: "none", background: "var(--ground)", color: "var(--text)" },
  ".tok-typeName, .tok-keyword": { color: "var(--accent)" },
  ".tok-string, .tok-string2, .tok-atom, .tok-number": { color: "var(--good)" },
  ".tok-propertyName": { color: "var(--purple)" },
  ".tok-comment, .tok-meta, .tok-punctuation": { color: "var(--muted)" },
});

/** Those of the text if all its lines end alike; others stay characters of their lines, so that no byte is rewritten. */
const separatorOf = (text: string) => (text.includes("\r\n") && !/\r(?!\n)|(?<!\r)\n/.test(text) ? "\r\n" : "\n");

/** Where a line of the text is longer, lines are not wrapped: each key would lay out the whole line. */
const MAX_WRAPPED_CHARS = 20_000;
const hasLongLine = (text: string) => text.split(/\r\n?|\n/).some((line) => line.length > MAX_WRAPPED_CHARS);

interface HtmlProps extends BodyProps {
  /** The message of a refusal, which may name a place. */
  problem: string | undefined;
}

/** Edits HTML as it is, byte for byte. */
export function HtmlEditor({ value, onChange, tags, readOnly, problem }: HtmlProps) {
  const place = useRef<HTMLDivElement>(null);
  const view = useRef<EditorView>(undefined);
  const now = useRef({ onChange, tags, readOnly });
  useEffect(() => {
    now.current = { onChange, tags, readOnly };
  });
  useEffect(() => {
    if (!place.current || view.current?.state.sliceDoc() === value) return;
    const separator = separatorOf(value);
    const state = EditorState.create({
      doc: value,
      extensions: [
        basicSetup,
        html({ autoCloseTags: false }),
        autocompletion({ override: [(context) => completeTags(context, now.current.tags)] }),
        syntaxHighlighting(classHighlighter),
        lintGutter(),
        THEME,
        hasLongLine(value) ? [] : EditorView.lineWrapping,
        EditorView.contentAttributes.of({ "aria-label": "HTML" }),
        EditorState.lineSeparator.of(separator),
        EditorView.clipboardInputFilter.of((text) => text.replace(/\r\n?|\n/g, separator)),
        EditorState.readOnly.of(now.current.readOnly),
        EditorView.updateListener.of(({ docChanged, state }) => {
          if (docChanged) now.current.onChange(state.sliceDoc());
        }),
      ],
    });
    // Others may have changed it.
    if (view.current) return view.current.setState(state);
    // A shadow root takes the editor's styles as objects; the policy of the page takes no style elements.
    const root = place.current.shadowRoot ?? place.current.attachShadow({ mode: "open" });
    view.current = new EditorView({ state, parent: root, root });
  }, [value]);
  useEffect(
    () => () => {
      view.current?.destroy();
      view.current = undefined;
    },
    [],
  );
  useEffect(() => {
    if (!view.current) return;
    const { state } = view.current;
    view.current.dispatch(setDiagnostics(state, problem === undefined ? [] : diagnosticsOf(state, problem)));
  }, [problem]);
  return <div ref={place} />;
}

/** At the place that a refusal names, both numbers counted from 1. */
function diagnosticsOf({ doc }: EditorState, message: string): Diagnostic[] {
  const [, line, column] = /line (\d+), column (\d+)/.exec(message) ?? [];
  if (!line || Number(line) > doc.lines) return [];
  const { from, to } = doc.line(Number(line));
  return [{ from: Math.min(from + Number(column) - 1, to), to, severity: "error", message }];
}

function completeTags(context: CompletionContext, tags: readonly string[]) {
  const begun = context.matchBefore(/\{\{ ?[\w.]*/);
  if (!begun) return null;
  // Brackets that the editor has closed by itself are replaced, too.
  const closed = /^ ?\}{0,2}/.exec(context.state.sliceDoc(context.pos, context.pos + 3))?.[0].length ?? 0;
  const apply = (view: EditorView, { label }: Completion, from: number, to: number) => {
    view.dispatch({ changes: { from, to: to + closed, insert: label }, selection: { anchor: from + label.length } });
  };
  return { from: begun.from, options: tags.map((tag) => ({ label: `{{ ${tag} }}`, apply })) };
}

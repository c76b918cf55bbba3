import { useMutation, useQueryClient } from "@tanstack/react-query";
import { type ReactNode, useEffect, useEffectEvent, useId, useRef, useState } from "react";
import { HttpRefusal, Kept, problemOf, refusalOf } from "../../api.ts";
import { useRole, useWorkspace } from "../../session.tsx";
import { useEdit } from "../edit.tsx";
import { assertValid, Field, focusRefused, RefusedBy } from "../form.tsx";
import { Problem, timeText } from "../page.tsx";
import type { Kind } from "../send/calls.ts";
import { useUnsaved } from "../unsaved.tsx";
import { linesOfText, refusedPlace } from "./blocks/text.ts";
import { Body } from "./body.tsx";
import { type Content, changesFrom, contentOf, isHtml, type Place, saveEdits, type Written } from "./content.ts";
import { type Draft, IN_TURN, useAccounts, useContent, useSettings } from "./drafts.ts";
import { TagField } from "./tag-field.tsx";
import { Recipients } from "./targets.tsx";

/** From the last change on. */
const AUTOSAVE_MS = 1_500;
/** From the first change on; after a failure that may pass, from there on. */
const MAX_WAIT_MS = 10_000;

const NOT_SAVED = new HttpRefusal({ message: "Not saved: sign in again." });

/** Without a value a draft cannot be sent. */
const FIRST_EMPTY = ':is([name="from_email"], [name="subject"])[value=""]';

/** Blocks as a member can compare them. */
const withLines = (data: Written) => ({ ...data, text: linesOfText(contentOf(data, []).blocks) });

/** The content of a draft. */
export function DraftEditor(
  of: Pick<EditorProps, "onDirty" | "shown"> & { kind: Kind; draft: Draft; children: ReactNode },
) {
  const { kind, draft, onDirty, shown, children } = of;
  const accounts = useAccounts();
  const { merge_tags: tags } = useSettings(kind, draft.id);
  const place = useContent(kind, draft.id);
  const sender = kind === "newsletter" ? "from_email" : "from_name";
  const [isOpen] = useState("from_email" in draft && !draft.from_email);
  const from: EditorProps["children"] = (input) => (
    <details className="stack" open={isOpen}>
      <summary>{["From", input(sender).value].filter(Boolean).join(": ")}</summary>
      <div className="fields">
        <Field label="Name" required maxLength={200} hint="Only your team sees it." {...input("name")} />
        {kind === "newsletter" && (
          <Field
            label="From address"
            type="email"
            suggestions={accounts.map(({ email }) => email)}
            hint="The address of a connected account, or one at a domain it may send for."
            {...input("from_email")}
          />
        )}
        <Field
          label="From name"
          maxLength={200}
          hint="Leave empty to use the sending account's name."
          {...input("from_name")}
        />
      </div>
    </details>
  );
  const bar = { send: children, first: <Recipients kind={kind} draft={draft} /> };
  return (
    <Editor {...{ place, draft, tags, onDirty, shown, ...bar }} mayWrite={useRole("EDITOR")}>
      {from}
    </Editor>
  );
}

/** Of blocks that were saved before the brand was changed: a save puts them into the new one. */
export const OldBrand = ({ isDisabled, onApply }: { isDisabled: boolean; onApply: () => void }) => (
  <p className="notice">
    The brand has changed since this email was saved.{" "}
    <button type="button" disabled={isDisabled} onClick={onApply}>
      Use the brand's present colours
    </button>
  </p>
);

/** What a controlled field takes, by its name. */
export type InputOf = (name: string) => {
  name: string;
  value: string;
  readOnly: boolean;
  onChange: (value: string) => void;
};

interface EditorProps {
  place: Place;
  draft: Written;
  tags: readonly string[];
  mayWrite: boolean;
  onDirty?: ((isDirty: boolean) => void) | undefined;
  /** The place that is to be shown, as `ShowPlace` says. */
  shown?: readonly number[] | undefined;
  /** In the bar that stays. */
  send?: ReactNode;
  /** Below that bar. */
  first?: ReactNode;
  /** Above the subject. */
  children?: (input: InputOf) => ReactNode;
  /** Says what the writer has to add before a save; then the subject is required. */
  missing?: (content: Content) => string | undefined;
  /** It has never been saved. */
  isNew?: boolean;
}

/** Edits the text of a mail. */
export function Editor({ place, draft, tags, mayWrite, onDirty, shown, children, ...is }: EditorProps) {
  const { isNew, send, first } = is;
  const { base } = useWorkspace();
  const { read, fields, isAutosaved } = place;
  const queries = useQueryClient();
  const queryKey = [base, ...place.queryKey];
  const { saveFrom, dialog } = useEdit({
    id: draft.id,
    read: async () => ({ data: withLines((await read()).data) }),
    shown: () => withLines(queries.getQueryData(queryKey) ?? draft),
  });
  const began = useRef(draft);
  const [edits, setEdits] = useState<Partial<Content>>({});
  const [savedAt, setSavedAt] = useState<Date>();
  const refused = useRef<{ edits: Partial<Content>; isLasting: boolean }>(undefined);
  const [shownPath, setShownPath] = useState<readonly number[]>();
  const form = useRef<HTMLFormElement>(null);
  const formId = useId();
  // Fields without edits follow the saves of other members.
  const saved = contentOf(draft, fields);
  const content = { ...saved, ...edits } as Content;
  const changes = changesFrom(saved, edits);
  const isDirty = Object.keys(changes).length > 0;
  const missing = is.missing?.(content);

  useEffect(() => {
    // The focus is on the page, not on a part of it.
    if (document.activeElement?.contains(form.current)) form.current?.querySelector<HTMLElement>(FIRST_EMPTY)?.focus();
  }, []);
  useEffect(() => {
    const subject = shown?.length === 0 && form.current?.querySelector<HTMLInputElement>('[name="subject"]');
    if (!subject) return setShownPath(shown);
    subject.focus();
    subject.select();
  }, [shown]);
  useEffect(() => onDirty?.(isDirty), [isDirty, onDirty]);
  useEffect(() => {
    const save = (event: KeyboardEvent) => {
      if (!(event.ctrlKey || event.metaKey) || event.key.toLowerCase() !== "s") return;
      event.preventDefault();
      form.current?.requestSubmit();
    };
    window.addEventListener("keydown", save);
    return () => window.removeEventListener("keydown", save);
  }, []);
  const { mutate, mutateAsync, isPending, error } = useMutation({
    ...IN_TURN,
    /** @param again what is saved although it was not changed */
    mutationFn: async (again: Partial<Content> | null) => {
      assertValid(form.current);
      const given = { ...again, ...changes };
      const data = await saveEdits(saveFrom, place, began.current, given);
      await queries.cancelQueries({ queryKey, exact: true });
      queries.setQueryData(queryKey, (before: Written) => ({ ...before, ...data }));
      began.current = { ...draft, ...data };
      setSavedAt(new Date());
      // Text that was typed meanwhile stays.
      setEdits((now) => changesFrom(content, now));
    },
    onError: (thrown) => {
      if (thrown instanceof Kept) return setEdits({});
      const { status = 503 } = refusalOf(thrown);
      refused.current = { edits, isLasting: status < 500 && status !== 429 };
    },
  });
  const unsaved = useUnsaved({ isChanged: () => isDirty, save: isAutosaved ? () => mutateAsync(null) : undefined });
  const save = useEffectEvent(() => mutate(null));
  const changedAt = useRef<number>(undefined);
  useEffect(() => {
    const isAgain = refused.current?.edits === edits;
    if (!isDirty || isPending || missing) changedAt.current = undefined;
    if (!isAutosaved || !isDirty || isPending || missing || (isAgain && refused.current?.isLasting)) return;
    changedAt.current ??= Date.now();
    const waitMs = Math.min(AUTOSAVE_MS, changedAt.current + MAX_WAIT_MS - Date.now());
    const timer = setTimeout(save, isAgain ? MAX_WAIT_MS : waitMs);
    window.addEventListener("online", save);
    return () => {
      clearTimeout(timer);
      window.removeEventListener("online", save);
    };
  }, [edits, isAutosaved, isDirty, isPending, missing]);

  const edit = (given: Partial<Content>) => {
    const names = Object.keys(given).filter((name) => !(name in changes));
    // The edit of a field begins with what it shows.
    const seen = Object.fromEntries(names.map((name) => [name, saved[name]]));
    if (names.length > 0) began.current = { ...(isDirty ? began.current : draft), ...seen };
    setEdits((before) => ({ ...before, ...given }));
  };
  const input: InputOf = (name) => ({
    name,
    value: content[name] ?? "",
    readOnly: !mayWrite,
    onChange: (value: string) => edit({ [name]: value }),
  });
  const refusal = error && !(error instanceof Kept) ? refusalOf(error) : undefined;
  const refusedAt = refusedPlace(content["blocks"] ?? "", refusal?.param);
  const last = savedAt ?? new Date(draft.updated_at);

  return (
    <div className="stack editor">
      {mayWrite && (
        <div className="head save">
          <div className="actions">
            <button
              type="submit"
              form={formId}
              className={send ? undefined : "primary"}
              disabled={isPending || !isDirty}
            >
              Save
            </button>
            <span className="muted" role="status">
              {isPending
                ? "Saving…"
                : isDirty || (isNew && !savedAt)
                  ? ["Not saved yet", missing].filter(Boolean).join(": ")
                  : `Saved ${timeText(last)}`}
            </span>
          </div>
          {send}
        </div>
      )}
      {first}
      <form
        ref={form}
        id={formId}
        noValidate
        aria-label="Content"
        onBlur={({ target }) =>
          target.name === "subject" && !content.subject && missing && "subject" in edits && mutate(null)
        }
        onSubmit={(event) => {
          event.preventDefault();
          if (isDirty && !isPending) mutate(null, { onError: (thrown) => focusRefused(form.current, thrown) });
        }}
      >
        <RefusedBy value={error}>
          {children?.(input)}
          <TagField label="Subject" tags={tags} required={is.missing !== undefined} {...input("subject")} />
          {!isHtml(content) && (
            <TagField
              label="Preheader"
              maxLength={500}
              placeholder="If empty: how the text begins"
              tags={tags}
              {...input("preheader")}
            />
          )}
        </RefusedBy>
      </form>
      {draft.is_of_old_brand && mayWrite && (
        <OldBrand isDisabled={isPending} onApply={() => mutate({ blocks: content.blocks })} />
      )}
      <Body
        content={content}
        onChange={edit}
        compile={async () => {
          if (isDirty) await mutateAsync(null);
          return (await read()).data.body ?? "";
        }}
        tags={tags}
        readOnly={!mayWrite}
        problem={error ? problemOf(error, "body") : undefined}
        shownPath={shownPath}
      />
      {error && (
        <div className="stays">
          {refusedAt ? (
            <div className="problem" role="alert">
              <p>{`${refusedAt.words} ${problemOf(error, refusal?.param ?? "")?.replace(/^./, (letter) => letter.toLowerCase())}`}</p>
              <button type="button" onClick={() => setShownPath([...refusedAt.path])}>
                Show it
              </button>
            </div>
          ) : (
            <Problem error={refusal?.status === 401 ? NOT_SAVED : error} />
          )}
        </div>
      )}
      {unsaved}
      {dialog}
    </div>
  );
}

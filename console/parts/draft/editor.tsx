import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useBlocker } from "@tanstack/react-router";
import { useEffect, useRef, useState } from "react";
import { Kept, refusalOf } from "../../api.ts";
import { useRole, useWorkspace } from "../../session.tsx";
import { useAccounts } from "../account.tsx";
import { Dialog } from "../dialog.tsx";
import { useEdit } from "../edit.tsx";
import { Field, RefusedBy } from "../form.tsx";
import { Problem } from "../page.tsx";
import { type Kind, useCalls } from "../send/calls.ts";
import { type Draft, useSettings } from "./drafts.ts";
import { goTo, TagField } from "./tag-field.tsx";

const FIELDS = ["name", "subject", "from_email", "from_name", "body"] as const;
type Name = (typeof FIELDS)[number];
type Content = Record<Name, string>;

/** "" for none. */
const contentOf = (draft: Partial<Record<Name, string | null>>) =>
  Object.fromEntries(FIELDS.map((name) => [name, draft[name] ?? ""])) as Content;

/** The edits that differ from a content. */
const changesFrom = (content: Content, edits: Partial<Content>): Partial<Content> =>
  Object.fromEntries(Object.entries(edits).filter(([name, value]) => value !== content[name as Name]));

interface EditorProps {
  kind: Kind;
  draft: Draft;
  onDirty: (isDirty: boolean) => void;
}

/** The content of a draft, which is saved as a whole. */
export function Editor({ kind, draft, onDirty }: EditorProps) {
  const { base } = useWorkspace();
  const { calls, params } = useCalls(kind, draft.id);
  const read = (): Promise<{ data: Draft }> => calls.drafts.retrieve.query({ params });
  const { saveFrom, dialog } = useEdit({ id: draft.id, read });
  const began = useRef(draft);
  const queries = useQueryClient();
  const mayWrite = useRole("EDITOR");
  const [edits, setEdits] = useState<Partial<Content>>({});
  const form = useRef<HTMLFormElement>(null);
  const { merge_tags: tags } = useSettings(kind, draft.id);
  const accounts = useAccounts();
  // Fields without edits follow the saves of other members.
  const saved = contentOf(draft);
  const content = { ...saved, ...edits };
  const changes = changesFrom(saved, edits);
  const isDirty = Object.keys(changes).length > 0;

  useEffect(() => onDirty(isDirty), [isDirty, onDirty]);
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
    mutationFn: async () => {
      const body = Object.fromEntries(Object.entries(changes).map(([name, value]) => [name, value || null]));
      const write = (options: object): Promise<{ data: Partial<Draft> }> =>
        calls.drafts.update.mutate({ params, body }, options);
      const { data } = await saveFrom(began.current, body, write);
      const queryKey = [base, `${kind}s`, draft.id];
      await queries.cancelQueries({ queryKey, exact: true });
      queries.setQueryData(queryKey, (before: Draft) => ({ ...before, ...data }));
      began.current = { ...draft, ...data } as Draft;
      // Text that was typed meanwhile stays.
      setEdits((now) => changesFrom(content, now));
    },
    onError: (thrown) => {
      if (thrown instanceof Kept) setEdits({});
      const { param, message } = refusalOf(thrown);
      const [, line, column] = /line (\d+), column (\d+)/.exec(message) ?? [];
      const field = form.current?.elements.namedItem(param ?? "") as HTMLTextAreaElement | null | undefined;
      if (field && line) goTo(field, Number(line), Number(column));
    },
  });
  const input = (name: Name) => ({
    name,
    value: content[name],
    readOnly: !mayWrite,
    onChange: (value: string) => {
      // The edit of a field begins with what it shows.
      if (!(name in changes)) began.current = { ...(isDirty ? began.current : draft), [name]: saved[name] };
      setEdits((before) => ({ ...before, [name]: value }));
    },
  });

  return (
    <form
      ref={form}
      aria-label="Content"
      onSubmit={(event) => {
        event.preventDefault();
        if (isDirty && !isPending) mutate();
      }}
    >
      <RefusedBy value={error}>
        <Field label="Name" required maxLength={200} hint="For the team alone." {...input("name")} />
        <TagField label="Subject" tags={tags} {...input("subject")} />
        {kind === "newsletter" && (
          <Field
            label="Sender's address"
            type="email"
            suggestions={accounts.map(({ email }) => email)}
            hint="Of a connected account, or of a domain that one may send for."
            {...input("from_email")}
          />
        )}
        <Field
          label="Sender's name"
          maxLength={200}
          hint="Empty: the name of the sending account."
          {...input("from_name")}
        />
        <TagField
          label="HTML"
          rows={24}
          hint="Type {{ for a person's data. Without a link to unsubscribe it gets one at its end."
          tags={tags}
          {...input("body")}
        />
      </RefusedBy>
      <Problem error={error} form={form.current} />
      {mayWrite && (
        <div className="actions save">
          <button type="submit" className="primary" disabled={isPending || !isDirty}>
            Save
          </button>
          <span className="muted" role="status">
            {isDirty ? "Unsaved changes (Ctrl+S saves)" : "Saved"}
          </span>
        </div>
      )}
      <Guard isDirty={isDirty} save={mutateAsync} />
      {dialog}
    </form>
  );
}

/** Asks before the page is left with changes that are not saved. */
function Guard({ isDirty, save }: { isDirty: boolean; save: () => Promise<void> }) {
  const leaving = useBlocker({
    shouldBlockFn: ({ current, next }) => isDirty && current.pathname !== next.pathname,
    enableBeforeUnload: () => isDirty,
    withResolver: true,
  });
  if (leaving.status !== "blocked") return null;
  return (
    <Dialog title="Unsaved changes" onClose={leaving.reset}>
      <p>You have changed this draft and not saved it.</p>
      <div className="actions">
        <button type="button" className="primary" onClick={() => save().then(leaving.proceed, leaving.reset)}>
          Save and leave
        </button>
        <button type="button" className="danger" onClick={leaving.proceed}>
          Leave without saving
        </button>
      </div>
    </Dialog>
  );
}

import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useBlocker } from "@tanstack/react-router";
import { useEffect, useRef, useState } from "react";
import { problemOf, refusalOf } from "../../api.ts";
import { useRole, useWorkspace } from "../../session.tsx";
import { useAccounts } from "../account.tsx";
import { Dialog } from "../dialog.tsx";
import { Field } from "../form.tsx";
import { Problem } from "../page.tsx";
import { callsOf, type Kind } from "../send/calls.ts";
import { type Content, changesOf, contentOf, type Draft, useSettings } from "./drafts.ts";
import { goTo, TagField } from "./tag-field.tsx";

const FIELDS = ["name", "subject", "from_email", "from_name", "body"];

interface EditorProps {
  kind: Kind;
  draft: Draft;
  onDirty: (isDirty: boolean) => void;
}

/** The content of a draft, which is saved as a whole. */
export function Editor({ kind, draft, onDirty }: EditorProps) {
  const { client, base } = useWorkspace();
  const queries = useQueryClient();
  const mayWrite = useRole("EDITOR");
  const [edits, setEdits] = useState<Partial<Content>>({});
  const form = useRef<HTMLFormElement>(null);
  const subject = useRef<HTMLInputElement>(null);
  const body = useRef<HTMLTextAreaElement>(null);
  const { merge_tags: tags } = useSettings(kind, draft.id);
  const accounts = useAccounts();
  // Fields without edits follow the saves of other members.
  const saved = contentOf(draft);
  const content = { ...saved, ...edits };
  const changes = changesOf(saved, content);
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
  const { mutateAsync, isPending, error } = useMutation({
    mutationFn: async () => {
      const { calls, params } = callsOf(client, kind, draft.id);
      const { data } = await calls.drafts.update.mutate({ params, body: changes });
      const queryKey = [base, `${kind}s`, draft.id];
      await queries.cancelQueries({ queryKey, exact: true });
      queries.setQueryData(queryKey, (before: Draft) => ({ ...before, ...data }));
      // Text that was typed meanwhile stays.
      setEdits((now) => changesFrom(content, now));
    },
    onError: (thrown) => {
      const { param, message } = refusalOf(thrown);
      const [, line, column] = /line (\d+), column (\d+)/.exec(message) ?? [];
      const field = param === "body" ? body.current : param === "subject" ? subject.current : null;
      if (field && line) goTo(field, Number(line), Number(column));
    },
  });
  const save = async (): Promise<boolean> =>
    !isDirty ||
    mutateAsync().then(
      () => true,
      () => false,
    );
  const set = (name: keyof Content) => (value: string) => setEdits((before) => ({ ...before, [name]: value }));
  const input = (name: keyof Content) => ({
    name,
    value: content[name],
    readOnly: !mayWrite,
    problem: problemOf(error, name),
    onChange: set(name),
  });

  return (
    <form
      ref={form}
      aria-label="Content"
      onSubmit={(event) => {
        event.preventDefault();
        void save();
      }}
    >
      <Field label="Name" required maxLength={200} hint="For the team alone." {...input("name")} />
      <TagField label="Subject" field={subject} tags={tags} {...input("subject")} />
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
        field={body}
        rows={24}
        hint="Type {{ for a person's data. Without a link to unsubscribe it gets one at its end."
        tags={tags}
        {...input("body")}
      />
      <Problem error={error} fields={FIELDS} />
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
      <Guard isDirty={isDirty} save={save} />
    </form>
  );
}

const changesFrom = (then: Content, now: Partial<Content>): Partial<Content> =>
  Object.fromEntries(Object.entries(now).filter(([name, value]) => value !== then[name as keyof Content]));

/** Asks before the page is left with changes that are not saved. */
function Guard({ isDirty, save }: { isDirty: boolean; save: () => Promise<boolean> }) {
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
        <button
          type="button"
          className="primary"
          onClick={async () => ((await save()) ? leaving.proceed() : leaving.reset())}
        >
          Save and leave
        </button>
        <button type="button" className="danger" onClick={leaving.proceed}>
          Leave without saving
        </button>
      </div>
    </Dialog>
  );
}

import { useMutation } from "@tanstack/react-query";
import { useState } from "react";
import type { Client, DataOf } from "../../api.ts";
import { useData, useWorkspace } from "../../session.tsx";
import { Opens } from "../act.tsx";
import { LineDiff } from "../line-diff.tsx";
import { Part, Problem, When } from "../page.tsx";
import { blocksText, linesOfText } from "./blocks/text.ts";
import type { Written } from "./content.ts";
import type { Mail } from "./drafts.ts";

interface VersionsProps {
  mail: Mail;
  draft: Written & Record<"subject" | "preheader" | "body", string | null> & { blocks: string };
  mayWrite: boolean;
  /** Saves the content of a version. */
  restore: (version: DataOf<Client["app"]["content"]["version"]["query"]> & { id: string }) => Promise<unknown>;
}

/** A button for the contents that later ones have replaced. */
export const Versions = (props: VersionsProps) => (
  <Opens title="Versions" heading="Versions of the last 30 days">
    {(close) => <List {...props} onDone={close} />}
  </Opens>
);

function List({ onDone, ...props }: VersionsProps & { onDone: () => void }) {
  const { versions } = useWorkspace().client.app.content;
  const [opened, setOpened] = useState<string>();
  const { mail: query, draft } = props;
  const all = useData(["versions", query, draft.updated_at], () => versions.query({ query }));
  if (all.length === 0) return <p>No versions yet: each change keeps the text before it.</p>;
  return (
    <ul className="plain stack">
      {all.map(({ id, at, by, subject, has_blocks }) => (
        <li key={id}>
          <details open={id === opened} onToggle={({ currentTarget: { open } }) => open && setOpened(id)}>
            <summary>
              <When at={at} /> by {by ?? "a program"}: {subject || "no subject"} {!has_blocks && "(HTML)"}
            </summary>
            {id === opened && (
              <Part>
                <Version {...props} id={id} onDone={onDone} />
              </Part>
            )}
          </details>
        </li>
      ))}
    </ul>
  );
}

/** One version beside what is written now. */
function Version({ mail, draft, mayWrite, restore, id, onDone }: VersionsProps & { onDone: () => void; id: string }) {
  const { version } = useWorkspace().client.app.content;
  const then = useData(["versions", mail, id], () => version.query({ query: { ...mail, version_id: id } }));
  const { mutate, isPending, error } = useMutation({ mutationFn: () => restore({ ...then, id }), onSuccess: onDone });
  const isOfBlocks = then.blocks !== null && draft.blocks !== "";
  const texts = [
    ["Subject", then.subject, draft.subject],
    ["Preheader", then.preheader, draft.preheader],
    isOfBlocks
      ? ["Text", linesOfText(blocksText(then.blocks)), linesOfText(draft.blocks)]
      : ["HTML", then.body, draft.body],
  ] as const;
  const changed = texts.filter(([, before, now]) => (before ?? "") !== (now ?? ""));
  return (
    <div className="stack">
      {changed.length === 0 ? (
        <p>It is the same as the current text.</p>
      ) : (
        <p>Lines with − are only in this version, and lines with + only in the current text.</p>
      )}
      {changed.map(([name, before, now]) => (
        <section key={name}>
          <h3>{name}</h3>
          <LineDiff from={before ?? ""} to={now ?? ""} />
        </section>
      ))}
      <Problem error={error} />
      {mayWrite && (
        <button type="button" className="primary" disabled={isPending} onClick={() => mutate()}>
          Restore this version
        </button>
      )}
    </div>
  );
}

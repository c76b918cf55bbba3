import { Navigate, useNavigate, useParams } from "@tanstack/react-router";
import { useState } from "react";
import { useData, useRole, useWorkspace } from "../../session.tsx";
import { PageHead } from "../page.tsx";
import { Remove } from "../remove.tsx";
import { callsOf, isOpen, type Kind } from "../send/calls.ts";
import { SendPanel } from "../send/send-panel.tsx";
import { type Draft, STATES } from "./drafts.ts";
import { Editor } from "./editor.tsx";
import { Preview } from "./preview.tsx";
import { Targets } from "./targets.tsx";
import { TestMail } from "./test-mail.tsx";

const POLL_MS = 10_000;

/** One newsletter or campaign: as a draft its editor, and from its confirmation on how its send goes. */
export function DraftPage({ kind }: { kind: Kind }) {
  const { client, base } = useWorkspace();
  const { [`${kind}Id`]: id = "" } = useParams({ strict: false }) as Record<string, string>;
  const { calls, params } = callsOf(client, kind, id);
  const read = (): Promise<{ data: Draft }> => calls.drafts.retrieve.query({ params });
  const draft = useData([`${kind}s`, id], read, { poll: (now) => isOpen(now) && POLL_MS });
  if ("is_drip" in draft && draft.is_drip) return <Navigate to={`${base}/sequences/${id}`} replace />;
  return <Shown key={id} kind={kind} draft={draft} />;
}

function Shown({ kind, draft }: { kind: Kind; draft: Draft }) {
  const { client, base } = useWorkspace();
  const navigate = useNavigate();
  const [isDirty, setDirty] = useState(false);
  const mayWrite = useRole("EDITOR");
  const maySend = useRole("ADMIN");
  const { id, name, status, updated_at } = draft;
  const isDraft = status === "DRAFT";
  const { calls, params } = callsOf(client, kind, id);
  return (
    <>
      <PageHead title={name}>
        <span>{STATES[status]}</span>
        {maySend && isDraft && !isDirty && <TestMail key={updated_at} kind={kind} id={id} />}
        {mayWrite && isDraft && (
          <Remove
            title={`Delete this ${kind}`}
            act={(options) => calls.drafts.remove.mutate({ params }, options)}
            onDone={() => navigate({ to: `${base}/${kind}s`, ignoreBlocker: true })}
          />
        )}
      </PageHead>
      {isDraft ? (
        <>
          <div className="draft">
            <Editor kind={kind} draft={draft} onDirty={setDirty} />
            <Preview kind={kind} id={id} version={updated_at} />
          </div>
          <Targets kind={kind} draft={draft} />
          {isDirty ? (
            <p className="notice">Save your changes: then the {kind} can be checked and sent.</p>
          ) : (
            // Another content or target has another check.
            <SendPanel key={updated_at} kind={kind} id={id} name={name} status={status} />
          )}
        </>
      ) : (
        <>
          <SendPanel kind={kind} id={id} name={name} status={status} />
          <details>
            <summary>The mail</summary>
            <Preview kind={kind} id={id} version="sent" />
          </details>
        </>
      )}
    </>
  );
}

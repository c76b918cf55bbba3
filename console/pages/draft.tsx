import { Navigate, useNavigate, useParams } from "@tanstack/react-router";
import { useState } from "react";
import { type Draft, STATES } from "../parts/draft/drafts.ts";
import { Editor } from "../parts/draft/editor.tsx";
import { Preview } from "../parts/draft/preview.tsx";
import { Targets } from "../parts/draft/targets.tsx";
import { TestMail } from "../parts/draft/test-mail.tsx";
import { PageHead } from "../parts/page.tsx";
import { Remove } from "../parts/remove.tsx";
import { callsOf, type Kind } from "../parts/send/calls.ts";
import { SendPanel } from "../parts/send/send-panel.tsx";
import { useData, useRole, useWorkspace } from "../session.tsx";

export const Newsletter = () => <Page kind="newsletter" />;
export const Campaign = () => <Page kind="campaign" />;

/** One newsletter or campaign: as a draft its editor, and from its confirmation on how its send goes. */
function Page({ kind }: { kind: Kind }) {
  const { client, base } = useWorkspace();
  const { [`${kind}Id`]: id = "" } = useParams({ strict: false }) as Record<string, string>;
  const { calls, params } = callsOf(client, kind, id);
  const read = (): Promise<{ data: Draft }> => calls.drafts.retrieve.query({ params });
  const draft = useData([`${kind}s`, id], read);
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

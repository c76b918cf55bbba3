import { useQueryClient } from "@tanstack/react-query";
import { Navigate, useNavigate, useParams } from "@tanstack/react-router";
import { useEffect, useState } from "react";
import { Act } from "../parts/act.tsx";
import { RESTORABLE, useUndo } from "../parts/bin.tsx";
import { type Draft, STATES, useContent, useSettings } from "../parts/draft/drafts.ts";
import { DraftEditor } from "../parts/draft/editor.tsx";
import { Preview } from "../parts/draft/preview.tsx";
import { Choices } from "../parts/draft/targets.tsx";
import { TestMail } from "../parts/draft/test-mail.tsx";
import { Versions } from "../parts/draft/versions.tsx";
import { Duplicate } from "../parts/duplicate.tsx";
import { More } from "../parts/more.tsx";
import { PageHead, Part, State } from "../parts/page.tsx";
import { Remove } from "../parts/remove.tsx";
import { isOpen, type Kind, useCalls, useProgress, waitingIn } from "../parts/send/calls.ts";
import { CheckSend } from "../parts/send/check-send.tsx";
import { Commands, LiveSend } from "../parts/send/live-send.tsx";
import { Report, SaveRecipients, SentMail } from "../parts/send/report.tsx";
import { SendTime } from "../parts/send/time.tsx";
import { SaveAsTemplate } from "../parts/templates.tsx";
import { useData, useRole, useWorkspace } from "../session.tsx";

export const Newsletter = () => <Page kind="newsletter" />;
export const Campaign = () => <Page kind="campaign" />;

/** The place of its last step. */
const SEND = "send";

/** One newsletter or campaign: as a draft its editor, and from its confirmation on how its send goes. */
function Page({ kind }: { kind: Kind }) {
  const { base } = useWorkspace();
  const { [`${kind}Id`]: id = "" } = useParams({ strict: false }) as Record<string, string>;
  const { read } = useContent(kind, id);
  const draft = useData([`${kind}s`, id], read);
  if ("is_drip" in draft && draft.is_drip) return <Navigate to={`${base}/sequences/${id}`} replace />;
  return <Shown key={id} kind={kind} draft={draft} />;
}

function Shown({ kind, draft }: { kind: Kind; draft: Draft }) {
  const { base } = useWorkspace();
  const navigate = useNavigate();
  const [isDirty, setDirty] = useState(false);
  const [shown, setShown] = useState<readonly number[]>();
  const [isAsked, setAsked] = useState(false);
  const mayWrite = useRole("EDITOR");
  const maySend = useRole("ADMIN");
  const { id, name, status, updated_at } = draft;
  const isDraft = status === "DRAFT";
  const hasEnded = !isDraft && !isOpen(draft);
  const { calls, params } = useCalls(kind, id);
  const { restoreVersion } = useWorkspace().client.app.content;
  const undo = useUndo();
  const mail = { type: kind, id };
  return (
    <>
      <PageHead title={name}>
        <State of={STATES} is={status} />
        {isDraft && (
          <Versions
            mail={mail}
            draft={draft}
            mayWrite={mayWrite}
            restore={(version) =>
              restoreVersion.mutate({ body: { ...mail, version_id: version.id } }, { context: { began: draft } })
            }
          />
        )}
        {maySend && isDraft && <TestMail mail={mail} />}
        {hasEnded && <SaveRecipients kind={kind} id={id} />}
        {mayWrite && (
          <More>
            {kind === "newsletter" && <Publish id={id} />}
            <Duplicate type={kind} id={id} />
            <SaveAsTemplate kind={kind} id={id} name={name} isDisabled={isDirty} />
            {isDraft && (
              <Remove
                title={`Delete this ${kind}`}
                act={(options) => calls.drafts.remove.mutate({ params }, options)}
                onDone={() => navigate({ to: `${base}/${kind}s`, ignoreBlocker: true })}
                undo={undo(id)}
              >
                {RESTORABLE}
              </Remove>
            )}
          </More>
        )}
      </PageHead>
      {isDraft && (
        <div className="draft">
          <DraftEditor kind={kind} draft={draft} onDirty={setDirty} shown={shown}>
            {maySend && (
              <a className="button primary" href={`#${SEND}`} onClick={() => setAsked(true)}>
                Review and send
              </a>
            )}
          </DraftEditor>
          <Preview mail={mail} version={updated_at} />
        </div>
      )}
      {/* No check begins once the writer has left it, after a save that took long. */}
      <section
        className="stack"
        id={SEND}
        tabIndex={-1}
        aria-label={hasEnded ? "Report" : "Send"}
        onBlur={() => setAsked(false)}
      >
        <h2>{hasEnded ? "Results" : "Send"}</h2>
        {isDraft && (
          <Choices kind={kind} draft={draft}>
            <SendTime kind={kind} id={id} />
          </Choices>
        )}
        {!isDraft ? (
          <Part>
            <SendOf kind={kind} draft={draft} />
          </Part>
        ) : isDirty ? (
          <p className="notice">Save your changes before you check and send the {kind}.</p>
        ) : (
          // Another content or target has another check.
          <CheckSend key={updated_at} {...{ kind, draft, isAsked }} onShow={setShown} onBegin={() => setAsked(false)} />
        )}
      </section>
    </>
  );
}

function Publish({ id }: { id: string }) {
  const { publish } = useWorkspace().client.app.content;
  const { web } = useSettings("newsletter", id);
  if (!web) return null;
  const [title, note] = web.is_public
    ? ["Withdraw from the web", "Its page shows it no longer, nor does an archive."]
    : ["Publish on the web", "Anyone may read it on a page, without a person's data."];
  return (
    <Act
      {...{ title, note, submit: web.is_public ? "Withdraw" : "Publish" }}
      act={(_, context) => publish.mutate({ body: { newsletter_id: id, is_public: !web.is_public } }, { context })}
    />
  );
}

/** How the send of a draft goes, or has gone. */
function SendOf({ kind, draft }: { kind: Kind; draft: Draft }) {
  const { base } = useWorkspace();
  const queries = useQueryClient();
  const [send] = useProgress(draft.id);
  const status = send?.status;
  // The page around it shows the status too.
  useEffect(() => {
    if (status !== undefined) void queries.invalidateQueries({ queryKey: [base, `${kind}s`] });
  }, [status, queries, base, kind]);
  const waiting = send && waitingIn(send.recipients);
  // Outcomes of a cancelled send follow within seconds.
  useEffect(() => {
    if (waiting !== undefined) void queries.invalidateQueries({ queryKey: [base, "recipients", draft.id] });
  }, [waiting, queries, base, draft.id]);
  if (send && !isOpen(send)) return <Report kind={kind} send={send} draft={draft} />;
  return (
    <>
      {send ? <LiveSend send={send} /> : <p className="muted">The record of this send is no longer kept.</p>}
      {send && <Commands kind={kind} send={send} />}
      <SentMail kind={kind} draft={draft} />
    </>
  );
}

import { useMutation } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { useRole, useWorkspace } from "../../session.tsx";
import { Act } from "../act.tsx";
import { plainSubject } from "../draft/content.ts";
import { type Draft, useAccounts, useSettings, useTargets } from "../draft/drafts.ts";
import { Copy, Facts, type FactsProps, Problem, type States } from "../page.tsx";
import { Remove } from "../remove.tsx";
import { type Kind, type Send, useCalls, waitingIn } from "./calls.ts";
import { MoveStart, useStartText } from "./time.tsx";
import { pauseText, people } from "./words.ts";

type Counts = Send["recipients"];
type Outcome = Exclude<keyof Counts, "total">;

export const OUTCOMES: States<Outcome> = {
  sent: ["Delivered", "good"],
  queued: ["Waiting", "muted"],
  sending: ["Sending", "accent"],
  deferred: ["Deferred, will retry", "warn"],
  rejected: ["Rejected", "wrong"],
  expired: ["Retries exhausted", "wrong"],
  unknown: ["Outcome unknown", "warn"],
  suppressed: ["Suppressed", "muted"],
  cancelled: ["Cancelled", "muted"],
};

export interface MailProps {
  kind: Kind;
  draft: Draft;
  /** Those of its send. */
  facts?: FactsProps["of"];
}

/** The subject, sender and audience of a mail, and its public page, where it has one. */
export function MailFacts({ kind, draft, facts = [] }: MailProps) {
  const [accounts, targets] = [useAccounts(), useTargets(kind)];
  const emailsOf = (ids: readonly string[]) => accounts.filter(({ id }) => ids.includes(id)).map(({ email }) => email);
  const [ids, emails] =
    "lists" in draft ? [draft.lists, [draft.from_email]] : [[draft.segment_id], emailsOf(draft.account_ids)];
  const names = targets.filter(({ id }) => ids.includes(id)).map(({ name }) => name);
  const { segment_name: segment, web } = useSettings(kind, draft.id);
  const lists = names.length > 1 ? `${names.length} lists (${names.join(", ")})` : (names[0] ?? "no list");
  const narrowed = "lists" in draft && segment !== null && `On ${lists}, in segment ${segment}`;
  return (
    <Facts
      of={[
        ["Subject", plainSubject(draft.subject ?? "") || null],
        ["From", [draft.from_name, ...emails].filter(Boolean).join(", ") || null],
        ["Audience", narrowed || names.join(", ") || null],
        ...facts,
        ["On the web", web?.is_public && <Copy text={web.url} name="the address on the web" isLink />],
      ]}
    />
  );
}

/** How far a send is. */
export function LiveSend({ send }: { send: Send }) {
  const { recipients, status } = send;
  const open = waitingIn(recipients);
  const startOf = useStartText();
  return (
    <div className="stack">
      <p role="status">
        {status === "SCHEDULED" && (
          <>
            Start: {startOf(send)}, to {people(open)}
          </>
        )}
        {status === "PAUSED" && <strong className="warn">Paused. {pauseText(send.status_reason)}</strong>}
        {status === "SENDING" && <>Sending now.</>}
      </p>
      {send.started_at !== null && <Progress send={send} open={open} />}
    </div>
  );
}

function Progress({ send, open }: { send: Send; open: number }) {
  const { recipients } = send;
  return (
    <>
      <progress
        value={recipients.total - open}
        max={Math.max(recipients.total, 1)}
        aria-label={`${send.name}: ${recipients.total - open} of ${recipients.total} done`}
      />
      <p className="muted">
        {(recipients.total - open).toLocaleString()} of {people(recipients.total)}
      </p>
      <Outcomes recipients={recipients} />
    </>
  );
}

export function Outcomes({ recipients }: { recipients: Counts }) {
  const states = Object.keys(OUTCOMES) as Outcome[];
  const shown = states.filter((state) => state === "sent" || recipients[state] > 0);
  return (
    <Facts className="figures" of={shown.map((state) => [OUTCOMES[state][0], recipients[state].toLocaleString()])} />
  );
}

/** Pauses, resumes and cancels a send that has not ended. */
export function Commands({ kind, send }: { kind: Kind; send: Send }) {
  const { calls, params } = useCalls(kind, send.resource_id);
  const { client, base } = useWorkspace();
  const navigate = useNavigate();
  const name = send.status === "PAUSED" ? "resume" : "pause";
  const command = useMutation({
    mutationFn: (): Promise<unknown> =>
      calls.commands[name].mutate({ params }, { context: { idempotencyKey: crypto.randomUUID() } }),
  });
  const open = waitingIn(send.recipients);
  const settings = useSettings(kind, send.resource_id);
  const move = send.started_at === null && <MoveStart kind={kind} id={send.resource_id} timed={settings} />;
  if (!useRole("ADMIN")) {
    return (
      <>
        <div className="actions">{move}</div>
        <p className="muted">An admin or the owner of the team can pause or cancel it.</p>
      </>
    );
  }
  return (
    <>
      <div className="actions">
        <button
          type="button"
          className={name === "resume" ? "primary" : undefined}
          disabled={command.isPending}
          onClick={() => command.mutate()}
        >
          {name === "resume" ? "Resume" : "Pause"}
        </button>
        {move}
        {send.started_at === null && (
          <Act
            title="Edit a copy"
            submit="Edit a copy and cancel the send"
            kind="danger"
            cancel="Keep the send"
            note="No one gets this email. A copy opens as a draft without a time: change it, check it, and confirm its send."
            act={async (_, context) => {
              const body = { type: kind, id: send.resource_id };
              const { data } = await client.app.content.editCopy.mutate({ body }, { context });
              await navigate({ to: `${base}/${kind}s/${data.id}` });
              return "The send is cancelled. This is its copy.";
            }}
          />
        )}
        <Remove title="Cancel the send" act={(options) => calls.commands.cancel.mutate({ params }, options)}>
          {people(open)} will no longer get the email, and their credits are returned.{" "}
          {send.recipients.sent > 0 && `${people(send.recipients.sent)} already got it. `}A cancelled send cannot be
          resumed.
        </Remove>
      </div>
      <Problem error={command.error} />
    </>
  );
}

import { Link, useNavigate, useParams } from "@tanstack/react-router";
import { capitalized } from "../api.ts";
import { useAccounts } from "../parts/account.tsx";
import { Act } from "../parts/act.tsx";
import { plainSubject } from "../parts/draft/content.ts";
import { useTargets } from "../parts/draft/drafts.ts";
import { Duplicate } from "../parts/duplicate.tsx";
import { ChoiceFilter, SearchFilter, useFilters } from "../parts/filters.tsx";
import { Inputs } from "../parts/form.tsx";
import { More } from "../parts/more.tsx";
import { choicesOf, Facts, PageHead, Part, State, When } from "../parts/page.tsx";
import { Warnings } from "../parts/send/check-send.tsx";
import { people } from "../parts/send/words.ts";
import { conditionsText, newStepId, OpenStep, SEQUENCE_STATES, whenText } from "../parts/sequence.tsx";
import { List, Table } from "../parts/table.tsx";
import { useData, useRole, useWorkspace } from "../session.tsx";

/** The sequences of a team. */
export function Sequences() {
  const { client, base, environment } = useWorkspace();
  const navigate = useNavigate();
  const [{ q, status }] = useFilters();
  const mayWrite = useRole("EDITOR");
  const { sequences } = client.app;
  const filter = { q, status: status as keyof typeof SEQUENCE_STATES | undefined };
  return (
    <>
      <PageHead title="Sequences">
        {mayWrite && environment === "live" && (
          <Act
            title="New sequence"
            submit="Create sequence"
            kind="primary"
            inputs={NAME}
            act={async ({ name = "", target = "", from_email = "", from_name }, context) => {
              const [kind = "list_id", id = ""] = target.split(" ");
              const body = { name, [kind]: id, from_email, from_name: from_name || null };
              const { data } = await sequences.create.mutate({ body }, { context });
              await navigate({ to: `${base}/sequences/${data.id}` });
            }}
          >
            <Choices />
          </Act>
        )}
      </PageHead>
      <div className="filters">
        <SearchFilter name="q" label="Name contains" />
        <ChoiceFilter name="status" label="Status" any="All" choices={choicesOf(SEQUENCE_STATES)} />
      </div>
      <List
        caption="Sequences"
        queryKey={[base, "sequences", q, status]}
        read={async (cursor) => {
          const { data } = await sequences.page.query({ query: { cursor, ...filter } });
          return { data: data.sequences, meta: { next_cursor: data.next_cursor } };
        }}
        keyOf={({ id }) => id}
        columns={[
          { name: "Name", cell: ({ id, name }) => <Link to={`${base}/sequences/${id}`}>{name}</Link> },
          { name: "Status", cell: (sequence) => <State of={SEQUENCE_STATES} is={sequence.status} /> },
          { name: "Audience", cell: ({ target }) => target ?? "deleted list or segment" },
          { name: "From", cell: ({ from_email }) => from_email },
          { name: "Steps", cell: ({ steps }) => steps, isNumber: true },
        ]}
        empty={
          q || status
            ? "No sequences match."
            : "No sequences yet. A sequence emails people who join a list or segment: a welcome at once, the next email a few days later."
        }
      />
    </>
  );
}

function Choices() {
  const choices = Object.fromEntries([
    ...useTargets("newsletter").map(({ id, name }) => [`list_id ${id}`, `List: ${name}`]),
    ...useTargets("campaign").map(({ id, name }) => [`segment_id ${id}`, `Segment: ${name}`]),
  ]);
  const addresses = useAccounts().map(({ email }) => email);
  const inputs = [
    ["target", "Sent to people who join", { choices, required: true }],
    ["from_email", "From address", { type: "email", required: true, suggestions: addresses }],
    ["from_name", "From name", { maxLength: 200 }],
  ] as const;
  return <Inputs inputs={inputs} />;
}

const PEOPLE = { ACTIVE: "in progress", COMPLETED: "finished", LEFT: "left", PRESENT: "joined before the start" };
const NAME = [["name", "Name", { required: true, maxLength: 200, hint: "Only your team sees it." }]] as const;

const START = "Emails are sent with your key and count towards its daily limit.";
const KEYS = { same: "The key it was started with", own: "My key" };
const WERE_DUE = { choices: { mail: "Get their email", skip: "Skip this step" } };

const peopleIn = (counts: Partial<Record<string, number>>) =>
  Object.entries(PEOPLE)
    .flatMap(([state, text]) => (counts[state] ? [`${counts[state].toLocaleString()} ${text}`] : []))
    .join(", ") || "none yet";

/** One sequence: its steps, and the people at each. */
export function OneSequence() {
  const { client, base } = useWorkspace();
  const { sequenceId = "" } = useParams({ strict: false });
  const params = { sequenceId };
  const { sequences } = client.app;
  const navigate = useNavigate();
  const [{ step: open, after }, setFilters] = useFilters();
  const [isAdmin, isEditor] = [useRole("ADMIN"), useRole("EDITOR")];
  const read = () => sequences.show.query({ params });
  const sequence = useData(["sequences", sequenceId], read, {
    poll: ({ status }) => status === "ACTIVE" && 5_000,
  });
  const { status, steps, due } = sequence;
  const target = sequence.list_id ? `lists/${sequence.list_id}` : `segments/${sequence.segment_id}`;
  const isRunning = status === "ACTIVE" || status === "PAUSED";
  const mayEdit = status === "DRAFT" ? isEditor : isAdmin && isRunning;
  const resume = async ({ due: choice, key }: Record<string, string>) => {
    const body = { ...(choice && { due: choice as "mail" }), with_own_key: key === "own" };
    const { data } = await sequences.resume.mutate({ params, body });
    return `Emailed now: ${data.due - data.spread}; within the hour: ${data.spread}; skipped: ${data.skipped}.`;
  };
  const close = (options?: { ignoreBlocker: boolean }) => setFilters({ step: undefined, after: undefined }, options);
  const write = (before?: string) => setFilters({ step: newStepId(), after: before });
  return (
    <>
      <PageHead title={sequence.name}>
        {isAdmin && status === "DRAFT" && (
          <Act
            title="Start"
            kind="primary"
            isDisabled={steps.length === 0}
            note={steps.length === 0 ? "It has no steps yet. Write and save one first." : START}
            act={({ members: who }) => {
              const began = { id: sequenceId, updated_at: sequence.steps_updated_at };
              return sequences.start.mutate(
                { params, body: { include_members: who === "all" } },
                { context: { began } },
              );
            }}
          >
            <WhoEnters sequenceId={sequenceId} />
            {steps.map(
              ({ id, stop_if, skip_if }) =>
                (stop_if ?? skip_if) !== null && (
                  <Warnings
                    key={id}
                    mail={{ type: "campaign", id: sequenceId, step_id: id }}
                    at={sequence.steps_updated_at}
                  />
                ),
            )}
          </Act>
        )}
        {isAdmin && status === "ACTIVE" && (
          <Act
            title="Pause"
            note="No further emails start. Emails already under way are sent, and people still enter."
            act={() => sequences.pause.mutate({ params })}
          />
        )}
        {isAdmin && sequence.may_resume && (
          <Act
            title="Resume"
            kind="primary"
            note={`${people(due)} were due in the meantime. The first 1,000 are emailed at once, the others within the hour.`}
            inputs={[
              ["due", "People who were due when it was paused", WERE_DUE],
              ["key", "Send with", { choices: KEYS }],
            ]}
            act={resume}
          />
        )}
        <More>
          {isAdmin && isRunning && (
            <Act
              title="Stop"
              kind="danger"
              note={`${people(sequence.people.ACTIVE ?? 0)} leave the sequence, and it cannot be started again.`}
              act={() => sequences.stop.mutate({ params })}
            />
          )}
          {isEditor && (
            <Act
              title="Rename"
              inputs={NAME}
              values={sequence}
              edits={{ id: sequenceId, record: sequence, read }}
              act={({ name = "" }, _, save) =>
                save({ name }, (options) => sequences.rename.mutate({ params, body: { name } }, options))
              }
            />
          )}
          {isEditor && <Duplicate type="sequence" id={sequenceId} />}
          {isEditor &&
            (status === "DRAFT" || (status === "STOPPED" && steps.every(({ sent }) => Number(sent) === 0))) && (
              <Act
                title="Delete"
                kind="danger"
                submit="Delete sequence"
                note={`Its ${steps.length === 1 ? "step is" : `${steps.length} steps are`} deleted, too. It has emailed no one.`}
                // It leaves the page before that is read again.
                act={() => sequences.remove.mutate({ params }).then(() => navigate({ to: `${base}/sequences` }))}
              />
            )}
        </More>
      </PageHead>
      <Facts
        of={[
          ["Status", <State key="state" of={SEQUENCE_STATES} is={status} />],
          ["Reason", status === "PAUSED" && sequence.problem],
          [
            "Audience",
            <Link key="target" to={`${base}/${target}`}>
              {sequence.list_name ?? sequence.segment_name ?? "deleted list or segment"}
            </Link>,
          ],
          ["From", sequence.from_name ? `${sequence.from_name}, ${sequence.from_email}` : sequence.from_email],
          ["People", peopleIn(sequence.people)],
          ["Next email", sequence.next_due_at && <When at={sequence.next_due_at} />],
          ["Emailed today", isRunning && sequence.mailed_today.toLocaleString()],
        ]}
      />
      <h2>Steps</h2>
      <Table
        caption="Steps"
        empty="No steps yet. An editor adds them."
        rows={steps}
        keyOf={({ id }) => id}
        columns={[
          {
            name: "Subject",
            cell: ({ id, subject }) => (
              <button
                type="button"
                className="plain"
                aria-expanded={id === open}
                onClick={() => setFilters({ step: id === open ? undefined : id, after: undefined })}
              >
                {plainSubject(subject)}
              </button>
            ),
          },
          { name: "When", cell: whenText },
          { name: "Conditions", cell: conditionsText },
          ...(["waiting", "sent", "opened", "clicked", "left"] as const).map((name) => ({
            name: capitalized(name),
            cell: (step: (typeof steps)[number]) => Number(step[name]).toLocaleString(),
            isNumber: true,
          })),
        ]}
      />
      {mayEdit && (
        <div className="actions">
          <button type="button" onClick={() => write()}>
            {steps.length === 0 ? "New step" : "New step at the end"}
          </button>
        </div>
      )}
      {open && (mayEdit || steps.some(({ id }) => id === open)) && (
        <Part key={open}>
          <OpenStep sequence={sequence} stepId={open} after={after} mayEdit={mayEdit} onClose={close} onNew={write} />
        </Part>
      )}
    </>
  );
}

function WhoEnters(params: { sequenceId: string }) {
  const { members, is_estimate: isEstimate } = useData(["sequences", params.sequenceId, "members"], ({ app }) =>
    app.sequences.countMembers.query({ params }),
  );
  const choices = {
    new: "People who join from now on",
    all: `Also ${isEstimate ? "about " : ""}${people(members)} who are already there`,
  };
  return <Inputs inputs={[["members", "Who enters", { choices }]]} />;
}

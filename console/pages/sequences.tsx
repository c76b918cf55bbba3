import { Link, useNavigate, useParams } from "@tanstack/react-router";
import { useState } from "react";
import { type CallContext, type Client, capitalized, type DataOf } from "../api.ts";
import { Act } from "../parts/act.tsx";
import {
  type Condition,
  Conditions,
  ConditionWords,
  grouped,
  isUnfinished,
  partsOf,
} from "../parts/audience/builder.tsx";
import { EnrolmentState } from "../parts/audience/enrolment.tsx";
import { nameOf, PersonLink } from "../parts/audience/people.tsx";
import { RESTORABLE, useUndo } from "../parts/bin.tsx";
import { blocksText, EMPTY } from "../parts/draft/blocks/text.ts";
import { type Content, isHtml, type Place, plainSubject, type Written } from "../parts/draft/content.ts";
import { type Mail, STATES, useAccounts, useSizedTargets, usualSender } from "../parts/draft/drafts.ts";
import { Editor, type InputOf } from "../parts/draft/editor.tsx";
import { Dock, Preview } from "../parts/draft/preview.tsx";
import { trackingField, trackingMode, trackingText } from "../parts/draft/targets.tsx";
import { TestMail } from "../parts/draft/test-mail.tsx";
import { Versions } from "../parts/draft/versions.tsx";
import { Duplicate } from "../parts/duplicate.tsx";
import { ChoiceFilter, choiceOf, SearchFilter, useFilters } from "../parts/filters.tsx";
import { Field, Inputs, Refused } from "../parts/form.tsx";
import { More } from "../parts/more.tsx";
import { choicesOf, Facts, PageHead, Part, State, When } from "../parts/page.tsx";
import { TypedNumber, Warnings } from "../parts/send/check-send.tsx";
import { people, shortPercent } from "../parts/send/words.ts";
import { List, skipEmpty, Table } from "../parts/table.tsx";
import { useData, useRole, useWorkspace } from "../session.tsx";

const { DRAFT, ACTIVE, PAUSED, STOPPED } = STATES;
const SEQUENCE_STATES = { DRAFT, ACTIVE, PAUSED, STOPPED };

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
              return "";
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
          { name: "Steps", cell: ({ steps }) => steps, isNumber: true },
          { name: "People", cell: ({ people: counts }) => (counts ? peopleIn(counts) : "1,000 or more") },
          { name: "Sent", cell: ({ sent }) => sent.toLocaleString(), isNumber: true },
          { name: "Opened", cell: ({ sent, opened }) => sent > 0 && shortPercent(opened), isNumber: true },
          { name: "Clicked", cell: ({ sent, clicked }) => sent > 0 && shortPercent(clicked), isNumber: true },
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
    ...useSizedTargets("newsletter").map(({ id, name }) => [`list_id ${id}`, `List: ${name}`]),
    ...useSizedTargets("campaign").map(({ id, name }) => [`segment_id ${id}`, `Segment: ${name}`]),
  ]);
  const accounts = useAccounts();
  const { from_name, from_email } = usualSender(
    useData(["brand"], ({ app }) => app.team.brand.query({})),
    accounts,
  );
  const inputs = [
    ["target", "Sent to people who join", { choices, required: true }],
    ["from_email", "From address", { type: "email", required: true, suggestions: accounts.map(({ email }) => email) }],
    ["from_name", "From name", { maxLength: 200 }],
  ] as const;
  return <Inputs inputs={inputs} values={{ from_email: from_email ?? undefined, from_name }} />;
}

const PEOPLE = { ACTIVE: "in progress", COMPLETED: "finished", LEFT: "left", PRESENT: "joined before the start" };
const NAME = [["name", "Name", { required: true, maxLength: 200, hint: "Only your team sees it." }]] as const;

const START = "Its emails count towards those that you may send in a day.";
const LIMITS = { same: "Of the member who started it", own: "Mine" };
const WERE_DUE = { choices: { mail: "Get their email", skip: "Skip this step" } };

type Counts = Partial<Record<string, number>>;
const countsOf = (counts: Counts) =>
  Object.entries(PEOPLE).flatMap(([state, text]) =>
    counts[state] ? [[state, `${counts[state].toLocaleString()} ${text}`] as const] : [],
  );
const peopleIn = (counts: Counts) =>
  countsOf(counts)
    .map(([, text]) => text)
    .join(", ") || "none yet";

/** The place of the list of people, to which figures lead. */
const LISTED = "people";
/** States in which a person is, or was, before a step. */
const AT_STEP = { waiting: "ACTIVE", left: "LEFT" } as const;

/** One sequence: its steps, and the people at each. */
export function OneSequence() {
  const { client, base } = useWorkspace();
  const undo = useUndo();
  const { sequenceId = "" } = useParams({ strict: false });
  const params = { sequenceId };
  const { sequences } = client.app;
  const navigate = useNavigate();
  const [{ step: open, after }, setFilters] = useFilters();
  const [isAdmin, isEditor] = [useRole("ADMIN"), useRole("EDITOR")];
  const [isConfirmed, setConfirmed] = useState(true);
  const read = () => sequences.show.query({ params });
  const sequence = useData(["sequences", sequenceId], read, {
    poll: ({ status }) => status === "ACTIVE" && 5_000,
  });
  const { status, steps, due } = sequence;
  const isUntracked = trackingMode(sequence) === "OFF";
  const target = sequence.list_id ? `lists/${sequence.list_id}` : `segments/${sequence.segment_id}`;
  const isRunning = status === "ACTIVE" || status === "PAUSED";
  const mayEdit = status === "DRAFT" ? isEditor : isAdmin && isRunning;
  const resume = async ({ due: choice, key }: Record<string, string>) => {
    const body = { ...(choice && { due: choice as "mail" }), with_own_key: key === "own" };
    const { data } = await sequences.resume.mutate({ params, body });
    return `Emailed now: ${data.due - data.spread}; within the hour: ${data.spread}; skipped: ${data.skipped}.`;
  };
  const close = (options?: { ignoreBlocker: boolean }) => setFilters({ step: undefined, after: undefined }, options);
  const show = (state: string, step?: string) => {
    setFilters({ people: state, at: step });
    document.getElementById(LISTED)?.scrollIntoView();
  };
  const write = (before?: string) => setFilters({ step: newStepId(), after: before });
  return (
    <>
      <PageHead title={sequence.name}>
        {isAdmin && status === "DRAFT" && (
          <Act
            title="Start"
            kind={steps.length === 0 ? undefined : "primary"}
            note={steps.length === 0 ? "It has no steps yet. Write and save one first." : START}
            isDisabled={steps.length === 0 || !isConfirmed}
            onOpen={() => setConfirmed(true)}
            act={({ members: who }) => {
              const began = { id: sequenceId, updated_at: sequence.steps_updated_at };
              return sequences.start.mutate(
                { params, body: { include_members: who === "all" } },
                { context: { began } },
              );
            }}
          >
            <WhoEnters sequenceId={sequenceId} onConfirmed={setConfirmed} />
            <StepChecks sequence={sequence} />
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
              ["key", "Daily limit that its emails count towards", { choices: LIMITS }],
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
                note={`Its ${steps.length === 1 ? "step is" : `${steps.length} steps are`} deleted, too. It has emailed no one. ${RESTORABLE}`}
                undo={undo(sequenceId)}
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
          [
            "People",
            countsOf(sequence.people).length > 0 ? (
              <span key="people" className="actions">
                {countsOf(sequence.people).map(([state, text]) => (
                  <button key={state} type="button" className="plain" onClick={() => show(state)}>
                    {text}
                  </button>
                ))}
              </span>
            ) : (
              "none yet"
            ),
          ],
          [
            "Opens and clicks",
            <div key="tracking" className="actions">
              {trackingText(sequence)}
              {mayEdit && <ChangeTracking sequence={sequence} />}
            </div>,
          ],
          ["Next email", sequence.next_due_at && <When at={sequence.next_due_at} />],
          ["Emailed today", isRunning && sequence.mailed_today.toLocaleString()],
        ]}
      />
      <h2>Steps</h2>
      <Table
        caption="Steps"
        empty={
          !open &&
          `No steps yet. ${mayEdit ? "Add the first email" : "An editor adds the first email"}; the sequence can start once it has one.`
        }
        rows={steps}
        keyOf={({ id }) => id}
        columns={[
          {
            name: "Step",
            cell: ({ id, subject }) => (
              <>
                {`${steps.findIndex((step) => step.id === id) + 1}. `}
                <button
                  type="button"
                  className="plain"
                  aria-expanded={id === open}
                  onClick={() => setFilters({ step: id === open ? undefined : id, after: undefined })}
                >
                  {plainSubject(subject)}
                </button>
              </>
            ),
          },
          { name: "When", cell: (step) => whenText(step, step === steps[0]) },
          {
            name: "Conditions",
            cell: ({ stop_if, skip_if }) => (
              <div>
                {Object.entries({ "Leaves if": stop_if, "Skipped if": skip_if }).map(
                  ([verb, value]) =>
                    value !== null && (
                      <Part key={verb}>
                        <ConditionWords verb={verb} value={value} />
                      </Part>
                    ),
                )}
              </div>
            ),
          },
          ...(["waiting", "sent", "opened", "clicked", "left"] as const).map((name) => ({
            name: capitalized(name),
            // Some were counted before tracking was turned off.
            cell: (step: (typeof steps)[number]) => {
              const count = Number(step[name]);
              if (isUntracked && /opened|clicked/.test(name) && !count) return "–";
              if (count === 0 || !(name === "waiting" || name === "left")) return count.toLocaleString();
              return (
                <button type="button" className="plain" onClick={() => show(AT_STEP[name], step.id)}>
                  {people(count)}
                </button>
              );
            },
            isNumber: true,
          })),
        ]}
      />
      {mayEdit && (steps.length > 0 || !open) && (
        <div className="actions">
          <button type="button" className={steps.length === 0 ? "primary" : undefined} onClick={() => write()}>
            {steps.length === 0 ? "New step" : "New step at the end"}
          </button>
        </div>
      )}
      {open && (mayEdit || steps.some(({ id }) => id === open)) && (
        <Part key={open}>
          <OpenStep sequence={sequence} stepId={open} after={after} mayEdit={mayEdit} onClose={close} onNew={write} />
        </Part>
      )}
      {status !== "DRAFT" && <Enrolled sequence={sequence} />}
    </>
  );
}

type Enrolled = DataOf<Sequences["people"]["query"]>["people"][number];

/** The people who are or were in the sequence, by state and step, which stand in the URL. */
function Enrolled({ sequence: { id, steps, status } }: { sequence: Sequence }) {
  const { client, base } = useWorkspace();
  const [{ people: given, at }] = useFilters();
  const state = choiceOf(PEOPLE, given);
  const step = steps.find((each) => each.id === at)?.id;
  const numbered = steps.map((each, place) => [each.id, `${place + 1}. ${plainSubject(each.subject)}`]);
  return (
    <>
      <h2 id={LISTED}>People</h2>
      {status !== "STOPPED" && (
        <p className="muted">
          People who were deleted or get no more emails leave within about 15 minutes, or sooner if their next step is
          due.
        </p>
      )}
      <div className="filters">
        <ChoiceFilter name="people" label="State" any="All" choices={PEOPLE} />
        <ChoiceFilter name="at" label="Step" any="All" choices={Object.fromEntries(numbered)} />
      </div>
      <List<Enrolled>
        caption="People"
        queryKey={[base, "sequences", id, "people", state, step]}
        read={skipEmpty(async (after) => {
          const query = { state, step_id: step, after };
          const { data } = await client.app.sequences.people.query({ params: { sequenceId: id }, query });
          return { data: data.people, meta: { next_cursor: data.next } };
        })}
        first={10}
        keyOf={(person) => person.id}
        columns={[
          { name: "Address", cell: ({ email }) => (email ? <PersonLink email={email} /> : "deleted person") },
          { name: "Name", cell: nameOf },
          { name: "State", cell: (person) => <EnrolmentState {...person} /> },
          { name: "Entered", cell: (person) => person.state !== "PRESENT" && <When at={person.entered_at} isAgo /> },
        ]}
        empty={state || step ? "No people match these filters." : "No people are in this sequence yet."}
      />
    </>
  );
}

/** Chooses whether opens and clicks are counted of the emails that begin from then on. */
function ChangeTracking({ sequence }: { sequence: Sequence }) {
  const { id } = sequence;
  const { sequences } = useWorkspace().client.app;
  const { label, hint, options, chosen, bodyOf } = trackingField(sequence);
  const choices = Object.fromEntries(options.map((option) => [option.id, option.name]));
  const params = { sequenceId: id };
  return (
    <Act
      title="Change tracking"
      note="It applies to emails that begin after you save."
      inputs={[["tracking", label, { choices, hint }]]}
      values={{ tracking: chosen }}
      edits={{ id, record: sequence, read: () => sequences.show.query({ params }) }}
      act={({ tracking = chosen }, _, save) => {
        const body = bodyOf(tracking);
        return save(body, (options) => sequences.changeTracking.mutate({ params, body }, options));
      }}
    />
  );
}

/** As the check before a send looks at a mail, at one step after the other. */
function StepChecks({ sequence }: { sequence: Sequence }) {
  const { id, steps, steps_updated_at } = sequence;
  const [checked, setChecked] = useState(0);
  return steps
    .slice(0, checked + 1)
    .map((step, place) => (
      <Warnings
        key={step.id}
        title={`Step ${place + 1}: ${plainSubject(step.subject)}`}
        mail={{ type: "campaign", id, step_id: step.id }}
        at={steps_updated_at}
        place={place}
        tracking={<ChangeTracking sequence={sequence} />}
        onChecked={() => setChecked((now) => Math.max(now, place + 1))}
      />
    ));
}

interface WhoEntersProps {
  sequenceId: string;
  /** People who are there already need their number to be typed. */
  onConfirmed: (isConfirmed: boolean) => void;
}

function WhoEnters({ sequenceId, onConfirmed }: WhoEntersProps) {
  const [who, setWho] = useState("new");
  const { members, is_estimate: isEstimate } = useData(["sequences", sequenceId, "members"], ({ app }) =>
    app.sequences.countMembers.query({ params: { sequenceId } }),
  );
  const choose = (chosen: string) => {
    setWho(chosen);
    onConfirmed(chosen === "new");
  };
  const choices = {
    new: "People who join from now on",
    all: `Also ${isEstimate ? "about " : ""}${people(members)} who are already there`,
  };
  return (
    <>
      <Field label="Who enters" name="members" choices={choices} value={who} onChange={choose} />
      {who === "all" && <TypedNumber count={members} label="Number of people" onTyped={onConfirmed} />}
    </>
  );
}

type Sequences = Client["app"]["sequences"];
type Sequence = DataOf<Sequences["show"]["query"]>;
type Step = Omit<NonNullable<DataOf<Sequences["step"]["query"]>["step"]>, "id">;

const DAYS = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
const UNITS = { 1440: "days", 60: "hours", 1: "minutes" } as const;
const unitOf = (minutes: number) => ([1_440, 60] as const).find((unit) => minutes % unit === 0) ?? 1;
const CONDITIONS = { stop_if: "Leave the sequence if", skip_if: "Skip this step if" } as const;

/** "3 days after the step before, at 09:30 on Mon, Fri". */
function whenText(
  { wait_minutes: wait, time_of_day: time, send_days }: Pick<Step, "wait_minutes" | "time_of_day" | "send_days">,
  isFirst: boolean,
): string {
  const unit = unitOf(wait);
  const count = wait / unit;
  const later = wait === 0 ? "Right" : `${count} ${count === 1 ? UNITS[unit].slice(0, -1) : UNITS[unit]}`;
  const days = send_days.map((day) => DAYS[day - 1]).join(", ");
  const after = isFirst ? "they join" : "the step before";
  return `${later} after ${after}${time || days ? "," : ""}${time ? ` at ${time}` : ""}${days && ` on ${days}`}`;
}

const newStepId = () => `step-${crypto.randomUUID().slice(0, 8)}`;
/** In place of the id of the step before. */
const FIRST = "-";

const NEW: Step = {
  ...{ wait_minutes: 1_440, time_of_day: null, send_days: [], stop_if: null, skip_if: null },
  ...{ subject: "", preheader: null, body: "", blocks: null },
};

/** The fields of a step as texts, which the editor changes. */
const textsOf = ({ wait_minutes, send_days, time_of_day, stop_if, skip_if, blocks, ...texts }: Step) => ({
  ...{ ...texts, wait_minutes: String(wait_minutes), send_days: send_days.join(), time_of_day: time_of_day ?? "" },
  ...{ stop_if: JSON.stringify(stop_if), skip_if: JSON.stringify(skip_if) },
  blocks: blocks === null ? "" : blocksText(blocks),
});

const daysOf = (text: string) => text.split(",").filter(Boolean).map(Number);

const stepOf = (content: Content) => ({
  ...{ subject: content.subject, wait_minutes: Number(content["wait_minutes"]) },
  ...{ time_of_day: content["time_of_day"] || null, send_days: daysOf(content["send_days"] ?? "") },
  ...{ stop_if: JSON.parse(content["stop_if"] ?? ""), skip_if: JSON.parse(content["skip_if"] ?? "") },
  ...(isHtml(content) && { body: content.body }),
});

/** Without these the service refuses a step. */
function missingFrom({ subject, stop_if = "", skip_if = "" }: Content): string | undefined {
  if (!subject) return "write a subject";
  const isOpen = (text: string) => text.startsWith("{") && isUnfinished(JSON.parse(text));
  return [stop_if, skip_if].some(isOpen) ? "complete its conditions" : undefined;
}

const FIELDS = ["wait_minutes", "time_of_day", "send_days", "stop_if", "skip_if"] as const;

interface StepProps {
  sequence: Sequence;
  stepId: string;
  /** The step before one that is new; without it, that is the last one. */
  after: string | undefined;
  mayEdit: boolean;
  onClose: (options?: { ignoreBlocker: boolean }) => void;
  onNew: (after: string) => void;
}

/** One step: its editor, and its mail as a person would get it. */
function OpenStep({ sequence, stepId, after, mayEdit, onClose, onNew }: StepProps) {
  const { sequences } = useWorkspace().client.app;
  const { id, status, steps, merge_tags: tags } = sequence;
  const params = { sequenceId: id };
  const save = async (content: Content, options: { context: CallContext }, isRestored = false) => {
    const { preheader, blocks } = content;
    const document = isHtml(content) ? null : { blocks: JSON.parse(blocks || EMPTY), preheader: preheader || null };
    const step = { step_id: stepId, step: stepOf(content), document, after: after === FIRST ? null : after };
    const { data } = await sequences.saveStep.mutate({ params, body: { ...step, is_lasting: isRestored } }, options);
    return { blocks: document ? blocks || EMPTY : "", is_of_old_brand: false, ...data };
  };
  const place: Place = {
    ...{ queryKey: ["sequences", id, "steps", stepId], fields: FIELDS, isAutosaved: status === "DRAFT" },
    read: async () => {
      const {
        step,
        first_blocks: blocks,
        ...facts
      } = (await sequences.step.query({ params, query: { step_id: stepId } })).data;
      // The first mail of a sequence is a welcome.
      const wait_minutes = steps.length === 0 || after === FIRST ? 0 : NEW.wait_minutes;
      return { data: { ...textsOf(step ?? { ...NEW, wait_minutes, blocks }), id, ...facts } };
    },
    write: (_, content, options) => save(content, options),
  };
  const step = useData(place.queryKey, place.read) as Content & Written;
  const number = steps.findIndex((each) => each.id === stepId) + 1;
  const mail: Mail = { type: "campaign", id, step_id: stepId };
  const maySend = useRole("ADMIN");
  const isFirst = number === 1 || after === FIRST || steps.length === 0;
  const title = number > 0 ? `Step ${number}` : "New step";
  return (
    <section className="stack" aria-label={title}>
      <div className="head">
        <div>
          <h2>
            {title}
            {step.subject && `: ${plainSubject(step.subject)}`}
          </h2>
          {!mayEdit && <p className="muted">{whenText(stepOf(step), isFirst)}</p>}
        </div>
        <div className="actions">
          {number > 0 && (
            <>
              <Versions
                mail={mail}
                draft={step}
                mayWrite={mayEdit}
                restore={({ subject, preheader, body, blocks }) => {
                  const text = { subject: subject ?? "", preheader: preheader ?? "", body: body ?? "" };
                  const then = { ...text, blocks: blocks === null ? "" : blocksText(blocks) };
                  const { is_of_old_brand: _, ...content } = { ...step, ...then };
                  return save(content, { context: { began: step } }, true);
                }}
              />
              {maySend && <TestMail mail={mail} />}
              {mayEdit && (
                <>
                  <button type="button" onClick={() => onNew(steps[number - 2]?.id ?? FIRST)}>
                    New step before this
                  </button>
                  <More>
                    <Act
                      title={`Remove step ${number}`}
                      kind="danger"
                      isDisabled={steps.length === 1}
                      note={
                        steps.length === 1
                          ? "A sequence needs at least one step."
                          : "People waiting for it get the next one."
                      }
                      act={async () => {
                        await sequences.saveStep.mutate({ params, body: { step_id: stepId, step: null } });
                        onClose({ ignoreBlocker: true });
                      }}
                    />
                  </More>
                </>
              )}
            </>
          )}
          <button type="button" onClick={() => onClose()}>
            Close
          </button>
        </div>
      </div>
      {mayEdit && status !== "DRAFT" && (
        <p className="notice">
          This sequence has started: your changes apply to emails sent after you save. They are not saved automatically.
        </p>
      )}
      <div className={number > 0 ? "draft" : "stack"}>
        {mayEdit && (
          <Editor place={place} draft={step} tags={tags} mayWrite isNew={number === 0} missing={missingFrom}>
            {(input) => <Settings input={input} isFirst={isFirst} />}
          </Editor>
        )}
        {number > 0 ? <Preview mail={mail} version={step.updated_at} /> : <Dock />}
      </div>
      {number > 0 && (
        <Warnings mail={mail} at={step.updated_at} tracking={mayEdit && <ChangeTracking sequence={sequence} />} />
      )}
    </section>
  );
}

/** When a step is mailed, and to whom it is not. */
function Settings({ input, isFirst }: { input: InputOf; isFirst: boolean }) {
  const [chosen, setUnit] = useState<number>();
  const wait = input("wait_minutes");
  const minutes = Number(wait.value);
  const unit = chosen && minutes % chosen === 0 ? chosen : unitOf(minutes);
  const { value, onChange } = input("send_days");
  const days = daysOf(value);
  const [isOpen] = useState(() => FIELDS.slice(1).some((name) => !["", "null"].includes(input(name).value)));
  const setWait = (count: string, of: number) => wait.onChange(String(Number(count) * of));
  return (
    <>
      <div className="fields">
        <Field
          label="Wait"
          hint={whenText({ wait_minutes: minutes, time_of_day: input("time_of_day").value, send_days: days }, isFirst)}
          type="number"
          min={0}
          required
          {...wait}
          value={String(minutes / unit)}
          onChange={(count) => setWait(count, unit)}
        />
        <Field
          label="Unit"
          name="unit"
          choices={UNITS}
          value={String(unit)}
          onChange={(next) => {
            setUnit(Number(next));
            setWait(String(minutes / unit), Number(next));
          }}
        />
      </div>
      <details open={isOpen}>
        <summary>Time of day, days and conditions</summary>
        <div className="stack">
          <Field label="Time of day" type="time" hint="Leave empty for any time." {...input("time_of_day")} />
          <fieldset className="actions">
            <legend>Days, in your team's time zone; none means any day</legend>
            {DAYS.map((name, i) => (
              <label key={name}>
                <input
                  type="checkbox"
                  checked={days.includes(i + 1)}
                  onChange={({ target }) =>
                    onChange([...days.filter((day) => day !== i + 1), ...(target.checked ? [i + 1] : [])].sort().join())
                  }
                />{" "}
                {name}
              </label>
            ))}
          </fieldset>
          {(["stop_if", "skip_if"] as const).map((name) => (
            <ConditionInput key={name} label={CONDITIONS[name]} {...input(name)} />
          ))}
        </div>
      </details>
    </>
  );
}

type ConditionProps = ReturnType<InputOf> & { label: string };
/** Of a text that is no JSON: the service refuses it. */
const UNREADABLE = "no JSON";

/** Conditions as of a segment. Without any, no person meets them. */
function ConditionInput({ label, name, value, onChange }: ConditionProps) {
  const [none, setNone] = useState<unknown>({ all: [] });
  const given = JSON.parse(value);
  const change = (next: unknown) => {
    const isNone = next !== undefined && partsOf(grouped(next) as Condition).length === 0;
    if (isNone) setNone(next);
    onChange(JSON.stringify(isNone ? null : (next ?? UNREADABLE)));
  };
  return (
    <section className="stack" aria-label={label}>
      <h3>
        {label} {given === null ? "– never" : "…"}
      </h3>
      <Conditions value={given === UNREADABLE ? undefined : (given ?? none)} onChange={change} />
      <Refused name={name} />
      {given !== null && <p className="muted">“Any email” means any email of this sequence.</p>}
    </section>
  );
}

import { useState } from "react";
import type { CallContext, Client, DataOf } from "../api.ts";
import { useData, useRole, useWorkspace } from "../session.tsx";
import { Act } from "./act.tsx";
import { Conditions } from "./audience/builder.tsx";
import { type Condition, grouped, partsOf } from "./audience/conditions.ts";
import { blocksText, EMPTY } from "./draft/blocks/text.ts";
import { type Content, isHtml, type Place, plainSubject, type Written } from "./draft/content.ts";
import type { Mail } from "./draft/drafts.ts";
import { Editor, type InputOf } from "./draft/editor.tsx";
import { Preview } from "./draft/preview.tsx";
import { TestMail } from "./draft/test-mail.tsx";
import { Versions } from "./draft/versions.tsx";
import { Field, Refused } from "./form.tsx";
import { More } from "./more.tsx";
import { Warnings } from "./send/check-send.tsx";

/** The words of a status, and their colour. */
export const SEQUENCE_STATES = {
  DRAFT: ["Draft", "muted"],
  ACTIVE: ["Running", "good"],
  PAUSED: ["Paused", "warn"],
  STOPPED: ["Stopped", "muted"],
} as const;

type Sequences = Client["app"]["sequences"];
export type Sequence = DataOf<Sequences["show"]["query"]>;
type Step = Omit<NonNullable<DataOf<Sequences["step"]["query"]>["step"]>, "id">;

const DAYS = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
const UNITS = { 1440: "days", 60: "hours", 1: "minutes" } as const;
const unitOf = (minutes: number) => ([1_440, 60] as const).find((unit) => minutes % unit === 0) ?? 1;
const CONDITIONS = { stop_if: "Leave the sequence if", skip_if: "Skip this step if" } as const;

/** "3 days later at 09:30 on Mon, Fri". */
export function whenText({
  wait_minutes: wait,
  time_of_day: time,
  send_days,
}: Pick<Step, "wait_minutes" | "time_of_day" | "send_days">): string {
  const unit = unitOf(wait);
  const count = wait / unit;
  const later = `${count} ${count === 1 ? UNITS[unit].slice(0, -1) : UNITS[unit]} later`;
  const days = send_days.map((day) => DAYS[day - 1]).join(", ");
  return `${wait === 0 ? "At once" : later}${time ? ` at ${time}` : ""}${days && ` on ${days}`}`;
}

/** Of the conditions that a step has. */
export const conditionsText = ({ stop_if, skip_if }: Pick<Step, "stop_if" | "skip_if">) =>
  [...(stop_if ? ["May end here"] : []), ...(skip_if ? ["May be skipped"] : [])].join(". ");

export const newStepId = () => `step-${crypto.randomUUID().slice(0, 8)}`;
/** In place of the id of the step before. */
export const FIRST = "-";

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
export function OpenStep({ sequence, stepId, after, mayEdit, onClose, onNew }: StepProps) {
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
      const { step, ...facts } = (await sequences.step.query({ params, query: { step_id: stepId } })).data;
      // The first mail of a sequence is a welcome.
      const wait_minutes = steps.length === 0 || after === FIRST ? 0 : NEW.wait_minutes;
      return { data: { ...textsOf(step ?? { ...NEW, wait_minutes }), id, ...facts } };
    },
    write: (_, content, options) => save(content, options),
  };
  const step = useData(place.queryKey, place.read) as Content & Written;
  const number = steps.findIndex((each) => each.id === stepId) + 1;
  const mail: Mail = { type: "campaign", id, step_id: stepId };
  const maySend = useRole("ADMIN");
  const title = number > 0 ? `Step ${number}` : "New step";
  return (
    <section className="stack" aria-label={title}>
      <div className="head">
        <div>
          <h2>
            {title}
            {step.subject && `: ${plainSubject(step.subject)}`}
          </h2>
          <p className="muted">{whenText(stepOf(step))}</p>
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
      <div className="draft">
        {mayEdit && (
          <Editor place={place} draft={step} tags={tags} mayWrite isNew={number === 0} isSubjectRequired>
            {(input) => <Settings input={input} />}
          </Editor>
        )}
        {number > 0 && <Preview mail={mail} version={step.updated_at} />}
      </div>
      {number > 0 && <Warnings mail={mail} at={step.updated_at} />}
    </section>
  );
}

/** When a step is mailed, and to whom it is not. */
function Settings({ input }: { input: InputOf }) {
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
  const [isOpen] = useState(value !== "null");
  const given = JSON.parse(value);
  const change = (next: unknown) => {
    const isNone = next !== undefined && partsOf(grouped(next) as Condition).length === 0;
    if (isNone) setNone(next);
    onChange(JSON.stringify(isNone ? null : (next ?? UNREADABLE)));
  };
  return (
    <details open={isOpen}>
      <summary>
        {label} {given === null ? "– never" : "…"}
      </summary>
      <Conditions value={given === UNREADABLE ? undefined : (given ?? none)} onChange={change} />
      <Refused name={name} />
      <p className="muted">“Any email” means any email of this sequence.</p>
    </details>
  );
}

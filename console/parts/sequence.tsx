import { useState } from "react";
import { Conditions } from "./audience/builder.tsx";
import { type Condition, grouped, partsOf } from "./audience/conditions.ts";
import { TagField } from "./draft/tag-field.tsx";
import { Form, type FormProps, Inputs, Refused, type Save, type Values } from "./form.tsx";

/** The words of a status, and their colour. */
export const SEQUENCE_STATES = {
  DRAFT: ["Draft", "muted"],
  ACTIVE: ["Runs", "good"],
  PAUSED: ["Paused", "warn"],
  STOPPED: ["Stopped", "muted"],
} as const;

/** A step, as the service takes it. */
export interface Step {
  id: string;
  wait_minutes: number;
  time_of_day: string | null;
  /** ISO weekdays; none is any day. */
  send_days: number[];
  subject: string;
  body: string;
  /** As of segments; none is met by no person. */
  stop_if?: unknown;
  skip_if?: unknown;
}

const DAYS = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
const UNITS = { 1440: "days", 60: "hours", 1: "minutes" } as const;
const unitOf = (minutes: number) => ([1_440, 60] as const).find((unit) => minutes % unit === 0) ?? 1;

/** "3 days later at 09:30 on Mon, Fri". */
export function whenText({ wait_minutes: wait, time_of_day: time, send_days }: Step): string {
  const unit = unitOf(wait);
  const count = wait / unit;
  const later = `${count} ${count === 1 ? UNITS[unit].slice(0, -1) : UNITS[unit]} later`;
  const days = send_days.map((day) => DAYS[day - 1]).join(", ");
  return `${wait === 0 ? "At once" : later}${time ? ` at ${time}` : ""}${days && ` on ${days}`}`;
}

const TIME_INPUTS = [
  ["wait_minutes", "Wait", { type: "number", min: 0, required: true }],
  ["unit", "Unit", { choices: UNITS }],
  ["time_of_day", "Time of day", { type: "time", hint: "Empty: any time." }],
] as const;
const CONDITIONS = { stop_if: "Leave the sequence if", skip_if: "Skip this step if" } as const;

const timesOf = ({ wait_minutes: wait, time_of_day }: Step) => {
  const unit = unitOf(wait);
  return { time_of_day, unit, wait_minutes: wait / unit };
};

/** Reads the inputs of a step. @param at of their names: `steps[0].` */
function stepOf(id: string, at: string, values: Values): Step {
  const text = (name: string) => values[`${at}${name}`] ?? "";
  return {
    id,
    wait_minutes: Number(text("wait_minutes")) * Number(text("unit")),
    time_of_day: text("time_of_day") || null,
    send_days: DAYS.flatMap((_, i) => (text(`day${i + 1}`) ? [i + 1] : [])),
    subject: text("subject"),
    body: text("body"),
    stop_if: JSON.parse(text("stop_if")),
    skip_if: JSON.parse(text("skip_if")),
  };
}

const newStep = (): Step => ({
  id: `step-${crypto.randomUUID().slice(0, 8)}`,
  ...{ wait_minutes: 1_440, time_of_day: null, send_days: [], subject: "", body: "", stop_if: null, skip_if: null },
});

/** Conditions as of a segment, which its form reads as JSON. Without any, no person meets them. */
function ConditionInput({ first, label, name }: { first: unknown; label: string; name: string }) {
  const [value, setValue] = useState<unknown>(first ?? { all: [] });
  const isNone = value !== undefined && partsOf(grouped(value) as Condition).length === 0;
  return (
    <details open={first != null}>
      <summary>
        {label} {isNone ? "– never" : "…"}
      </summary>
      <Conditions value={value} onChange={setValue} />
      <input type="hidden" name={name} value={JSON.stringify(isNone ? null : (value ?? "no JSON"))} />
      <Refused name={name} />
      <p className="muted">“Any mail” is any mail of this sequence.</p>
    </details>
  );
}

/** All steps as one text. */
export const stepsText = (steps: readonly Step[]) =>
  steps
    .map((step, i) => {
      const conditions = (["stop_if", "skip_if"] as const).flatMap((name) =>
        step[name] ? [`${CONDITIONS[name]} ${JSON.stringify(step[name])}`] : [],
      );
      return [`Step ${i + 1}: ${whenText(step)}`, `Subject: ${step.subject}`, step.body, ...conditions].join("\n");
    })
    .join("\n");

/** The version of the steps of a sequence. */
export const stepsVersion = ({ steps, steps_updated_at }: { steps: readonly Step[]; steps_updated_at: string }) => ({
  updated_at: steps_updated_at,
  steps: stepsText(steps),
});

export type StepsSave = (steps: Step[], save: Save) => Promise<unknown>;

interface StepsEditorProps extends Pick<FormProps, "edits" | "onKept"> {
  saved: readonly Step[];
  tags: readonly string[];
  save: StepsSave;
}

/** Edits all steps, and saves them at once. */
export function StepsEditor({ saved, tags, save, edits, onKept }: StepsEditorProps) {
  const [steps, setSteps] = useState(() => (saved.length > 0 ? saved : [newStep()]));
  const insert = (at: number) => setSteps([...steps.slice(0, at), newStep(), ...steps.slice(at)]);
  return (
    <Form
      submit="Save all steps"
      isDisabled={steps.length === 0}
      edits={edits}
      onKept={onKept}
      onSubmit={(values, _, saveFrom) => {
        const given = steps.map(({ id }, i) => stepOf(id, `steps[${i}].`, values));
        return save(given, saveFrom);
      }}
    >
      {steps.map((step, i) => (
        <fieldset key={step.id} className="card stack">
          <legend>Step {i + 1}</legend>
          <div className="filters">
            <Inputs inputs={TIME_INPUTS} at={`steps[${i}].`} values={timesOf(step)} />
          </div>
          <TagField label="Subject" name={`steps[${i}].subject`} defaultValue={step.subject} tags={tags} />
          <TagField label="HTML" name={`steps[${i}].body`} defaultValue={step.body} tags={tags} rows={8} />
          {(["stop_if", "skip_if"] as const).map((name) => (
            <ConditionInput key={name} label={CONDITIONS[name]} first={step[name]} name={`steps[${i}].${name}`} />
          ))}
          <fieldset className="actions">
            <legend>Days, in your team's time zone; none means any day</legend>
            {DAYS.map((name, day) => (
              <label key={name}>
                <input
                  type="checkbox"
                  name={`steps[${i}].day${day + 1}`}
                  defaultChecked={step.send_days.includes(day + 1)}
                />{" "}
                {name}
              </label>
            ))}
          </fieldset>
          <div className="actions">
            <button type="button" className="danger" onClick={() => setSteps(steps.filter((other) => other !== step))}>
              Remove step {i + 1}
            </button>
            <button type="button" onClick={() => insert(i)}>
              New step before step {i + 1}
            </button>
          </div>
        </fieldset>
      ))}
      <div className="actions">
        <button type="button" onClick={() => insert(steps.length)}>
          New step at the end
        </button>
      </div>
    </Form>
  );
}

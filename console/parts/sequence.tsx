import { useState } from "react";
import { refuse } from "../api.ts";
import { Form, Inputs, type Values } from "./form.tsx";

/** The words of a status, and their colour. */
export const SEQUENCE_STATES = {
  DRAFT: ["Draft", "muted"],
  ACTIVE: ["Runs", "good"],
  PAUSED: ["Paused", "warn"],
  STOPPED: ["Stopped", "muted"],
} as const;

export function SequenceState({ status }: { status: string }) {
  const [text, colour] = SEQUENCE_STATES[status as keyof typeof SEQUENCE_STATES] ?? [status, "muted"];
  return <strong className={colour}>{text}</strong>;
}

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

const CONDITION = { rows: 3, hint: "JSON, as segments have it. Empty: never." };
const TIME_INPUTS = [
  ["wait_minutes", "Wait", { type: "number", min: 0, required: true }],
  ["unit", "Unit", { choices: UNITS }],
  ["time_of_day", "Time of day", { type: "time", hint: "Empty: any time." }],
] as const;
const INPUTS = [
  ["subject", "Subject", { required: true, maxLength: 998 }],
  ["body", "Text (HTML)", { rows: 8, required: true, hint: "{{ first_name }} and other merge tags are filled in." }],
  ["stop_if", "Leave the sequence if", CONDITION],
  ["skip_if", "Skip this step if", CONDITION],
] as const;

const FIELDS = [...TIME_INPUTS, ...INPUTS].map(([name]) => name);

const jsonText = (value: unknown) => (value == null ? "" : JSON.stringify(value, null, 2));
const textsOf = (step: Step) => {
  const unit = unitOf(step.wait_minutes);
  const conditions = { stop_if: jsonText(step.stop_if), skip_if: jsonText(step.skip_if) };
  return { ...step, unit, wait_minutes: step.wait_minutes / unit, ...conditions };
};

/** Reads the inputs of a step. @param at of their names: `steps[0].` */
function stepOf(id: string, at: string, values: Values): Step {
  const text = (name: string) => values[`${at}${name}`] ?? "";
  const condition = (name: string): unknown => {
    try {
      return text(name).trim() === "" ? null : JSON.parse(text(name));
    } catch {
      throw refuse(`${at}${name}`, "This is not valid JSON.");
    }
  };
  return {
    id,
    wait_minutes: Number(text("wait_minutes")) * Number(text("unit")),
    time_of_day: text("time_of_day") || null,
    send_days: DAYS.flatMap((_, i) => (text(`day${i + 1}`) ? [i + 1] : [])),
    subject: text("subject"),
    body: text("body"),
    stop_if: condition("stop_if"),
    skip_if: condition("skip_if"),
  };
}

const newStep = (): Step => ({
  id: `step-${crypto.randomUUID().slice(0, 8)}`,
  ...{ wait_minutes: 1_440, time_of_day: null, send_days: [], subject: "", body: "", stop_if: null, skip_if: null },
});

/** Edits all steps, and saves them at once. */
export function StepsEditor({ saved, save }: { saved: readonly Step[]; save: (steps: Step[]) => Promise<unknown> }) {
  const [steps, setSteps] = useState(() => (saved.length > 0 ? saved : [newStep()]));
  const insert = (at: number) => setSteps([...steps.slice(0, at), newStep(), ...steps.slice(at)]);
  return (
    <Form
      submit="Save all steps"
      isDisabled={steps.length === 0}
      fields={steps.flatMap((_, i) => FIELDS.map((name) => `steps[${i}].${name}`))}
      onSubmit={(values) => save(steps.map(({ id }, i) => stepOf(id, `steps[${i}].`, values)))}
    >
      {(problemOf) => {
        const inputsOf = (step: Step, i: number) => ({
          ...{ at: `steps[${i}].`, values: textsOf(step) },
          // The service names the field in the message, too.
          problemOf: (name: string) => problemOf(name)?.replace(`${name}: `, ""),
        });
        return (
          <>
            {steps.map((step, i) => (
              <fieldset key={step.id} className="card stack">
                <legend>Step {i + 1}</legend>
                <div className="filters">
                  <Inputs inputs={TIME_INPUTS} {...inputsOf(step, i)} />
                </div>
                <Inputs inputs={INPUTS} {...inputsOf(step, i)} />
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
                  <button
                    type="button"
                    className="danger"
                    onClick={() => setSteps(steps.filter((other) => other !== step))}
                  >
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
          </>
        );
      }}
    </Form>
  );
}

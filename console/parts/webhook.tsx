import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { useWorkspace } from "../session.tsx";
import { Copy } from "./act.tsx";
import { Dialog } from "./dialog.tsx";
import { Loading, Problem } from "./page.tsx";

export const HEALTH = {
  working: ["Works", "good"],
  failing: ["Fails", "wrong"],
  unproven: ["No success in the last day", "muted"],
} as const;

interface StateProps {
  active: boolean;
  health: keyof typeof HEALTH;
  disabled_reason: string | null;
}

export function EndpointState({ active, health, disabled_reason }: StateProps) {
  if (active) return <strong className={HEALTH[health][1]}>{HEALTH[health][0]}</strong>;
  return disabled_reason === "manual" ? (
    <strong className="warn">Off</strong>
  ) : (
    <strong className="wrong">Switched off, because it failed for days</strong>
  );
}

export const ENDPOINT_INPUTS = [
  ["url", "URL", { type: "url", required: true }],
  ["name", "Name", { maxLength: 200, hint: "Empty: the host of the URL." }],
  ["description", "Note", { maxLength: 1_000 }],
] as const;

/** The events that there are. */
export function useEventTypes() {
  const { client, base } = useWorkspace();
  const queryKey = [base, "webhook-events"];
  return useQuery({ queryKey, queryFn: () => client.api.webhooks.listEventTypes.query({}), staleTime: Infinity });
}

interface PickerProps {
  chosen: readonly string[];
  onChange: (events: string[]) => void;
  problem?: string | undefined;
}

/** Checkboxes for events. */
export function EventPicker({ chosen, onChange, problem }: PickerProps) {
  const query = useEventTypes();
  if (query.isPending) return <Loading />;
  if (query.error) return <Problem error={query.error} />;
  const types = query.data.data;
  return (
    <fieldset className="events">
      <legend>Events</legend>
      <button type="button" onClick={() => onChange(chosen.length === types.length ? [] : types.map(({ id }) => id))}>
        {chosen.length === types.length ? "None" : "All"}
      </button>
      {types.map(({ id, description }) => (
        <label key={id}>
          <input
            type="checkbox"
            checked={chosen.includes(id)}
            onChange={({ target }) =>
              onChange(target.checked ? [...chosen, id] : chosen.filter((other) => other !== id))
            }
          />
          <span>
            {id} <span className="muted">{description}</span>
          </span>
        </label>
      ))}
      {problem && <p className="wrong">{problem}</p>}
    </fieldset>
  );
}

/** A secret that is shown this once; `show` opens its dialog. */
export function useSecret() {
  const [secret, show] = useState<string>();
  const dialog = secret !== undefined && (
    <Dialog title="The endpoint's secret" onClose={() => show(undefined)}>
      <p>Copy it to your program now: it verifies the signatures, and it is not shown again.</p>
      <Copy text={secret} name="the secret" />
    </Dialog>
  );
  return { show, dialog };
}

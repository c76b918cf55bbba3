import { useMutation, useQueryClient } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import { useRole, useWorkspace } from "../../session.tsx";
import { Combobox } from "../combobox.tsx";
import { useEdit } from "../edit.tsx";
import { Field, MOST_LISTED, type Save, Ticks } from "../form.tsx";
import { Problem } from "../page.tsx";
import type { Kind } from "../send/calls.ts";
import { type Draft, IN_TURN, useAccounts, useContent, useSettings, useSizedTargets, useTargets } from "./drafts.ts";

const DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];
const OF_TEAM = { OFF: "off", ALL: "for everyone who has not said no", AGREED: "for people who agreed" };
/** Of which people opens and clicks are counted. @param tracking of the draft, which may leave it to its team */
export function trackingText(tracked: Tracked): string {
  const mode = trackingMode(tracked);
  return mode === "OFF" ? "not counted" : `counted ${OF_TEAM[mode]}`;
}
export const trackingMode = ({ tracking, team_tracking: team }: Tracked) =>
  tracking === false ? "OFF" : tracking && team === "OFF" ? "ALL" : team;
interface Tracked {
  tracking?: boolean | null;
  team_tracking: keyof typeof OF_TEAM;
}
const TRACKING: Record<string, boolean | null> = { team: null, on: true, off: false };
/** The field by which a mail's tracking is chosen. */
export const trackingField = ({ tracking, team_tracking: team }: Tracked) => ({
  label: "Track opens and clicks",
  hint: "On: links go through this service, and an invisible image reports opens.",
  options: [
    { id: "team", name: `Team setting: ${OF_TEAM[team]}` },
    { id: "on", name: `On: ${OF_TEAM[trackingMode({ tracking: true, team_tracking: team })]}` },
    { id: "off", name: "Off" },
  ],
  chosen: tracking === false ? "off" : tracking ? "on" : "team",
  /** @returns the body that saves a choice */
  bodyOf: (chosen: string) => ({ tracking: TRACKING[chosen] ?? null }),
});

interface Of {
  kind: Kind;
  draft: Draft;
}

/** Saves each choice of a draft at once. */
function useChoices({ kind, draft }: Of) {
  const { client, base } = useWorkspace();
  const { tracking, segment_id } = useSettings(kind, draft.id);
  const { settings } = client.app.content;
  const content = useContent(kind, draft.id);
  const one = { type: kind, id: draft.id };
  const read = async () => {
    const { data } = await content.read();
    const { tracking, segment_id } = (await settings.query({ query: one })).data;
    return { data: { ...data, tracking, segment_id } };
  };
  const { saveFrom, dialog } = useEdit({ id: draft.id, read });
  const queries = useQueryClient();
  // A choice waits for the one before it, and begins with the draft as that has left it, shown or not yet.
  const save: Save = (body, write) => {
    const key = [base, `${kind}s`, draft.id];
    const now = { ...draft, tracking, segment_id, ...queries.getQueryData<Draft>(key) };
    return saveFrom({ ...now, ...queries.getQueryData<object>([...key, "settings"]) }, body, write);
  };
  return { one, save, dialog };
}

/** Whom a draft goes to. */
export function Recipients({ kind, draft }: Of) {
  const targets = useSizedTargets(kind);
  const accounts = useAccounts();
  const { segment_id, segment_name } = useSettings(kind, draft.id);
  const segments = useTargets("campaign");
  const { attachList, detachList, attachAccounts, change } = useWorkspace().client.app.content;
  const { one, save, dialog } = useChoices({ kind, draft });
  const chosen = "lists" in draft ? draft.lists : [draft.segment_id];
  const names = targets.filter(({ id }) => chosen.includes(id)).map(({ name }) => name);
  const saveSegment = (chosen: string) => {
    const body = { segment_id: chosen || null };
    return save(body, (options) => change.mutate({ body: { ...one, ...body } }, options));
  };
  const isDeleted = segment_id !== null && !segments.some(({ id }) => id === segment_id);
  const deleted = isDeleted ? [{ id: segment_id, name: `${segment_name} (deleted: choose another)` }] : [];
  return (
    <details className="stack">
      <summary>
        To: {names.join(", ") || <span className="warn">choose {kind === "newsletter" ? "a list" : "a segment"}</span>}
        {"lists" in draft && segment_name && `, in segment ${segment_name}`}
      </summary>
      {"lists" in draft ? (
        <>
          <Several
            label="Lists"
            hint="Their confirmed subscribers get it, once each."
            options={targets}
            chosen={draft.lists}
            save={({ ids, id: list_id }) =>
              (ids.includes(list_id) ? attachList : detachList).mutate({ body: { newsletter_id: draft.id, list_id } })
            }
          />
          {(segments.length > 0 || isDeleted) && (
            <One
              label="Only people in a segment"
              hint="Of the lists' subscribers, those whose address is a contact of the segment."
              options={[{ id: "", name: "Everyone on the lists" }, ...segments, ...deleted]}
              chosen={segment_id ?? ""}
              save={saveSegment}
            />
          )}
        </>
      ) : (
        <>
          <One
            label="Segment"
            hint="Its contacts with a valid address get it."
            options={targets}
            chosen={draft.segment_id}
            save={saveSegment}
          />
          <Several
            label="Sending accounts"
            hint="Each sends to a share of the recipients, from its own address."
            options={accounts.map(({ id, email, status }) => ({
              id,
              name: status === "ACTIVE" ? email : `${email} (cannot send now)`,
            }))}
            chosen={draft.account_ids}
            save={({ ids: account_ids }) =>
              save({ account_ids }, (options) =>
                attachAccounts.mutate({ body: { campaign_id: draft.id, account_ids } }, options),
              )
            }
          />
        </>
      )}
      {dialog}
    </details>
  );
}

/** On which days a draft starts, and whether opens and clicks are counted. */
export function Choices({ kind, draft, children }: Of & { children: ReactNode }) {
  const { client, current } = useWorkspace();
  const { bodyOf, ...tracking } = trackingField(useSettings(kind, draft.id));
  const { change } = client.app.content;
  const { one, save, dialog } = useChoices({ kind, draft });
  const [isOpen] = useState(draft.send_days.length > 0);
  return (
    <div className="cards">
      <div className="card stack">{children}</div>
      <details className="card stack" open={isOpen}>
        <summary>
          Days: <strong>{draft.send_days.map((day) => DAYS[day - 1]).join(", ") || "any"}</strong>
        </summary>
        <Several
          label="Days it may start"
          hint={`In the team's time zone, ${current.timeZone}. Choose none for any day.`}
          options={DAYS.map((name, index) => ({ id: `${index + 1}`, name }))}
          chosen={draft.send_days.map(String)}
          save={({ ids }) => {
            const send_days = ids.map(Number);
            return save({ send_days }, (options) => change.mutate({ body: { ...one, send_days } }, options));
          }}
        />
      </details>
      <One
        {...tracking}
        save={(chosen) => {
          const body = bodyOf(chosen);
          return save(body, (options) => change.mutate({ body: { ...one, ...body } }, options));
        }}
      />
      {dialog}
    </div>
  );
}

interface ChoiceProps<Value> {
  label: string;
  hint: string;
  options: readonly { id: string; name: string }[];
  save: (value: Value) => Promise<unknown>;
}

/** All that are chosen, and the one whose choice has changed. */
interface Selection {
  ids: string[];
  id: string;
}

/** A change that is saved at once. */
function useSave<Value>(save: (value: Value) => Promise<unknown>) {
  const { base } = useWorkspace();
  const { mutate, error } = useMutation({ mutationKey: [base, "save"], mutationFn: save, ...IN_TURN });
  // A box that is not shown ticked in the same turn is set back by React until the change is under way.
  const [own, setOwn] = useState<Value>();
  const change = (value: Value) => {
    setOwn(() => value);
    mutate(value, { onSettled: () => setOwn(undefined) });
  };
  return { mayWrite: useRole("EDITOR"), own, change, error };
}

function Several({ label, hint, options, chosen, save }: ChoiceProps<Selection> & { chosen: readonly string[] }) {
  const { own, change, error, mayWrite } = useSave(save);
  const value = own?.ids ?? chosen;
  return (
    <fieldset className="card" disabled={!mayWrite}>
      <legend>{label}</legend>
      <p className="muted">{options.length === 0 ? "There are none yet: create one first." : hint}</p>
      {options.length > MOST_LISTED ? (
        <Combobox<readonly string[]>
          aria-label={label}
          disabled={!mayWrite}
          choices={Object.fromEntries(options.map(({ id, name }) => [id, name]))}
          value={value}
          onChange={(ids) => {
            const id = [...ids, ...value].find((one) => ids.includes(one) !== value.includes(one));
            if (id !== undefined) change({ ids: [...ids], id });
          }}
        />
      ) : (
        <Ticks options={options} chosen={value} onChange={(ids, id) => change({ ids, id })} />
      )}
      <Problem error={error} />
    </fieldset>
  );
}

function One({ label, hint, options, chosen, save }: ChoiceProps<string> & { chosen: string | null }) {
  const { own, change, error, mayWrite } = useSave(save);
  return (
    <div className="card stack">
      <Field
        label={label}
        name={label}
        hint={hint}
        choices={{
          ...(chosen === null && { "": "None yet" }),
          ...Object.fromEntries(options.map(({ id, name }) => [id, name])),
        }}
        value={own ?? chosen ?? ""}
        disabled={!mayWrite}
        onChange={change}
      />
      <Problem error={error} />
    </div>
  );
}

import { useMutation, useQueryClient } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { type ReactNode, useId } from "react";
import { useRole, useWorkspace } from "../../session.tsx";
import { Loading, Problem } from "../page.tsx";
import { type Draft, type Kind, useAccounts, useSettings, useTargets } from "./drafts.ts";

interface TargetsProps {
  kind: Kind;
  draft: Draft;
}

/** Whom a draft goes to, on which days, and whether opens and clicks are counted. Each choice is saved at once. */
export function Targets({ kind, draft }: TargetsProps) {
  return (
    <section className="cards" aria-label="Recipients and sending">
      {"lists" in draft ? <Lists draft={draft} /> : <SegmentAndAccounts draft={draft} />}
      <Days kind={kind} draft={draft} />
      <Tracking kind={kind} draft={draft} />
    </section>
  );
}

interface ChoiceProps<Value> {
  label: string;
  hint: ReactNode;
  /** Undefined until they are read. */
  options: readonly { id: string; name: string }[] | undefined;
  save: (value: Value) => Promise<unknown>;
}

/** A change that is saved at once; then all that is known of drafts is read anew. */
function useSave<Value>(save: (value: Value) => Promise<unknown>) {
  const { base } = useWorkspace();
  const queries = useQueryClient();
  const changed = () =>
    Promise.all(["newsletters", "campaigns"].map((name) => queries.invalidateQueries({ queryKey: [base, name] })));
  return { mayWrite: useRole("EDITOR"), ...useMutation({ mutationFn: save, onSettled: changed }) };
}

/** Checkboxes. */
function Several({ label, hint, options, chosen, save }: ChoiceProps<string[]> & { chosen: readonly string[] }) {
  const { mutate, isPending, error, mayWrite } = useSave(save);
  if (!options) return <Loading />;
  return (
    <fieldset className="card choices" disabled={!mayWrite || isPending}>
      <legend>{label}</legend>
      <p className="muted">{hint}</p>
      <ul className="plain">
        {options.map(({ id, name }) => (
          <li key={id}>
            <label>
              <input
                type="checkbox"
                checked={chosen.includes(id)}
                onChange={({ currentTarget: { checked } }) =>
                  mutate([...chosen.filter((other) => other !== id), ...(checked ? [id] : [])])
                }
              />{" "}
              {name}
            </label>
          </li>
        ))}
      </ul>
      <Problem error={error} />
    </fieldset>
  );
}

function One({ label, hint, options, chosen, save }: ChoiceProps<string> & { chosen: string | null }) {
  const id = useId();
  const { mutate, isPending, error, mayWrite } = useSave(save);
  if (!options) return <Loading />;
  return (
    <div className="card field">
      <label htmlFor={id}>{label}</label>
      <select
        id={id}
        value={chosen ?? ""}
        disabled={!mayWrite || isPending}
        onChange={({ currentTarget: { value } }) => mutate(value)}
      >
        {chosen === null && <option value="">None yet</option>}
        {options.map((option) => (
          <option key={option.id} value={option.id}>
            {option.name}
          </option>
        ))}
      </select>
      <p className="muted">{hint}</p>
      <Problem error={error} />
    </div>
  );
}

function Lists({ draft: { id, lists } }: { draft: Extract<Draft, { lists: unknown }> }) {
  const { client, base } = useWorkspace();
  const { data, error } = useTargets("newsletter");
  if (error) return <Problem error={error} />;
  return (
    <Several
      label="Lists"
      hint={
        <>
          Their confirmed subscribers get it, each once. <Link to={`${base}/lists`}>All lists</Link>
        </>
      }
      options={data}
      chosen={lists}
      save={async (ids) => {
        const { attachList, detachList } = client.app.content;
        const bodyOf = (list_id: string) => ({ body: { newsletter_id: id, list_id } });
        for (const list of ids) if (!lists.includes(list)) await attachList.mutate(bodyOf(list));
        for (const list of lists) if (!ids.includes(list)) await detachList.mutate(bodyOf(list));
      }}
    />
  );
}

function SegmentAndAccounts({ draft }: { draft: Extract<Draft, { account_ids: unknown }> }) {
  const { client, base } = useWorkspace();
  const segments = useTargets("campaign");
  const accounts = useAccounts();
  const { attachSegment, attachAccounts } = client.app.content;
  const one = { campaign_id: draft.id };
  if (segments.error ?? accounts.error) return <Problem error={segments.error ?? accounts.error} />;
  return (
    <>
      <One
        label="Segment"
        hint={
          <>
            Its contacts with a valid address get it. <Link to={`${base}/segments`}>All segments</Link>
          </>
        }
        options={segments.data}
        chosen={draft.segment_id}
        save={(id) => attachSegment.mutate({ body: { ...one, segment_id: id } })}
      />
      <Several
        label="Sending accounts"
        hint={
          <>
            Each mails a share of the recipients, under its own address.{" "}
            <Link to={`${base}/accounts`}>All accounts</Link>
          </>
        }
        options={accounts.data?.map(({ id, email, status }) => ({
          id,
          name: status === "ACTIVE" ? email : `${email} (cannot send now)`,
        }))}
        chosen={draft.account_ids}
        save={(ids) => attachAccounts.mutate({ body: { ...one, account_ids: ids } })}
      />
    </>
  );
}

const DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];

function Days({ kind, draft }: TargetsProps) {
  const { client, current } = useWorkspace();
  return (
    <Several
      label="Days on which it may start"
      hint={`In the team's time zone, ${current.timeZone}. None chosen means any day.`}
      options={DAYS.map((name, index) => ({ id: `${index + 1}`, name }))}
      chosen={draft.send_days.map(String)}
      save={(days) =>
        client.app.content.change.mutate({ body: { type: kind, id: draft.id, send_days: days.map(Number) } })
      }
    />
  );
}

const TRACKING: Record<string, boolean | null> = { team: null, on: true, off: false };

function Tracking({ kind, draft: { id } }: TargetsProps) {
  const { client } = useWorkspace();
  const { data, error } = useSettings(kind, id);
  if (!data) return <Problem error={error} />;
  return (
    <One
      label="Count opens and clicks"
      hint="On: links lead over this service, and a picture that is not seen reports the opening."
      options={[
        { id: "team", name: `As the team's setting: ${data.team_tracking ? "on" : "off"}` },
        { id: "on", name: "On" },
        { id: "off", name: "Off" },
      ]}
      chosen={data.tracking === null ? "team" : data.tracking ? "on" : "off"}
      save={(chosen) =>
        client.app.content.change.mutate({ body: { type: kind, id, tracking: TRACKING[chosen] ?? null } })
      }
    />
  );
}

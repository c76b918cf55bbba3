import { Link, useNavigate, useParams } from "@tanstack/react-router";
import { useState } from "react";
import type { Client, DataOf } from "../api.ts";
import { Act } from "../parts/act.tsx";
import { useLists } from "../parts/audience/lists.ts";
import { saveFile } from "../parts/export.tsx";
import { useFilters } from "../parts/filters.tsx";
import { Field, Form, type Values } from "../parts/form.tsx";
import { More } from "../parts/more.tsx";
import { Facts, PageHead, Part, State, When } from "../parts/page.tsx";
import { Table } from "../parts/table.tsx";
import { useData, useWorkspace } from "../session.tsx";
import { isUnderWay, POLL_MS, STATES } from "./imports.tsx";

type Import = DataOf<Client["app"]["imports"]["retrieve"]["query"]>;
type Kind = NonNullable<Import["kind"]>;

const REFUSED_SHOWN = 20;

/** The page for the next step after an import. */
const NEXT = {
  subscribers: ["newsletters", "Write a newsletter"],
  contacts: ["segments", "Select some of them with a segment"],
  suppressions: ["suppressions", "See all suppressed addresses"],
} as const;

/** One uploaded file: its columns, the check, and the import. */
export function Page() {
  const { client, base } = useWorkspace();
  const { importId = "" } = useParams({ strict: false }) as { importId?: string };
  const params = { importId };
  const { imports } = client.app;
  const navigate = useNavigate();
  const found = useData(["imports", importId], () => imports.retrieve.query({ params }), {
    poll: ({ state }) => isUnderWay(state) && POLL_MS,
  });
  const { state, name, progress, failure, report, refused } = found;
  const isEditable = state === "UPLOADED" || state === "CHECKED" || state === "FAILED";
  return (
    <>
      <p>
        <Link to={`${base}/imports`}>Imports</Link>
      </p>
      <PageHead title={name}>
        {state !== "RUNNING" && (
          <More>
            <Act
              title="Delete this import"
              kind="danger"
              note="The file and its report are deleted. People it imported stay."
              act={async () => {
                await imports.remove.mutate({ params });
                await navigate({ to: `${base}/imports` });
              }}
            />
          </More>
        )}
      </PageHead>
      <p role="status">
        <State of={STATES} is={state} />{" "}
        {isEditable && (
          <>
            This file is kept until <When at={found.expires_at} />.
          </>
        )}
      </p>
      {isUnderWay(state) && (
        <label>
          {progress}%, even if you close this tab <progress max={100} value={progress} />
        </label>
      )}
      {failure && (
        <p className="problem" role="alert">
          {failure}
        </p>
      )}
      {report && (
        <section className="card stack" aria-label="Report">
          <h2>{state === "DONE" ? "What the import changed" : "What the import would change"}</h2>
          <Report {...report} />
          {state === "DONE" && found.kind && (
            <p>
              Next: <Link to={`${base}/${NEXT[found.kind][0]}`}>{NEXT[found.kind][1]}</Link>
            </p>
          )}
          {state === "CHECKED" && (
            <Form submit="Import now" onSubmit={() => imports.run.mutate({ params }, { context: { began: found } })}>
              <p>
                Nothing has changed yet. People are imported in batches: if the import fails, those already imported
                stay, and you import the others from the same file.
              </p>
            </Form>
          )}
        </section>
      )}
      {refused.length > 0 && <RefusedLines lines={refused} isWhole={refused.length === report?.refused} />}
      {isEditable && (
        <details open={state !== "CHECKED"} key={state}>
          <summary>Columns and options</summary>
          <Part>
            <Choices found={found} />
          </Part>
        </details>
      )}
    </>
  );
}

function RefusedLines({ lines, isWhole }: { lines: Import["refused"]; isWhole: boolean }) {
  const csv = lines.map(({ line, reason }) => `${line},"${reason.replaceAll('"', '""')}"\r\n`);
  return (
    <section className="stack" aria-label="Rejected lines">
      <div className="head">
        <h2>Rejected lines</h2>
        <button type="button" onClick={() => saveFile("refused.csv", ["line,reason\r\n", ...csv])}>
          Download CSV
        </button>
      </div>
      <Table
        caption="The first rejected lines"
        rows={lines.slice(0, REFUSED_SHOWN)}
        keyOf={({ line }) => String(line)}
        columns={[
          { name: "Line", cell: ({ line }) => line },
          { name: "Reason", cell: ({ reason }) => reason },
        ]}
      />
      {lines.length > REFUSED_SHOWN && (
        <p className="muted">
          These are the first {REFUSED_SHOWN}; the download has{" "}
          {isWhole ? "all" : `the first ${lines.length.toLocaleString()}`}.
        </p>
      )}
    </section>
  );
}

const LABELS: Readonly<Record<string, string>> = {
  rows: "Rows in the file",
  created: "New people",
  updated: "People updated",
  unchanged: "People unchanged",
  duplicates: "Rows whose address appears again further down",
  refused: "Rows rejected",
  suppressed: "Addresses newly suppressed",
  already_suppressed: "Addresses already suppressed",
  added: "Added to the list",
  confirmed: "On the list and confirmed by this file",
  already_subscribed: "Already on the list",
  newly_opted_out: "Unsubscribed from the list by the file",
  opted_out: "Unsubscribed before, and left unchanged",
};

function Report({ notes, list, ...counts }: NonNullable<Import["report"]>) {
  const figures = Object.entries({ ...counts, ...list }).filter(([name, value]) => value > 0 || name === "rows");
  return (
    <>
      <Facts
        className="figures"
        of={figures.map(([name, value]) => [LABELS[name] ?? name.replaceAll("_", " "), value.toLocaleString()])}
      />
      {notes.status_columns.length > 0 && (
        <p>
          Consent is read from {notes.status_columns.join(", ")}: people who opted out, bounced or complained are not
          emailed.
        </p>
      )}
      {notes.ignored_columns.length > 0 && <p>Not imported: {notes.ignored_columns.map(columnLabel).join(", ")}.</p>}
      {notes.windows_1252_lines > 0 && (
        <p>{notes.windows_1252_lines} lines are not UTF-8 and were read as Windows-1252. Check names with accents.</p>
      )}
    </>
  );
}

const columnLabel = (name: string): string => name || "Unnamed column";

const KINDS: Readonly<Record<Kind, string>> = {
  subscribers: "Subscribers: people who get newsletters, on a list",
  contacts: "Contacts: people with custom fields, for campaigns",
  suppressions: "Suppressions: addresses that are never emailed",
};

const USES: Readonly<Record<string, string>> = {
  none: "Not imported",
  ignored: "Not imported: about something else",
  consent: "Consent: may be emailed or not",
  email: "Email address",
  first_name: "First name",
  last_name: "Last name",
  tracking_consent: "Consent to tracking",
};

/** The kind of the import, the use of each column, and the check. */
function Choices({ found }: { found: Import }) {
  const { client } = useWorkspace();
  const [{ list: wanted }] = useFilters();
  const params = { importId: found.id };
  const [kind, setKind] = useState<Kind>(found.kind ?? "subscribers");
  const [chosen, setChosen] = useState(found.uses);
  const { columns, uses } = useData(
    ["imports", found.id, "columns", kind],
    () => client.app.imports.columns.query({ params, query: { kind } }),
    { staleTime: "static" },
  );
  const lists = useLists().map(({ id, name, optin }) => [id, optin === "DOUBLE" ? `${name} (double opt-in)` : name]);
  const choices = Object.fromEntries(
    ["none", "ignored", "consent", ...uses].map((use) => [use, USES[use] ?? `Field ${use}`]),
  );
  const now = columns.map(({ use }, at) => chosen?.[at] ?? use);
  const check = async ({ list_id, confirmed, enters_sequences }: Values) => {
    const options = { confirmed: confirmed === "on", enters_sequences: enters_sequences === "on" };
    const body = { kind, uses: now, ...(list_id && list_id !== "none" && { list_id }), ...options };
    await client.app.imports.check.mutate({ params, body });
  };
  return (
    <Form submit="Check the file" onSubmit={check}>
      <Field
        label="Import as"
        name="kind"
        choices={KINDS}
        value={kind}
        onChange={(next) => {
          setKind(next as Kind);
          setChosen(null);
        }}
      />
      {kind === "subscribers" && (
        <>
          <Field
            label="List"
            name="list_id"
            required
            choices={{
              "": "Choose a list",
              ...Object.fromEntries(lists),
              none: "No list: they get no newsletters yet",
            }}
            defaultValue={found.list_id ?? wanted ?? (found.kind === "subscribers" ? "none" : "")}
          />
          <label>
            <input type="checkbox" name="confirmed" defaultChecked={found.confirmed} /> They have agreed to receive
            emails: do not ask them to confirm, even if the list has double opt-in
          </label>
        </>
      )}
      {kind !== "suppressions" && (
        <label>
          <input type="checkbox" name="enters_sequences" defaultChecked={found.enters_sequences} /> They enter the
          sequences of the {kind === "contacts" ? "segments they match" : "list"}
        </label>
      )}
      <fieldset>
        <legend>Columns of the file</legend>
        <ul className="plain cards">
          {columns.map(
            ({ name, samples }, at) =>
              [name, ...samples].some((text) => text.trim()) && (
                // biome-ignore lint/suspicious/noArrayIndexKey: columns of a file never move
                <li key={at} className="card stack">
                  <Field
                    label={columnLabel(name)}
                    name={`column ${at}`}
                    hint={samples.map((text) => text || "–").join(" · ")}
                    choices={choices}
                    value={now[at]}
                    onChange={(use) => setChosen(now.map((other, i) => (i === at ? use : other)))}
                  />
                </li>
              ),
          )}
        </ul>
      </fieldset>
    </Form>
  );
}

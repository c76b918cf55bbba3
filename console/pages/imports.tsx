import { useMutation } from "@tanstack/react-query";
import { Link, useNavigate, useParams } from "@tanstack/react-router";
import { useRef, useState } from "react";
import { type Client, type DataOf, refusalOf } from "../api.ts";
import { Act } from "../parts/act.tsx";
import { useLists } from "../parts/audience/people.tsx";
import { useSizedTargets } from "../parts/draft/drafts.ts";
import { saveFile } from "../parts/export.tsx";
import { useFilters } from "../parts/filters.tsx";
import { Field, Form, Select, type Values } from "../parts/form.tsx";
import { More } from "../parts/more.tsx";
import { Facts, PageHead, Part, Problem, State, When } from "../parts/page.tsx";
import { All, Table } from "../parts/table.tsx";
import { useData, useRole, useWorkspace } from "../session.tsx";
import { FIELD_INPUTS } from "./fields.tsx";
import { ListButton } from "./lists.tsx";

const STATES = {
  UPLOADING: ["uploading", "accent"],
  UPLOADED: ["ready to check", "warn"],
  CHECKING: ["checking", "accent"],
  CHECKED: ["ready to import", "warn"],
  RUNNING: ["importing", "accent"],
  DONE: ["imported", "good"],
  FAILED: ["failed", "wrong"],
  UNDOING: ["undoing", "accent"],
  UNDONE: ["undone", "good"],
  UNDO_FAILED: ["partly undone", "wrong"],
} as const;

const POLL_MS = 2_000;
/** Columns that are not imported. */
const NAMED = 20;
const isUnderWay = (state: keyof typeof STATES) => ["CHECKING", "RUNNING", "UNDOING"].includes(state);

const progressOf = ({ progress, rows: { done, total } }: Pick<Import, "progress" | "rows">) =>
  `${progress}%: ${done.toLocaleString()} ${total === null ? "rows read" : `of ${total.toLocaleString()}`}`;

/** The files that were uploaded, and a new one. */
export function Imports() {
  const { client, base } = useWorkspace();
  const mayWrite = useRole("EDITOR");
  const imports = useData(["imports"], () => client.app.imports.list.query({}), {
    poll: (all) => all.some(({ state }) => isUnderWay(state)) && POLL_MS,
  });
  return (
    <>
      <PageHead title="Imports">{mayWrite && <NewImport />}</PageHead>
      <All
        caption="Imports"
        rows={imports}
        search={["File name contains", ({ name }) => name]}
        keyOf={({ id }) => id}
        columns={[
          {
            name: "File",
            cell: ({ id, name }) => (mayWrite ? <Link to={`${base}/imports/${id}`}>{name}</Link> : name),
          },
          { name: "Imported as", cell: ({ kind }) => kind ?? "not chosen" },
          {
            name: "List",
            cell: ({ list_id, list_name }) => list_name && <Link to={`${base}/lists/${list_id}`}>{list_name}</Link>,
          },
          { name: "Rows", cell: ({ reported_rows: rows }) => rows, isNumber: true },
          {
            name: "Status",
            cell: ({ state, ...row }) => (
              <>
                <State of={STATES} is={state} /> {isUnderWay(state) && progressOf(row)}
              </>
            ),
          },
          { name: "Uploaded", cell: ({ created_at }) => <When at={created_at} /> },
          { name: "By", cell: ({ by }) => by },
        ]}
        empty="No imports yet. Upload a CSV file of people: you see the changes before they are made."
      />
    </>
  );
}

/** Chooses a file, uploads it part by part, and opens its page. */
function NewImport() {
  const { client, base } = useWorkspace();
  const [{ list }] = useFilters();
  const navigate = useNavigate();
  const [progress, setProgress] = useState<number>();
  const box = useRef<HTMLDivElement>(null);
  return (
    <Act
      title="New import"
      submit="Upload file"
      kind="primary"
      act={async (values) => {
        const file: unknown = values["file"];
        if (!(file instanceof File)) return;
        const shown = box.current;
        try {
          const id = await upload(client, file, () => !shown?.isConnected, setProgress);
          await navigate({ to: `${base}/imports/${id}`, search: { list } });
        } finally {
          setProgress(undefined);
        }
      }}
    >
      <div ref={box} className="stack">
        <Field
          label="CSV file"
          name="file"
          type="file"
          accept=".csv,.tsv,.txt,text/csv"
          required
          hint="At most 100 MB. Its first row names the columns; one of them holds the email addresses."
        />
        {progress !== undefined && (
          <label>
            Uploading: keep this tab open until it is done. <progress max={1} value={progress} />
          </label>
        )}
      </div>
    </Act>
  );
}

/** A part that did not arrive is sent again so often: a second one changes nothing. */
const TRIES = 4;
const WAIT_MS = 1_000;

async function upload(
  client: Client,
  file: File,
  isClosed: () => boolean,
  onProgress: (share: number) => void,
): Promise<string> {
  const body = { name: file.name.slice(0, 255), size: file.size };
  const { id, part_bytes: length } = (await client.app.imports.begin.mutate({ body })).data;
  const params = { importId: id };
  const sendPart = async (n: number, base64: string, tries = 1): Promise<void> => {
    if (isClosed()) throw new Error("the dialog was closed");
    try {
      await client.app.imports.part.mutate({ params, body: { n, base64 } });
    } catch (error) {
      if (tries === TRIES || (refusalOf(error).status ?? 503) < 429) throw error;
      await new Promise((resolve) => setTimeout(resolve, WAIT_MS * 2 ** tries));
      await sendPart(n, base64, tries + 1);
    }
  };
  try {
    for (let n = 0; n * length < file.size; n++) {
      await sendPart(n, await base64Of(file.slice(n * length, (n + 1) * length)));
      onProgress(Math.min(1, ((n + 1) * length) / file.size));
    }
  } catch (error) {
    // Unless it can be deleted, it stands in the list for an hour.
    await client.app.imports.remove.mutate({ params }).catch(() => {});
    throw error;
  }
  return id;
}

const base64Of = (bytes: Blob) =>
  new Promise<string>((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(String(reader.result).replace(/^[^,]*,/, ""));
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(bytes);
  });

type Import = DataOf<Client["app"]["imports"]["retrieve"]["query"]>;
type Kind = NonNullable<Import["kind"]>;

const REFUSED_SHOWN = 20;

const HEADINGS: Readonly<Record<string, string>> = {
  CHECKED: "What the import would change",
  RUNNING: "What the import is changing",
};

/** The page for the next step after an import. */
const NEXT = {
  subscribers: ["newsletters", "Write a newsletter"],
  contacts: ["segments", "Select some of them with a segment"],
  suppressions: ["suppressions", "See all suppressed addresses"],
} as const;

/** One uploaded file: its columns, the check, and the import. */
export function OneImport() {
  const { client, base } = useWorkspace();
  const { importId = "" } = useParams({ strict: false }) as { importId?: string };
  const params = { importId };
  const { imports } = client.app;
  const navigate = useNavigate();
  const found = useData(["imports", importId], () => imports.retrieve.query({ params }), {
    poll: ({ state }) => isUnderWay(state) && POLL_MS,
  });
  const { state, name, progress, failure, report, refused, undo, undone } = found;
  const list = useLists().find(({ id }) => id === found.list_id);
  const asked = report?.list?.asked ?? 0;
  const [asks, setAsks] = useState(false);
  // The report counts what would happen to people who have agreed.
  const recheck = useMutation({
    mutationFn: (confirmed: boolean) => {
      const { kind, uses, list_id, enters_sequences } = found;
      const options = { kind: kind ?? "subscribers", uses: uses ?? [], ...(list_id && { list_id }), enters_sequences };
      return imports.check.mutate({ params, body: { ...options, confirmed } });
    },
  });
  const isEditable = state === "UPLOADED" || state === "CHECKED" || state === "FAILED";
  return (
    <>
      <PageHead title={name}>
        {undo && (
          <Act
            title="Undo import"
            kind="danger"
            note={`Left to undo: people ${undo.people.toLocaleString()}, subscriptions ${undo.subscriptions.toLocaleString()}, contacts with fields ${undo.contacts.toLocaleString()}. They are deleted, except for people who were changed, emailed, asked to confirm or unsubscribed since: these stay, and are counted. Suppressions, and changes to people who were there before, stay too.`}
            act={() => imports.undo.mutate({ params })}
          >
            <p>
              Possible until <When at={undo.until} />.
            </p>
          </Act>
        )}
        {state !== "RUNNING" && state !== "UNDOING" && (
          <More>
            <Act
              title="Delete this import"
              kind="danger"
              note="The file and its report are deleted. People it imported stay, and the import can no longer be undone."
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
          {progressOf(found)}. It continues when you close this tab. <progress max={100} value={progress} />
        </label>
      )}
      {failure && (
        <p className="problem" role="alert">
          {failure}
        </p>
      )}
      {undone && (
        <section className="card stack" aria-label="Undo">
          <h2>What was undone{state === "UNDONE" ? "" : " so far"}</h2>
          <Figures
            of={{
              people_deleted: undone.deleted,
              subscriptions_removed: undone.removed,
              ...(undone.contacts > 0 && { contacts_deleted: undone.contacts }),
              ...undone.kept,
            }}
          />
        </section>
      )}
      {report && (
        <section className="card stack" aria-label="Report">
          <h2>{HEADINGS[state] ?? "What the import changed"}</h2>
          <p>
            As {found.kind}
            {list && (
              <>
                {" "}
                on the list <bdi>“{list.name}”</bdi>
              </>
            )}
            .
          </p>
          <Report {...report} />
          {state === "DONE" && found.kind && (
            <p>
              Next: <Link to={`${base}/${NEXT[found.kind][0]}`}>{NEXT[found.kind][1]}</Link>
            </p>
          )}
          {state === "CHECKED" && (
            <Form
              submit="Import now"
              onSubmit={({ unconfirmed }) => {
                const body = unconfirmed ? { unconfirmed: unconfirmed as "ask" } : {};
                return imports.run.mutate({ params, body }, { context: { began: found } });
              }}
            >
              {(asked > 0 || (found.confirmed && list?.optin === "DOUBLE")) && (
                <Field
                  label={`New on a list with double opt-in: ${(asked || (report.list?.added ?? 0)).toLocaleString()}`}
                  name="unconfirmed"
                  required
                  value={found.confirmed ? "confirm" : asks ? "ask" : ""}
                  onChange={(choice) => {
                    setAsks(choice === "ask");
                    if (found.confirmed !== (choice === "confirm")) recheck.mutate(!found.confirmed);
                  }}
                  choices={{
                    "": "Choose",
                    ask: "Ask them by email to confirm",
                    confirm: "They have agreed already: do not ask them",
                  }}
                  hint="Without their agreement, you can also import them without a list, and without fields: see “Columns and options”."
                />
              )}
              <Problem error={recheck.error} />
              <p>
                Nothing has changed yet. People are imported in batches: if the import fails, those already imported
                stay, and you import the others from the same file.
              </p>
            </Form>
          )}
        </section>
      )}
      {refused.length > 0 && <RefusedLines found={found} />}
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

function RefusedLines({ found: { id, name, refused: lines, report } }: { found: Import }) {
  const { client } = useWorkspace();
  const isWhole = lines.length === report?.refused;
  const { mutate, isPending, error } = useMutation({
    mutationFn: async () => {
      const { csv } = (await client.app.imports.refused.query({ params: { importId: id } })).data;
      saveFile(`rejected lines of ${name.replace(/\.\w*$/, "")}.csv`, [csv]);
    },
  });
  return (
    <section className="stack" aria-label="Rejected lines">
      <div className="head">
        <h2>Rejected lines</h2>
        <button type="button" onClick={() => mutate()} disabled={isPending}>
          Download CSV
        </button>
      </div>
      <p>Correct the lines in the downloaded file, and import that file: the reasons stand in its first column.</p>
      <Problem error={error} />
      <Table
        caption="The first rejected lines"
        rows={lines.slice(0, REFUSED_SHOWN)}
        keyOf={({ line }) => String(line)}
        columns={[
          { name: "Line", cell: ({ line }) => line.toLocaleString() },
          { name: "Address", cell: ({ address }) => address },
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
  refused: "Rows rejected",
  duplicates: "Rows of a repeated address: the last one counts",
  created: "New people",
  updated: "People updated",
  unchanged: "People unchanged",
  suppressed: "Addresses newly suppressed",
  already_suppressed: "Addresses already suppressed",
  added: "Added to the list",
  asked: "Of these, asked by email to confirm",
  confirmed: "On the list and confirmed by this file",
  already_subscribed: "Already on the list",
  newly_opted_out: "Unsubscribed from the list by the file",
  opted_out: "Unsubscribed before, and left unchanged",
  contacts_created: "New contacts, which hold the fields",
  contacts_updated: "Contacts updated with the fields",
  fields_not_stored: "Not confirmed, unsubscribed or on no list: fields not stored",
  people_deleted: "People deleted",
  subscriptions_removed: "Subscriptions removed",
  contacts_deleted: "Contacts deleted, with their fields",
  emailed: "Stay: were in a send, or asked to confirm",
  unsubscribed: "Stay: unsubscribed",
  changed: "Stay: changed since",
  on_another_list: "Stay: on another list",
};

/** In the order of their labels. */
const Figures = ({ of }: { of: Readonly<Record<string, number>> }) => (
  <Facts
    className="figures"
    of={Object.entries(LABELS).flatMap(([name, label]) =>
      of[name] === undefined ? [] : [[label, of[name].toLocaleString()]],
    )}
  />
);

function Report({ notes, list, fields, ...counts }: NonNullable<Import["report"]>) {
  const figures = Object.entries({ ...counts, ...list, ...fields }).filter(
    ([name, value]) => value > 0 || name === "rows",
  );
  return (
    <>
      <Figures of={Object.fromEntries(figures)} />
      {list && fields && fields.fields_not_stored > list.opted_out && (
        <p>Import this file again when people have confirmed, to store their fields: it asks no person twice.</p>
      )}
      {notes.status_columns.length > 0 && (
        <p>
          Consent is read from {notes.status_columns.join(", ")}: people who opted out, bounced or complained are not
          emailed.
        </p>
      )}
      {notes.ignored_columns.length > 0 && <p>Not imported: {columnLabels(notes.ignored_columns)}.</p>}
      {notes.windows_1252_lines > 0 && (
        <p>
          {notes.windows_1252_lines.toLocaleString()} lines are not UTF-8 and were read as Windows-1252. Check names
          with accents.
        </p>
      )}
    </>
  );
}

const columnLabel = (name: string): string => name || "Unnamed column";
const columnLabels = (names: string[]): string =>
  names.slice(0, NAMED).map(columnLabel).join(", ") +
  (names.length > NAMED ? `, and ${names.length - NAMED} more` : "");

const KINDS: Readonly<Record<Kind, string>> = {
  subscribers: "Subscribers: people who get newsletters, on a list",
  contacts: "Contacts: people whom segments select for campaigns",
  suppressions: "Suppressions: addresses that are never emailed",
};

/** No name of a field has a space. */
const NEW = "new field";
const USES: Readonly<Record<string, string>> = {
  [NEW]: "New field…",
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
  const [list, setList] = useState(found.list_id ?? wanted ?? (found.kind === "subscribers" ? "none" : ""));
  const lists = useLists();
  const isDouble = (listId: string) => lists.some(({ id, optin }) => id === listId && optin === "DOUBLE");
  const named = useSizedTargets("newsletter").map(({ id, name }) => [
    id,
    isDouble(id) ? `${name}, double opt-in` : name,
  ]);
  const asks = isDouble(list);
  const now = columns.map(({ use }, at) => chosen?.[at] ?? use);
  const choose = (at: number, use: string) => setChosen(now.with(at, use));
  const more = kind === "suppressions" ? [] : [NEW];
  // A field that was just made is one of those now.
  const all = ["none", "ignored", "consent", ...uses, ...now.filter((use) => use !== NEW), ...more];
  const choices = Object.fromEntries(all.map((use) => [use, USES[use] ?? `Field “${use}”`]));
  const rows = columns
    .map((column, at) => ({ ...column, at }))
    .filter(({ name, samples }) => [name, ...samples].some((text) => text.trim()));
  const left = rows.filter(({ at }) => now[at] === "none");
  const check = async ({ list_id, confirmed, enters_sequences }: Values) => {
    const options = { confirmed: confirmed === "on", enters_sequences: enters_sequences === "on" };
    const body = { kind, uses: now, ...(list_id && list_id !== "none" && { list_id }), ...options };
    await client.app.imports.check.mutate({ params, body });
  };
  return (
    <div className="stack">
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
      <Table
        caption="Columns of the file"
        rows={rows}
        keyOf={({ at }) => String(at)}
        columns={[
          { name: "Column", cell: ({ name }) => columnLabel(name) },
          { name: "Sample", cell: ({ samples }) => samples.map((text) => text || "–").join(" · ") },
          {
            name: "Field",
            cell: ({ name, at, field }) => (
              <div className="stack">
                <Select
                  aria-label={`Field of ${columnLabel(name)}`}
                  choices={choices}
                  value={now[at]}
                  onChange={(use) => choose(at, use)}
                />
                {now[at] === NEW && <NewField values={field} onMade={(made) => choose(at, made)} />}
              </div>
            ),
          },
        ]}
      />
      {left.length > 0 && (
        <p>
          Not imported: {columnLabels(left.map(({ name }) => name))}. Choose a field for a column that you need
          {more.length > 0 && ", or “New field…” to make one"}.
        </p>
      )}
      {kind === "subscribers" && now.some((use) => !(use in USES)) && (
        <p>People with a field become contacts, too: campaigns may mail them, also after they leave the list.</p>
      )}
      {now.includes(NEW) && <p>Create the new field before you check the file.</p>}
      <Form submit="Check the file" onSubmit={check} isDisabled={now.includes(NEW)}>
        {kind === "subscribers" && (
          <>
            <div className="filters">
              <Field
                label="List"
                name="list_id"
                required
                choices={{
                  "": "Choose a list",
                  ...Object.fromEntries(named),
                  none: "No list: they get no newsletters yet, and fields are not stored",
                }}
                value={list}
                onChange={setList}
              />
              <ListButton onMade={setList} />
            </div>
            {asks && (
              <label>
                <input type="checkbox" name="confirmed" defaultChecked={found.confirmed} /> They have agreed to receive
                emails: do not ask them to confirm
              </label>
            )}
          </>
        )}
        {kind !== "suppressions" && (
          <label>
            <input type="checkbox" name="enters_sequences" defaultChecked={found.enters_sequences} /> They enter the
            sequences of the {kind === "subscribers" && "list, and of the "}segments they match
          </label>
        )}
      </Form>
    </div>
  );
}

/** Makes a custom field in the place where a column needs it, with the name and the type of its header and texts. */
function NewField({ values, onMade }: { values: { name: string; type: string }; onMade: (name: string) => void }) {
  const { createField } = useWorkspace().client.app.audience;
  return (
    <Form
      submit="Create field"
      inputs={FIELD_INPUTS}
      values={values}
      onSubmit={async ({ name: made = "", type }) => {
        await createField.mutate({ body: { name: made, type: type as "text" } });
        onMade(made);
      }}
    />
  );
}

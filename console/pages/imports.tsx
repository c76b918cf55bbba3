import { Link, useNavigate } from "@tanstack/react-router";
import { useRef, useState } from "react";
import { type Client, refusalOf } from "../api.ts";
import { Act } from "../parts/act.tsx";
import { useFilters } from "../parts/filters.tsx";
import { Field } from "../parts/form.tsx";
import { PageHead, State, When } from "../parts/page.tsx";
import { All } from "../parts/table.tsx";
import { useData, useRole, useWorkspace } from "../session.tsx";

export const STATES = {
  UPLOADING: ["uploading", "accent"],
  UPLOADED: ["ready to check", "warn"],
  CHECKING: ["checking", "accent"],
  CHECKED: ["ready to import", "warn"],
  RUNNING: ["importing", "accent"],
  DONE: ["imported", "good"],
  FAILED: ["failed", "wrong"],
} as const;

export const POLL_MS = 2_000;
export const isUnderWay = (state: keyof typeof STATES) => state === "CHECKING" || state === "RUNNING";

/** The files that were uploaded, and a new one. */
export function Page() {
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
            name: "Status",
            cell: ({ state, progress }) => (
              <>
                <State of={STATES} is={state} /> {isUnderWay(state) && `${progress}%`}
              </>
            ),
          },
          { name: "Uploaded", cell: ({ created_at }) => <When at={created_at} /> },
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

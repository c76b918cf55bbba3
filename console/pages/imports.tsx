import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { type FormEvent, useEffect, useRef, useState } from "react";
import { type Client, refusalOf } from "../api.ts";
import { Dialog } from "../parts/dialog.tsx";
import { Export } from "../parts/export.tsx";
import { Field } from "../parts/form.tsx";
import { Empty, Loading, PageHead, Problem } from "../parts/page.tsx";
import { Table } from "../parts/table.tsx";
import { useRole, useWorkspace } from "../session.tsx";

export const STATES = {
  UPLOADING: "being uploaded",
  UPLOADED: "to be checked",
  CHECKING: "being checked",
  CHECKED: "checked, to be imported",
  RUNNING: "being imported",
  DONE: "imported",
  FAILED: "failed: nothing was changed",
} as const;

const POLL_MS = 2_000;
export const isUnderWay = (state: keyof typeof STATES | undefined) => state === "CHECKING" || state === "RUNNING";
export const pollWhile = (isWorking: boolean | undefined) => (isWorking ? POLL_MS : false);

/** The files that were uploaded, and a new one. */
export function Page() {
  const { client, base } = useWorkspace();
  const { q = "", list } = useSearch({ strict: false });
  const navigate = useNavigate();
  const mayWrite = useRole("EDITOR");
  const [isOpen, setOpen] = useState(list !== undefined && mayWrite);
  const query = useQuery({
    queryKey: [base, "imports"],
    queryFn: () => client.app.imports.list.query({}),
    refetchInterval: ({ state }) => pollWhile(state.data?.data.some((each) => isUnderWay(each.state))),
  });
  const all = query.data?.data ?? [];
  const shown = all.filter(({ name }) => name.toLowerCase().includes(q.toLowerCase()));
  return (
    <>
      <PageHead title="Imports">
        <Export of="contacts" />
        {mayWrite && (
          <button type="button" className="primary" onClick={() => setOpen(true)}>
            New import
          </button>
        )}
      </PageHead>
      {query.isPending && <Loading />}
      <Problem error={query.error} />
      {query.data && all.length === 0 && (
        <Empty>
          <p>
            No import yet. Upload a CSV file with the addresses of people: you see what would change before anything
            does.
          </p>
        </Empty>
      )}
      {all.length > 0 && (
        <>
          <label>
            Search by name{" "}
            <input
              type="search"
              value={q}
              onChange={({ target }) => navigate({ to: ".", search: { q: target.value }, replace: true })}
            />
          </label>
          {shown.length === 0 && <Empty>No file has this name.</Empty>}
          {shown.length > 0 && (
            <Table
              caption="Imports"
              rows={shown}
              keyOf={({ id }) => id}
              columns={[
                {
                  name: "File",
                  cell: ({ id, name }) => (mayWrite ? <Link to={`${base}/imports/${id}`}>{name}</Link> : name),
                },
                { name: "Imported as", cell: ({ kind }) => kind ?? "not chosen" },
                {
                  name: "State",
                  cell: ({ state, progress }) => STATES[state] + (isUnderWay(state) ? `, ${progress} %` : ""),
                },
                { name: "Uploaded", cell: ({ created_at }) => new Date(created_at).toLocaleString("en") },
              ]}
            />
          )}
        </>
      )}
      {isOpen && <Upload listId={list} onClose={() => setOpen(false)} />}
    </>
  );
}

/** Chooses a file, uploads it part by part, and opens its page. */
function Upload({ listId, onClose }: { listId: string | undefined; onClose: () => void }) {
  const { client, base } = useWorkspace();
  const navigate = useNavigate();
  const [progress, setProgress] = useState<number>();
  const [error, setError] = useState<unknown>();
  const gone = useRef(new AbortController());
  useEffect(() => {
    const ending = new AbortController();
    gone.current = ending;
    return () => ending.abort();
  }, []);
  const send = async (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const file = new FormData(event.currentTarget).get("file");
    if (!(file instanceof File)) return;
    setError(undefined);
    setProgress(0);
    try {
      const id = await upload(client, file, gone.current.signal, setProgress);
      await navigate({ to: `${base}/imports/${id}`, search: { list: listId } });
    } catch (thrown) {
      if (gone.current.signal.aborted) return;
      setError(thrown);
      setProgress(undefined);
    }
  };
  return (
    <Dialog title="New import" onClose={onClose}>
      <form onSubmit={send}>
        <Field
          label="CSV file"
          name="file"
          type="file"
          accept=".csv,.tsv,.txt,text/csv"
          required
          hint="At most 100 MB. Its first row names the columns; one of them holds the addresses."
          problem={refusalOfSize(error)}
        />
        {progress !== undefined && (
          <label>
            Uploading: keep this tab open until it is done. <progress max={1} value={progress} />
          </label>
        )}
        <Problem error={error} fields={["size"]} />
        <div className="actions">
          <button type="submit" className="primary" disabled={progress !== undefined}>
            Upload
          </button>
        </div>
      </form>
    </Dialog>
  );
}

function refusalOfSize(error: unknown): string | undefined {
  const { param, message } = error ? refusalOf(error) : {};
  return param === "size" ? (message ?? "") : undefined;
}

/** A part that did not arrive is sent again so often: a second one changes nothing. */
const TRIES = 4;
const WAIT_MS = 1_000;

async function upload(
  client: Client,
  file: File,
  gone: AbortSignal,
  onProgress: (share: number) => void,
): Promise<string> {
  const body = { name: file.name.slice(0, 255), size: file.size };
  const { id, part_bytes: length } = (await client.app.imports.begin.mutate({ body })).data;
  for (let n = 0; n * length < file.size; n++) {
    const base64 = await base64Of(file.slice(n * length, (n + 1) * length));
    for (let tries = 1; ; tries++) {
      gone.throwIfAborted();
      try {
        await client.app.imports.part.mutate({ params: { importId: id }, body: { n, base64 } });
        break;
      } catch (error) {
        if (tries === TRIES || (refusalOf(error).status ?? 503) < 429) throw error;
        await new Promise((resolve) => setTimeout(resolve, WAIT_MS * 2 ** tries));
      }
    }
    onProgress(Math.min(1, ((n + 1) * length) / file.size));
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

import { useEffect, useRef, useState } from "react";
import { useRole, useWorkspace } from "../session.tsx";
import { Problem } from "./page.tsx";

/** Lets the browser save texts as a file. */
export function saveFile(name: string, texts: readonly string[]): void {
  const url = URL.createObjectURL(new Blob([...texts], { type: "text/csv" }));
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  URL.revokeObjectURL(url);
}

interface ExportProps {
  of: "contacts" | "suppressions" | "list";
  /** Of the subscribers, for `list`. */
  listId?: string;
}

/** A button that saves people as CSV, page by page. */
export function Export({ of, listId }: ExportProps) {
  const { client } = useWorkspace();
  const [rows, setRows] = useState<number>();
  const [error, setError] = useState<unknown>();
  const isGone = useRef(false);
  useEffect(() => {
    isGone.current = false;
    return () => {
      isGone.current = true;
    };
  }, []);
  const mayExport = useRole("EDITOR");
  if (!mayExport) return null;

  const save = async () => {
    setError(undefined);
    try {
      const texts: string[] = [];
      for (let after: string | null = "", read = 0; after !== null; ) {
        setRows(read);
        const { data } = await client.app.imports.export.query({ query: { of, list_id: listId, after } });
        if (isGone.current) return;
        texts.push(data.csv);
        read += data.rows;
        after = data.after;
      }
      saveFile(`${of === "list" ? "subscribers" : of}.csv`, texts);
    } catch (thrown) {
      setError(thrown);
    } finally {
      setRows(undefined);
    }
  };
  return (
    <>
      <button type="button" onClick={save} disabled={rows !== undefined}>
        {rows === undefined ? "Export as CSV" : `Reading… ${rows.toLocaleString("en")}`}
      </button>
      <Problem error={error} />
    </>
  );
}

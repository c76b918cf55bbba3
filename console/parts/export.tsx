import { useMutation } from "@tanstack/react-query";
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
  const [read, setRead] = useState(0);
  const gone = useRef(new AbortController());
  useEffect(() => {
    gone.current = new AbortController();
    return () => gone.current.abort();
  }, []);
  const { mutate, isPending, error } = useMutation({
    mutationFn: async () => {
      const { signal } = gone.current;
      const texts: string[] = [];
      setRead(0);
      for (let after: string | null = ""; after !== null; ) {
        const query = { of, list_id: listId, after };
        const { data } = await client.app.imports.export.query({ query }, { signal });
        texts.push(data.csv);
        setRead((rows) => rows + data.rows);
        after = data.after;
      }
      saveFile(`${of === "list" ? "subscribers" : of}.csv`, texts);
    },
  });
  if (!useRole("EDITOR")) return null;
  return (
    <>
      <button type="button" onClick={() => mutate()} disabled={isPending}>
        {isPending ? `Reading… ${read.toLocaleString()}` : "Export as CSV"}
      </button>
      <Problem error={error} />
    </>
  );
}

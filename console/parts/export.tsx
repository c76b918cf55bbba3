import { useMutation } from "@tanstack/react-query";
import { useState } from "react";
import type { Client } from "../api.ts";
import { type Role, useRole, useWorkspace } from "../session.tsx";
import { Problem } from "./page.tsx";

/** Lets the browser save texts as a file. */
export function saveFile(name: string, texts: readonly string[]): void {
  const type =
    { csv: "text/csv", html: "text/html", json: "application/json" }[name.replace(/^.*\./, "")] ?? "text/plain";
  const url = URL.createObjectURL(new Blob([...texts], { type }));
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  URL.revokeObjectURL(url);
}

interface CsvProps {
  /** Of the file. */
  name: string;
  /** Of the button. */
  text?: string | undefined;
  /** Reads a page; the first is behind "". */
  read: (after: string) => Promise<{ data: { csv: string; rows: number; after: string | null } }>;
  /** The least role that may read it. */
  least?: Role;
}

/** A button that saves a list as CSV. It is read page by page, also when its page is left. */
export function SaveCsv({ name, text = "Export as CSV", read: readPage, least = "EDITOR" }: CsvProps) {
  const [read, setRead] = useState(0);
  const { mutate, isPending, error } = useMutation({
    mutationFn: async () => {
      const texts: string[] = [];
      setRead(0);
      for (let after: string | null = ""; after !== null; ) {
        const { data } = await readPage(after);
        texts.push(data.csv);
        setRead((rows) => rows + data.rows);
        after = data.after;
      }
      saveFile(name, texts);
    },
  });
  if (!useRole(least)) return null;
  return (
    <>
      <button type="button" onClick={() => mutate()} disabled={isPending}>
        {isPending ? `Exporting… ${read.toLocaleString()}` : text}
      </button>
      <Problem error={error} />
    </>
  );
}

type Query = Parameters<Client["app"]["imports"]["export"]["query"]>[0]["query"];

/** People of the audience as CSV. */
export function Export({ text, ...query }: Pick<CsvProps, "text"> & Omit<Query, "after">) {
  const { client } = useWorkspace();
  const read = (after: string) => client.app.imports.export.query({ query: { ...query, after } });
  return <SaveCsv name={`${query.of === "list" ? "subscribers" : query.of}.csv`} text={text} read={read} />;
}

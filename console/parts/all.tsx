import type { UseQueryResult } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { Rows, type Table } from "./table.tsx";

interface AllProps<Row> extends Omit<Parameters<typeof Table<Row>>[0], "rows"> {
  query: UseQueryResult<readonly Row[]>;
  /** Whether the filters of the page let it through. */
  isShown?: (row: Row) => boolean;
  /** Shown when there is no row at all. */
  empty: ReactNode;
}

/** A list that is read as a whole, and filtered here. */
export function All<Row>({ query, isShown = () => true, empty, ...table }: AllProps<Row>) {
  const all = query.data ?? [];
  const none = all.length === 0 ? empty : "Nothing is like this. Search for less, or show all.";
  return <Rows query={query} rows={all.filter(isShown)} empty={none} {...table} />;
}

/** Whether a name contains the text of the search. */
export const contains = (name: string, text = "") => name.toLowerCase().includes(text.toLowerCase());

import type { UseQueryResult } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { Empty, Loading, Problem } from "./page.tsx";
import { Table } from "./table.tsx";

interface AllProps<Row> extends Omit<Parameters<typeof Table<Row>>[0], "rows"> {
  query: UseQueryResult<readonly Row[]>;
  /** Whether the filters of the page let it through. */
  isShown?: (row: Row) => boolean;
  /** Shown when there is no row at all. */
  empty: ReactNode;
}

/** A list that is read as a whole, and filtered here. */
export function All<Row>({ query, isShown = () => true, empty, ...table }: AllProps<Row>) {
  if (query.isPending) return <Loading />;
  if (query.error) return <Problem error={query.error} />;
  const rows = query.data.filter(isShown);
  if (rows.length > 0) return <Table rows={rows} {...table} />;
  return <Empty>{query.data.length === 0 ? empty : "Nothing is like this. Search for less, or show all."}</Empty>;
}

/** Whether a name contains the text of the search. */
export const contains = (name: string, text = "") => name.toLowerCase().includes(text.toLowerCase());

import { useInfiniteQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { Empty, Loading, Problem } from "./page.tsx";

export interface Column<Row> {
  name: string;
  cell: (row: Row) => ReactNode;
  /** Numbers stand on the right. */
  isNumber?: boolean;
}

interface TableProps<Row> {
  /** Said to screen readers. */
  caption: string;
  rows: readonly Row[];
  columns: readonly Column<Row>[];
  keyOf: (row: Row) => string;
}

export function Table<Row>({ caption, rows, columns, keyOf }: TableProps<Row>) {
  return (
    // A wide table scrolls by itself, also by keyboard.
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls must take the focus
    <section className="scroll" aria-label={caption} tabIndex={0}>
      <table>
        <caption className="hidden">{caption}</caption>
        <thead>
          <tr>
            {columns.map(({ name, isNumber }) =>
              // That of buttons needs no header.
              name === "" ? (
                <td key={name} />
              ) : (
                <th key={name} scope="col" className={isNumber ? "number" : undefined}>
                  {name}
                </th>
              ),
            )}
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={keyOf(row)}>
              {columns.map(({ name, cell, isNumber }) => (
                <td key={name} className={isNumber ? "number" : undefined}>
                  {cell(row)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

interface RowsProps<Row> extends TableProps<Row> {
  query: { isPending: boolean; error: unknown };
  /** Shown when there is no row. */
  empty: ReactNode;
}

/** A list that is read as a whole. */
export function Rows<Row>({ query, empty, ...table }: RowsProps<Row>) {
  if (query.isPending) return <Loading />;
  if (query.error) return <Problem error={query.error} />;
  if (table.rows.length === 0) return <Empty>{empty}</Empty>;
  return <Table {...table} />;
}

/** A page as a list procedure answers it. */
interface ListAnswer<Row> {
  data: readonly Row[] | { toJSON(): readonly Row[] };
  meta: Record<string, unknown>;
}

interface ListProps<Row> extends Omit<RowsProps<Row>, "rows" | "query"> {
  /** Of the query: it names the procedure and everything that its input holds. */
  queryKey: readonly unknown[];
  read: (cursor: string | undefined) => Promise<ListAnswer<Row>>;
}

/** A list that is read page by page. */
export function List<Row>({ queryKey, read, ...list }: ListProps<Row>) {
  const query = useInfiniteQuery({
    queryKey,
    queryFn: ({ pageParam }) => read(pageParam),
    initialPageParam: undefined as string | undefined,
    getNextPageParam: ({ meta }) => (meta["next_cursor"] as string | null | undefined) ?? undefined,
  });
  const rows = query.data?.pages.flatMap(({ data }) => data as readonly Row[]) ?? [];
  return (
    <>
      {(rows.length > 0 || !query.hasNextPage) && <Rows query={query} rows={rows} {...list} />}
      {query.hasNextPage && (
        <button type="button" disabled={query.isFetchingNextPage} onClick={() => query.fetchNextPage()}>
          More
        </button>
      )}
    </>
  );
}

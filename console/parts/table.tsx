import { type InfiniteData, useInfiniteQuery } from "@tanstack/react-query";
import { isValidElement, type ReactNode, useState } from "react";
import { polling } from "../session.tsx";
import { SearchFilter, useFilters } from "./filters.tsx";
import { Failed, Loading } from "./page.tsx";

export interface Column<Row> {
  name: string;
  cell: (row: Row) => ReactNode;
  /** Numbers stand on the right. */
  isNumber?: boolean;
  /** Explains the name. */
  title?: string;
}

interface TableProps<Row> {
  /** Said to screen readers. */
  caption: string;
  rows: readonly Row[];
  columns: readonly Column<Row>[];
  keyOf: (row: Row) => string;
  /** Shown when there is no row: the next thing to do. */
  empty?: ReactNode;
}

/** The column of buttons: it is the last, and shows no name. */
const ACTIONS = "Actions";
const classOf = (name: string, isNumber = false) => (isNumber ? "number" : name === ACTIONS ? "last" : undefined);

/** The text of a cell that is nothing but a text, or a link or a button with one. */
const textOf = (cell: ReactNode): string | undefined =>
  typeof cell === "string"
    ? cell
    : isValidElement<{ children?: ReactNode }>(cell)
      ? textOf(cell.props.children)
      : undefined;

/** A text of any length and direction, which does not change what stands around it. */
export function Cell({ of: cell }: { of: ReactNode }) {
  if (typeof cell === "number") return cell.toLocaleString();
  const text = textOf(cell);
  return text === undefined ? (
    cell
  ) : (
    <bdi className="cut" title={text}>
      {cell}
    </bdi>
  );
}

export function Table<Row>({ caption, rows, columns, keyOf, empty }: TableProps<Row>) {
  if (empty !== undefined && rows.length === 0) return empty && <div className="empty">{empty}</div>;
  return (
    // A wide table scrolls by itself, also by keyboard.
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls must take the focus
    <section className="scroll" aria-label={caption} tabIndex={0}>
      <table>
        <caption className="hidden">{caption}</caption>
        <thead>
          <tr>
            {columns.map(({ name, isNumber, title }) => (
              <th key={name} scope="col" className={classOf(name, isNumber)} title={title}>
                <span className={name === ACTIONS ? "hidden" : undefined}>{name}</span>
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={keyOf(row)}>
              {columns.map(({ name, cell, isNumber }) => (
                <td key={name} data-name={name} className={classOf(name, isNumber)}>
                  <Cell of={cell(row)} />
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

interface AllProps<Row> extends TableProps<Row> {
  /** Searched for by the text of a filter with this label. */
  search: readonly [label: string, textOf: (row: Row) => string];
  /** Whether the further filters let it through. */
  isShown?: (row: Row) => boolean;
  children?: ReactNode;
}

/** Rows that a list shows before "More" is pressed. */
const PAGE = 50;

/** A list that is read as a whole, and filtered and shown page by page here. */
export function All<Row>({ search: [label, textOf], isShown, children, rows, empty, ...table }: AllProps<Row>) {
  const [{ q = "" }] = useFilters();
  const [most, setMost] = useState(PAGE);
  const text = q.toLowerCase();
  const found = rows.filter((row) => textOf(row).toLowerCase().includes(text) && (isShown?.(row) ?? true));
  const none = rows.length === 0 ? empty : "No matches. Change or clear your search.";
  return (
    <>
      <div className="filters">
        <SearchFilter name="q" label={label} />
        {children}
      </div>
      <Table rows={found.slice(0, most)} empty={none} {...table} />
      {found.length > most && (
        <button type="button" onClick={() => setMost(most + PAGE)}>
          More
        </button>
      )}
    </>
  );
}

/** A page as a list procedure answers it. */
interface ListAnswer<Row> {
  data: readonly Row[] | { toJSON(): readonly Row[] };
  meta: Record<string, unknown>;
}

export interface ListProps<Row> extends Omit<TableProps<Row>, "rows"> {
  /** Of the query: it names the procedure and everything that its input holds. */
  queryKey: readonly unknown[];
  read: (cursor: string | undefined) => Promise<ListAnswer<Row>>;
  /** The time until all pages that are shown are read again. */
  poll?: (rows: readonly Row[]) => number | false;
  /** Rows that stand before "More" is pressed for the first time; all of the first page unless given. */
  first?: number;
  /** Above the table, for the rows that stand in it. */
  above?: ((rows: readonly Row[]) => ReactNode) | undefined;
  /** @param shown the rows so far @param meta of the first page @returns how many there are */
  countText?: (shown: number, meta: ListAnswer<Row>["meta"]) => string | undefined;
}

/** A filter may leave a page empty although others follow. */
export const skipEmpty =
  <Page extends { data: readonly unknown[]; meta: { next_cursor: string | null } }>(
    read: (cursor: string | undefined) => Promise<Page>,
  ) =>
  async (cursor: string | undefined): Promise<Page> => {
    const page = await read(cursor);
    const { next_cursor: next } = page.meta;
    return page.data.length > 0 || next === null ? page : skipEmpty(read)(next);
  };

const rowsOf = <Row,>({ pages }: InfiniteData<ListAnswer<Row>>) => pages.flatMap(({ data }) => data as readonly Row[]);

/** A list that is read page by page. */
export function List<Row>({ queryKey, read, first = Infinity, countText, above, poll, ...table }: ListProps<Row>) {
  const [isOpened, setOpened] = useState(false);
  const query = useInfiniteQuery({
    queryKey,
    queryFn: ({ pageParam }) => read(pageParam),
    initialPageParam: undefined as string | undefined,
    getNextPageParam: ({ meta }) => (meta["next_cursor"] as string | null | undefined) ?? undefined,
    ...polling(poll && ((data: InfiniteData<ListAnswer<Row>>) => poll(rowsOf(data)))),
  });
  if (query.isPending) return <Loading like="table" />;
  // Rows stay while they cannot be read again.
  if (!query.data || query.isFetchNextPageError) return <Failed error={query.error} reset={query.refetch} />;
  const rows = rowsOf(query.data);
  const isShort = !isOpened && rows.length > first;
  const text = rows.length > 0 && countText?.(rows.length, query.data.pages[0]?.meta ?? {});
  return (
    <>
      {text && <p className="muted">{text}</p>}
      {above?.(rows)}
      {(rows.length > 0 || !query.hasNextPage) && <Table rows={isShort ? rows.slice(0, first) : rows} {...table} />}
      {(isShort || query.hasNextPage) && (
        <button
          type="button"
          disabled={query.isFetchingNextPage}
          onClick={() => (isShort ? setOpened(true) : query.fetchNextPage())}
        >
          More
        </button>
      )}
    </>
  );
}

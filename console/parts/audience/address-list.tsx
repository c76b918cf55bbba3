import type { ReactNode } from "react";
import { useWorkspace } from "../../session.tsx";
import { SearchFilter, useFilters } from "../filters.tsx";
import { List, type ListProps } from "../table.tsx";
import type { PersonKind } from "./people.tsx";

interface AddressListProps<Row> extends Omit<ListProps<Row>, "keyOf"> {
  /** Its label, and how it finds the first records for a text. */
  search: readonly [label: string, find: (text: string) => Promise<{ data: unknown; meta?: object }>];
  /** Those that a search has, too. */
  filters?: ReactNode;
  /** Filters of the list, which a search does not have. */
  children?: ReactNode;
}

/** Of a search, which finds one more where there are others. */
export const MOST_SHOWN = 25;

/** A search of the audience. @param listId only its subscribers */
export function useSearch(kind: PersonKind | "suppressions", listId?: string): AddressListProps<never>["search"] {
  const { client } = useWorkspace();
  return [
    kind === "suppressions" ? "Address begins with" : "Address or name",
    (text) => client.app.audience.search.query({ query: { in: kind, text, list_id: listId } }),
  ];
}

/** Records with addresses, page by page or as a search finds them. */
export function AddressList<Row extends { email: string }>({
  search,
  filters,
  children,
  ...list
}: AddressListProps<Row>) {
  const [label, find] = search;
  const [{ q }] = useFilters();
  return (
    <>
      <div className="filters">
        <SearchFilter name="q" label={label} />
        {filters}
        {!q && children}
      </div>
      <List<Row>
        {...list}
        queryKey={[...list.queryKey, q]}
        read={async (cursor) => {
          if (!q) return list.read(cursor);
          const { data, meta } = await find(q);
          const rows = data as Row[];
          const has_others = rows.length > MOST_SHOWN;
          return { data: rows.slice(0, MOST_SHOWN), meta: { ...meta, has_others, next_cursor: null } };
        }}
        countText={(shown, meta) => {
          const text = list.countText?.(shown, meta);
          if (!meta["has_others"]) return text;
          return `${text ?? `The first ${shown} are shown`}: type more letters to narrow the search.`;
        }}
        keyOf={({ email }) => email}
        empty={q ? "No matches. Try fewer letters." : list.empty}
      />
    </>
  );
}

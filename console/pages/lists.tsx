import { useQueryClient } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useState } from "react";
import { ListDialog, type ListRecord, OPTINS, useLists } from "../parts/audience/list-form.tsx";
import { FilterBar, SearchFilter, useFilters, When } from "../parts/filters.tsx";
import { Empty, Loading, PageHead, Problem } from "../parts/page.tsx";
import { Remove } from "../parts/remove.tsx";
import { type Column, List, Table } from "../parts/table.tsx";
import { useRole, useWorkspace } from "../session.tsx";

/** The lists of a team. */
export function Page() {
  const { client, base } = useWorkspace();
  const queries = useQueryClient();
  const [isMaking, setMaking] = useState(false);
  const mayWrite = useRole("EDITOR");
  const [{ q }] = useFilters();
  const columns: Column<ListRecord>[] = [
    { name: "Name", cell: ({ id, name }) => <Link to={`${base}/lists/${id}`}>{name}</Link> },
    { name: "Note", cell: ({ description }) => description },
    { name: "Opt-in", cell: ({ optin }) => OPTINS[optin] },
    { name: "Made", cell: ({ created_at }) => <When at={created_at} /> },
    {
      name: "Actions",
      cell: ({ id, name }) =>
        mayWrite && (
          <Remove
            title={`Delete ${name}`}
            act={(context) => client.api.lists.remove.mutate({ params: { listId: id } }, { context: { ...context } })}
            onDone={() => queries.invalidateQueries({ queryKey: [base, "lists"] })}
          >
            <p>Its subscribers stay in the audience; their subscriptions to it end.</p>
          </Remove>
        ),
    },
  ];
  return (
    <>
      <PageHead title="Lists">
        {mayWrite && (
          <button type="button" className="primary" onClick={() => setMaking(true)}>
            New list
          </button>
        )}
      </PageHead>
      <FilterBar>
        <SearchFilter name="q" label="Name contains" />
      </FilterBar>
      {q === undefined ? (
        <List
          caption="Lists"
          queryKey={[base, "lists"]}
          read={(cursor) => client.api.lists.page.query({ query: { cursor, sort: "created_at" } })}
          keyOf={({ id }) => id}
          columns={columns}
          empty={
            <p>No list yet. A list holds the people who subscribed to one newsletter: make one, then import people.</p>
          }
        />
      ) : (
        <Named text={q} columns={columns} />
      )}
      {isMaking && <ListDialog onClose={() => setMaking(false)} />}
    </>
  );
}

/** The lists whose names contain a text: the API filters no names. */
function Named({ text, columns }: { text: string; columns: readonly Column<ListRecord>[] }) {
  const lists = useLists();
  if (lists.isPending) return <Loading />;
  if (lists.error) return <Problem error={lists.error} />;
  const found = lists.data.filter(({ name }) => name.toLowerCase().includes(text.toLowerCase()));
  if (found.length === 0) return <Empty>No list's name contains “{text}”.</Empty>;
  return <Table caption="Lists" rows={found} columns={columns} keyOf={({ id }) => id} />;
}

import { Link } from "@tanstack/react-router";
import { All, contains } from "../parts/all.tsx";
import { Delete } from "../parts/audience/delete.tsx";
import { ListButton, OPTINS, useLists } from "../parts/audience/list-form.tsx";
import { FilterBar, SearchFilter, useFilters, When } from "../parts/filters.tsx";
import { PageHead } from "../parts/page.tsx";
import { useRole, useWorkspace } from "../session.tsx";

/** The lists of a team. */
export function Page() {
  const { client, base } = useWorkspace();
  const mayWrite = useRole("EDITOR");
  const [{ q }] = useFilters();
  return (
    <>
      <PageHead title="Lists">{mayWrite && <ListButton />}</PageHead>
      <FilterBar>
        <SearchFilter name="q" label="Name contains" />
      </FilterBar>
      <All
        caption="Lists"
        query={useLists()}
        isShown={({ name }) => contains(name, q)}
        keyOf={({ id }) => id}
        columns={[
          { name: "Name", cell: ({ id, name }) => <Link to={`${base}/lists/${id}`}>{name}</Link> },
          { name: "Note", cell: ({ description }) => description },
          { name: "Opt-in", cell: ({ optin }) => OPTINS[optin] },
          { name: "Made", cell: ({ created_at }) => <When at={created_at} /> },
          {
            name: "Actions",
            cell: ({ id, name }) =>
              mayWrite && (
                <Delete
                  title={`Delete ${name}`}
                  call={(options) => client.api.lists.remove.mutate({ params: { listId: id } }, options)}
                >
                  Its subscribers stay in the audience; their subscriptions to it end.
                </Delete>
              ),
          },
        ]}
        empty="No list yet. A list holds the people who subscribed to one newsletter: make one, then import people."
      />
    </>
  );
}

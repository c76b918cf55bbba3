import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { All, contains } from "../parts/all.tsx";
import { FilterBar, SearchFilter, useFilters, When } from "../parts/filters.tsx";
import { PageHead } from "../parts/page.tsx";
import { useRole, useWorkspace } from "../session.tsx";

/** The segments of the team. */
export function Page() {
  const { client, base } = useWorkspace();
  const mayWrite = useRole("EDITOR");
  const [{ q }] = useFilters();
  const query = useQuery({
    queryKey: [base, "segments"],
    queryFn: async () => (await client.app.audience.segments.query({})).data,
  });
  return (
    <>
      <PageHead title="Segments">
        {mayWrite && (
          <Link className="button primary" to={`${base}/segments/new`}>
            New segment
          </Link>
        )}
      </PageHead>
      <FilterBar>
        <SearchFilter name="q" label="Name contains" />
      </FilterBar>
      <All
        caption="Segments"
        query={query}
        isShown={({ name }) => contains(name, q)}
        keyOf={({ id }) => id}
        columns={[
          { name: "Name", cell: ({ id, name }) => <Link to={`${base}/segments/${id}`}>{name}</Link> },
          { name: "Changed", cell: ({ updated_at }) => <When at={updated_at} /> },
        ]}
        empty="No segment yet. A segment selects contacts by their fields, lists and what they opened; campaigns and sequences mail it. Make the first one."
      />
    </>
  );
}

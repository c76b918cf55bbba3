import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { FilterBar, SearchFilter, useFilters, When } from "../parts/filters.tsx";
import { Empty, Loading, PageHead, Problem } from "../parts/page.tsx";
import { Table } from "../parts/table.tsx";
import { useRole, useWorkspace } from "../session.tsx";

/** The segments of the team. */
export function Page() {
  const { client, base } = useWorkspace();
  const mayWrite = useRole("EDITOR");
  const [{ q = "" }] = useFilters();
  const query = useQuery({
    queryKey: [base, "segments"],
    queryFn: async () => (await client.app.audience.segments.query({})).data,
  });
  if (query.isPending) return <Loading />;
  if (query.error) return <Problem error={query.error} />;
  const shown = query.data.filter(({ name }) => name.toLowerCase().includes(q.toLowerCase()));
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
      {shown.length === 0 ? (
        <Empty>
          {q
            ? `No segment's name contains “${q}”.`
            : "No segment yet. A segment selects contacts by their fields, lists and what they opened; campaigns and sequences mail it. Make the first one."}
        </Empty>
      ) : (
        <Table
          caption="Segments"
          rows={shown}
          keyOf={({ id }) => id}
          columns={[
            { name: "Name", cell: ({ id, name }) => <Link to={`${base}/segments/${id}`}>{name}</Link> },
            { name: "Changed", cell: ({ updated_at }) => <When at={updated_at} /> },
          ]}
        />
      )}
    </>
  );
}

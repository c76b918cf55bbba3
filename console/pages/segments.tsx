import { Link } from "@tanstack/react-router";
import { PageHead, When } from "../parts/page.tsx";
import { All } from "../parts/table.tsx";
import { useData, useRole, useWorkspace } from "../session.tsx";

/** The segments of the team. */
export function Page() {
  const { client, base } = useWorkspace();
  const mayWrite = useRole("EDITOR");
  const segments = useData(["segments"], () => client.app.audience.segments.query({}));
  return (
    <>
      <PageHead title="Segments">
        {mayWrite && (
          <Link className="button primary" to={`${base}/segments/new`}>
            New segment
          </Link>
        )}
      </PageHead>
      <All
        caption="Segments"
        rows={segments}
        search={["Name contains", ({ name }) => name]}
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

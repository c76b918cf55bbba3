import { capitalized } from "../api.ts";
import { Act } from "../parts/act.tsx";
import { restoredText } from "../parts/bin.tsx";
import { PageHead, When } from "../parts/page.tsx";
import { List } from "../parts/table.tsx";
import { useRole, useWorkspace } from "../session.tsx";

/** Records that were deleted in the last 30 days. */
export function Page() {
  const { client, base } = useWorkspace();
  const mayWrite = useRole("EDITOR");
  return (
    <>
      <PageHead title="Recently deleted" />
      <p className="muted">Drafts, lists, segments, templates, forms and sequences can be restored for 30 days.</p>
      <List
        caption="Recently deleted"
        queryKey={[base, "bin"]}
        read={async (cursor) => {
          const { data } = await client.app.bin.page.query({ query: { cursor } });
          return { data: data.records, meta: { next_cursor: data.next_cursor } };
        }}
        keyOf={({ id }) => id}
        columns={[
          { name: "Name", cell: ({ name }) => name },
          { name: "Kind", cell: ({ kind }) => capitalized(kind) },
          { name: "Deleted", cell: ({ deleted_at }) => <When at={deleted_at} /> },
          { name: "By", cell: ({ deleted_by }) => deleted_by ?? <span className="muted">Not in the console</span> },
          { name: "Restorable until", cell: ({ until }) => <When at={until} isShort /> },
          {
            name: "Actions",
            cell: ({ id, name, kind }) =>
              mayWrite && (
                <Act
                  title={`Restore ${name}`}
                  short="Restore"
                  submit="Restore"
                  note={`The ${kind} returns as it was, with what belongs to it and still exists.`}
                  act={async (_, context) =>
                    restoredText((await client.app.bin.restore.mutate({ params: { recordId: id } }, { context })).data)
                  }
                />
              ),
          },
        ]}
        empty="Nothing was deleted in the last 30 days."
      />
    </>
  );
}

import { useQueryClient } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useState } from "react";
import { ListDialog, OPTINS } from "../parts/audience/list-form.tsx";
import { When } from "../parts/filters.tsx";
import { PageHead } from "../parts/page.tsx";
import { Remove } from "../parts/remove.tsx";
import { List } from "../parts/table.tsx";
import { useRole, useWorkspace } from "../session.tsx";

/** The lists of a team. */
export function Page() {
  const { client, base } = useWorkspace();
  const queries = useQueryClient();
  const [isMaking, setMaking] = useState(false);
  const mayWrite = useRole("EDITOR");
  return (
    <>
      <PageHead title="Lists">
        {mayWrite && (
          <button type="button" className="primary" onClick={() => setMaking(true)}>
            New list
          </button>
        )}
      </PageHead>
      <List
        caption="Lists"
        queryKey={[base, "lists"]}
        read={(cursor) => client.api.lists.page.query({ query: { cursor, sort: "created_at" } })}
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
                <Remove
                  title={`Delete ${name}`}
                  act={(context) =>
                    client.api.lists.remove.mutate({ params: { listId: id } }, { context: { ...context } })
                  }
                  onDone={() => queries.invalidateQueries({ queryKey: [base, "lists"] })}
                >
                  <p>Its subscribers stay in the audience; their subscriptions to it end.</p>
                </Remove>
              ),
          },
        ]}
        empty={
          <p>No list yet. A list holds the people who subscribed to one newsletter: make one, then import people.</p>
        }
      />
      {isMaking && <ListDialog onClose={() => setMaking(false)} />}
    </>
  );
}

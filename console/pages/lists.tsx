import { useQueryClient } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useState } from "react";
import { Dialog } from "../parts/dialog.tsx";
import { Field, Form } from "../parts/form.tsx";
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
  const changed = () => queries.invalidateQueries({ queryKey: [base, "lists"] });
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
        read={(cursor) => client.api.lists.page.query({ query: { cursor } })}
        keyOf={({ id }) => id}
        columns={[
          { name: "Name", cell: ({ id, name }) => <Link to={`${base}/lists/${id}`}>{name}</Link> },
          { name: "Opt-in", cell: ({ optin }) => (optin === "DOUBLE" ? "by a mail (double)" : "at once (single)") },
          {
            name: "",
            cell: ({ id, name }) =>
              mayWrite && (
                <Remove
                  title={`Delete ${name}`}
                  act={(context) =>
                    client.api.lists.remove.mutate({ params: { listId: id } }, { context: { ...context } })
                  }
                  onDone={changed}
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
      {isMaking && (
        <Dialog title="New list" onClose={() => setMaking(false)}>
          <Form
            fields={["name", "optin"]}
            submit="Make the list"
            onSubmit={async ({ name = "", optin }) => {
              await client.api.lists.create.mutate({ body: { name, optin: optin as "SINGLE" } });
              await changed();
              setMaking(false);
            }}
          >
            {(problemOf) => (
              <>
                <Field label="Name" name="name" required maxLength={200} problem={problemOf("name")} />
                <Field
                  label="Opt-in"
                  name="optin"
                  hint="Double: a person gets mails once they have confirmed by a link."
                  control={(id, describedBy) => (
                    <select id={id} name="optin" aria-describedby={describedBy}>
                      <option value="DOUBLE">Double</option>
                      <option value="SINGLE">Single</option>
                    </select>
                  )}
                />
              </>
            )}
          </Form>
        </Dialog>
      )}
    </>
  );
}

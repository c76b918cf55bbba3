import { useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { useFields } from "../parts/audience/people.tsx";
import { Dialog } from "../parts/dialog.tsx";
import { Field, Form } from "../parts/form.tsx";
import { Empty, Loading, PageHead, Problem } from "../parts/page.tsx";
import { Remove } from "../parts/remove.tsx";
import { Table } from "../parts/table.tsx";
import { useRole, useWorkspace } from "../session.tsx";

const TYPES = { text: "text", number: "number", boolean: "yes or no", date: "date" } as const;

/** The custom fields of the team's contacts. */
export function Page() {
  const { client, base } = useWorkspace();
  const queries = useQueryClient();
  const mayWrite = useRole("EDITOR");
  const fields = useFields();
  const [isMaking, setMaking] = useState(false);
  const changed = () => queries.invalidateQueries({ queryKey: [base] });
  if (fields.isPending) return <Loading />;
  if (fields.error) return <Problem error={fields.error} />;
  return (
    <>
      <PageHead title="Fields">
        {mayWrite && (
          <button type="button" className="primary" onClick={() => setMaking(true)}>
            New field
          </button>
        )}
      </PageHead>
      {fields.data.length === 0 ? (
        <Empty>
          No field yet. Fields hold what you know of your contacts, such as their city: make one, fill it by an import,
          then select people by it in a segment or name it in a mail.
        </Empty>
      ) : (
        <Table
          caption="Fields"
          rows={fields.data}
          keyOf={({ name }) => name}
          columns={[
            { name: "Name", cell: ({ name }) => name },
            { name: "Holds", cell: ({ type }) => TYPES[type] },
            { name: "In a mail", cell: ({ name }) => <code>{`{{ fields.${name} }}`}</code> },
            {
              name: "Actions",
              cell: ({ name }) =>
                mayWrite && (
                  <Remove
                    title={`Delete ${name}`}
                    act={async ({ dryRun }) => {
                      if (!dryRun) return client.app.audience.deleteField.mutate({ body: { name } });
                      const { data } = await client.app.audience.fieldUse.query({ query: { name } });
                      const impact = {
                        contacts_with_a_value: data.contacts,
                        segments_that_ask_for_it: data.segments.length,
                      };
                      return { meta: { impact } };
                    }}
                    onDone={changed}
                  >
                    <p>
                      Every contact loses its value. Segments that ask for the field select nobody until you change
                      them, and mails show nothing in its place.
                    </p>
                  </Remove>
                ),
            },
          ]}
        />
      )}
      {isMaking && (
        <Dialog title="New field" onClose={() => setMaking(false)}>
          <Form
            fields={["name", "type"]}
            submit="Make the field"
            onSubmit={async ({ name = "", type }) => {
              await client.app.audience.createField.mutate({ body: { name, type: type as "text" } });
              await changed();
              setMaking(false);
            }}
          >
            {(problemOf) => (
              <>
                <Field
                  label="Name"
                  name="name"
                  required
                  maxLength={63}
                  problem={problemOf("name")}
                  hint="Small letters, digits and _, such as favourite_colour. It cannot be changed later."
                />
                <Field
                  label="Holds"
                  name="type"
                  problem={problemOf("type")}
                  control={(id) => (
                    <select id={id} name="type">
                      {Object.entries(TYPES).map(([type, text]) => (
                        <option key={type} value={type}>
                          {text}
                        </option>
                      ))}
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

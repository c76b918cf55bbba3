import { Act } from "../parts/act.tsx";
import { useFields } from "../parts/audience/people.tsx";
import { More } from "../parts/more.tsx";
import { PageHead } from "../parts/page.tsx";
import { Remove } from "../parts/remove.tsx";
import { Table } from "../parts/table.tsx";
import { useRole, useWorkspace } from "../session.tsx";

const TYPES = { text: "text", number: "number", boolean: "yes or no", date: "date" } as const;
const NAME_HINT = "Lowercase letters, digits and underscores, such as favourite_colour. It cannot be changed later.";

export const FIELD_INPUTS = [
  ["name", "Name", { required: true, maxLength: 63, hint: NAME_HINT }],
  ["type", "Type", { choices: TYPES }],
] as const;

/** The custom fields of the team's contacts. */
export function Page() {
  const { audience } = useWorkspace().client.app;
  const mayWrite = useRole("EDITOR");
  const remove = async (name: string, isTrial = false) => {
    if (!isTrial) return audience.deleteField.mutate({ body: { name } });
    const { data } = await audience.fieldUse.query({ query: { name } });
    const impact = { contacts_with_a_value: data.contacts, segments_that_use_it: data.segments.length };
    return { meta: { impact } };
  };
  return (
    <>
      <PageHead title="Fields">
        {mayWrite && (
          <Act
            title="New field"
            submit="Create field"
            kind="primary"
            inputs={FIELD_INPUTS}
            act={({ name = "", type }) => audience.createField.mutate({ body: { name, type: type as "text" } })}
          />
        )}
      </PageHead>
      <Table
        caption="Fields"
        rows={useFields()}
        keyOf={({ name }) => name}
        columns={[
          { name: "Name", cell: ({ name }) => name },
          { name: "Type", cell: ({ type }) => TYPES[type] },
          { name: "Merge tag", cell: ({ name }) => <code>{`{{ fields.${name} }}`}</code> },
          {
            name: "Actions",
            cell: ({ name }) =>
              mayWrite && (
                <More of={name}>
                  <Remove title={`Delete ${name}`} act={({ context }) => remove(name, context.dryRun)}>
                    Every contact loses its value. Segments that use the field match no contacts until you change them,
                    and emails show nothing in its place.
                  </Remove>
                </More>
              ),
          },
        ]}
        empty="No fields yet. Fields hold facts about your contacts, such as their city: create one, fill it with an import, then use it in a segment or in an email."
      />
    </>
  );
}

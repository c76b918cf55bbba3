import { Act, Opens } from "../parts/act.tsx";
import { plainSubject } from "../parts/draft/content.ts";
import { Duplicate } from "../parts/duplicate.tsx";
import { More } from "../parts/more.tsx";
import { PageHead, When } from "../parts/page.tsx";
import { All } from "../parts/table.tsx";
import { Look, NAME, useTemplates } from "../parts/templates.tsx";
import { useRole, useWorkspace } from "../session.tsx";

type Template = ReturnType<typeof useTemplates>["team"][number];

/** The templates of the team. */
export function Page() {
  const mayWrite = useRole("EDITOR");
  return (
    <>
      <PageHead title="Templates" />
      <All
        caption="Templates"
        rows={useTemplates().team}
        search={["Name or subject contains", ({ name, subject }) => `${name} ${subject ?? ""}`]}
        keyOf={({ id }) => id}
        columns={[
          { name: "Name", cell: ({ name }) => name },
          { name: "Subject", cell: ({ subject }) => subject && plainSubject(subject) },
          { name: "Updated", cell: ({ updated_at }) => <When at={updated_at} /> },
          {
            name: "Actions",
            cell: (template) => (
              <div className="actions">
                <Opens title={`Show ${template.name}`} heading={template.name} short="Show">
                  {() => <Look {...template} version={template.updated_at} />}
                </Opens>
                {mayWrite && (
                  <More of={template.name}>
                    <Changes {...template} />
                  </More>
                )}
              </div>
            ),
          },
        ]}
        empty="No templates yet. Open a newsletter or campaign and choose “Save as template”: the next one can start from it. Built-in templates are offered there, too."
      />
    </>
  );
}

function Changes(template: Template) {
  const { templates } = useWorkspace().client.app;
  const { id, name } = template;
  const params = { templateId: id };
  const read = async () => {
    const { data } = await templates.list.query({});
    return { data: data.team.find((one) => one.id === id) ?? template };
  };
  return (
    <>
      <Act
        title={`Rename ${name}`}
        short="Rename"
        inputs={[["name", "Name", NAME]]}
        values={{ name }}
        edits={{ id, record: template, read }}
        act={(given, _, save) => {
          const body = { name: given["name"] ?? "" };
          return save(body, (options) => templates.rename.mutate({ params, body }, options));
        }}
      />
      <Duplicate type="template" id={id} name={name} />
      <Act
        title={`Delete ${name}`}
        short="Delete"
        kind="danger"
        note="Emails created from it stay as they are."
        act={() => templates.remove.mutate({ params })}
      />
    </>
  );
}

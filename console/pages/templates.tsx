import type { ReactNode } from "react";
import { Act } from "../parts/act.tsx";
import { RESTORABLE, useUndo } from "../parts/bin.tsx";
import { plainSubject } from "../parts/draft/content.ts";
import { Duplicate } from "../parts/duplicate.tsx";
import { SearchFilter, useFilters } from "../parts/filters.tsx";
import { More } from "../parts/more.tsx";
import { PageHead, When } from "../parts/page.tsx";
import { DRAFT_NAME, Look, NAME, useMakeDraft, useTemplates } from "../parts/templates.tsx";
import { useRole, useWorkspace } from "../session.tsx";

type Template = ReturnType<typeof useTemplates>["team"][number];

const EMPTY =
  "No templates of your own yet. Open a newsletter or campaign and choose “Save as template”: the next one can start from it.";

/** The templates of the team and of the service, with the looks of their mails. */
export function Page() {
  const [{ q = "" }] = useFilters();
  const { own, team } = useTemplates();
  const isFound = (...texts: (string | null)[]) => texts.join(" ").toLowerCase().includes(q.toLowerCase());
  const found = team.filter(({ name, subject }) => isFound(name, subject));
  return (
    <>
      <PageHead title="Templates" />
      <div className="filters">
        <SearchFilter name="q" label="Name or subject contains" />
      </div>
      <h2>Templates of your team</h2>
      {found.length === 0 && <p className="muted">{q ? "No templates match." : EMPTY}</p>}
      <div className="cards">
        {found.map((template) => (
          <Card key={template.id} {...template} actions={<Changes {...template} />}>
            {template.subject && plainSubject(template.subject)} Updated <When at={template.updated_at} />
          </Card>
        ))}
      </div>
      <h2>Built-in templates</h2>
      <div className="cards">
        {own.map(
          (one) =>
            isFound(one.name, one.description) && (
              <Card key={one.id} {...one}>
                {one.description}
              </Card>
            ),
        )}
      </div>
    </>
  );
}

interface CardProps {
  id: string;
  name: string;
  updated_at?: string;
  /** Of its menu. */
  actions?: ReactNode;
  children: ReactNode;
}

function Card({ id, name, updated_at, actions, children }: CardProps) {
  const makeDraft = useMakeDraft("newsletter");
  return (
    <article className="card" aria-label={name}>
      <div className="head">
        <h3>{name}</h3>
        {useRole("EDITOR") && (
          <div className="actions">
            <Act
              title={`Use ${name}`}
              short="Use"
              kind="primary"
              submit="Create draft"
              note="A new newsletter starts with its subject and text."
              inputs={DRAFT_NAME}
              act={({ name: as = "" }, context) => makeDraft({ name: as, template: id }, context)}
            />
            {actions && <More of={name}>{actions}</More>}
          </div>
        )}
      </div>
      <p className="muted">{children}</p>
      <Look id={id} name={name} version={updated_at} />
    </article>
  );
}

function Changes(template: Template) {
  const { templates } = useWorkspace().client.app;
  const undo = useUndo();
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
        note={`Emails created from it stay as they are. ${RESTORABLE}`}
        act={() => templates.remove.mutate({ params })}
        undo={undo(id)}
      />
    </>
  );
}

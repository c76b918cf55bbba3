import { useState } from "react";
import { useData, useWorkspace } from "../session.tsx";
import { Act } from "./act.tsx";
import { Field } from "./form.tsx";
import type { Kind } from "./send/calls.ts";

export const NAME = { required: true, maxLength: 200 } as const;

/** The service's templates, and the team's. */
export const useTemplates = () => useData(["templates"], ({ app }) => app.templates.list.query({}));

/** The mail of a template. It is a page of its own, which may run nothing. */
export function Look({ id, name, version = "" }: { id: string; name: string; version?: string | undefined }) {
  const { team, environment } = useWorkspace();
  const parameters = new URLSearchParams({ team, environment: environment.toUpperCase(), version });
  return (
    <div className="look">
      <iframe title={`An email of “${name}”`} sandbox="" src={`/console/preview/templates/${id}?${parameters}`} />
    </div>
  );
}

/** The beginnings without a template. */
const BLANK = { id: "blank", name: "Empty", description: "An email of blocks, without any text." };
const HTML = { id: "html", name: "HTML", description: "For an email made elsewhere: you write its HTML." };
/** The fields of a draft by such a beginning; one whose body is HTML opens with the editor of HTML. */
export const BEGINNINGS: Readonly<Record<string, { body?: string }>> = {
  blank: {},
  html: { body: `<p>Hello {{ first_name | default: "there" }},</p>\n` },
};

interface Choice {
  id: string;
  name: string;
  description?: string;
  subject?: string | null;
  updated_at?: string;
}

/** Inputs of a form: `template` is a beginning without one, or the id of a template. */
export function ChooseTemplate() {
  const { own, team } = useTemplates();
  const [id, setId] = useState(BLANK.id);
  const all: readonly Choice[] = [BLANK, HTML, ...own, ...team];
  const chosen: Choice = all.find((one) => one.id === id) ?? BLANK;
  return (
    <>
      <Field
        label="Start from"
        name="template"
        hint={chosen.description ?? chosen.subject ?? undefined}
        choices={Object.fromEntries(all.map((one) => [one.id, one.name]))}
        value={chosen.id}
        onChange={setId}
      />
      {!(chosen.id in BEGINNINGS) && <Look key={chosen.id} {...chosen} version={chosen.updated_at} />}
    </>
  );
}

interface SourceProps {
  kind: Kind;
  id: string;
  name: string;
  isDisabled: boolean;
}

/** Saves the content of a newsletter or campaign, as a new template or in the place of one. */
export function SaveAsTemplate({ kind, id, name, isDisabled }: SourceProps) {
  const { templates } = useWorkspace().client.app;
  return (
    <Act
      title="Save as template"
      submit="Save template"
      note="New drafts can start from the saved subject and text. Recipients and sender are not included."
      isDisabled={isDisabled}
      act={({ name: as = "", replaces = "" }, context) => {
        const [templateId, updated_at] = replaces.split(" ");
        const began = templateId && updated_at ? { began: { id: templateId, updated_at } } : {};
        const body = { type: kind, id, name: as, template_id: templateId || undefined };
        return templates.save.mutate({ body }, { context: { ...context, ...began } });
      }}
    >
      <Target name={name} />
    </Act>
  );
}

function Target({ name }: { name: string }) {
  const { team } = useTemplates();
  const [replaces, setReplaces] = useState("");
  const versions = team.map((one) => ({ ...one, version: `${one.id} ${one.updated_at}` }));
  const choices = {
    "": "No, save a new template",
    ...Object.fromEntries(versions.map((one) => [one.version, one.name])),
  };
  const replaced = versions.find(({ version }) => version === replaces);
  return (
    <>
      {team.length > 0 && (
        <Field label="Replace" name="replaces" choices={choices} value={replaces} onChange={setReplaces} />
      )}
      <Field key={replaces} label="Name" name="name" defaultValue={replaced?.name ?? name} {...NAME} />
    </>
  );
}

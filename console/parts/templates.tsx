import { useNavigate } from "@tanstack/react-router";
import { useState } from "react";
import type { CallContext } from "../api.ts";
import { useData, useRole, useWorkspace } from "../session.tsx";
import { Act } from "./act.tsx";
import { onlyOf, usualSender } from "./draft/drafts.ts";
import { Field, type Values } from "./form.tsx";
import { type Kind, useCalls } from "./send/calls.ts";

export const NAME = { required: true, maxLength: 200 } as const;
const NAME_HINT = "Only your team sees it; recipients see the subject.";
export const DRAFT_NAME = [["name", "Name", { ...NAME, hint: NAME_HINT }]] as const;

/** The service's templates, and the team's. */
export const useTemplates = () => useData(["templates"], ({ app }) => app.templates.list.query({}));

type LookProps = Pick<Choice, "id" | "name"> & { kind?: Kind; version?: string | undefined };

/** The picture of a mail, or of a template's. It is a page of its own, which may run nothing. */
export function Look({ kind, id, name, version = "" }: LookProps) {
  const { team, environment } = useWorkspace();
  const parameters = new URLSearchParams({ team, environment: environment.toUpperCase(), version });
  return (
    <div className="look" inert>
      <iframe
        title={`An email of “${name}”`}
        sandbox=""
        loading="lazy"
        src={`/console/preview/${kind ?? "template"}s/${id}?${parameters}`}
      />
    </div>
  );
}

/** The beginnings without a template. */
const BLANK = {
  id: "blank",
  name: "Empty",
  description: "An email of blocks, without any text. It begins with your logo, if there is one.",
};
const HTML = { id: "html", name: "HTML", description: "For an email made elsewhere: you write its HTML." };
/** The fields of a draft by such a beginning; one whose body is HTML opens with the editor of HTML. */
const BEGINNINGS: Readonly<Record<string, { body?: string }>> = {
  blank: {},
  html: { body: `<p>Hello {{ first_name | default: "there" }},</p>\n` },
};

/** Makes a draft of a template, or of a beginning without one, and opens it. */
export function useMakeDraft(type: Kind) {
  const { client, base } = useWorkspace();
  const navigate = useNavigate();
  const { drafts } = useCalls(type, "").calls;
  return async ({ name = "", template = BLANK.id, segment_id = "" }: Values, context: CallContext) => {
    const { data: brand } = await client.app.team.brand.query({});
    const beginning = template === BLANK.id && brand.logo_url ? undefined : BEGINNINGS[template];
    const usual = usualSender(brand, (await client.app.accounts.list.query({})).data);
    const sender = type === "newsletter" ? usual : { from_name: usual.from_name };
    const make = () =>
      beginning
        ? drafts.create.mutate({ body: { name, ...beginning, ...sender } }, { context })
        : client.app.templates.makeDraft.mutate({ body: { type, name, template_id: template } }, { context });
    const { id } = (await make()).data;
    if (!beginning) await drafts.update.mutate({ params: { [`${type}Id`]: id }, body: sender });
    const list = type === "newsletter" && onlyOf((await client.app.audience.allLists.query({})).data);
    if (list) await client.app.content.attachList.mutate({ body: { newsletter_id: id, list_id: list.id } });
    if (segment_id) await client.app.content.change.mutate({ body: { type, id, segment_id } });
    await navigate({ to: `${base}/${type}s/${id}` });
    // The page that opens says it: a notice would lie on the text.
    return "";
  };
}

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

/** A button that makes a draft. */
export function NewDraft({ kind }: { kind: Kind }) {
  const act = useMakeDraft(kind);
  return (
    useRole("EDITOR") && (
      <Act title={`New ${kind}`} submit="Create draft" kind="primary" inputs={DRAFT_NAME} act={act}>
        <ChooseTemplate />
      </Act>
    )
  );
}

/** Saves the content of a newsletter or campaign, as a new template or in the place of one. */
export function SaveAsTemplate(of: { kind: Kind; id: string; name: string; isDisabled: boolean }) {
  const { kind, id, name, isDisabled } = of;
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

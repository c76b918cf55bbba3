import { useEffect, useRef, useState } from "react";
import { DARK, FONT_FAMILIES, groundOf, TEXT, textOn } from "../../lib/mail-style.ts";
import type { Client, DataOf } from "../api.ts";
import { Act, Opens } from "../parts/act.tsx";
import { namesOf, useLists } from "../parts/audience/people.tsx";
import { RESTORABLE, useUndo } from "../parts/bin.tsx";
import { useSizedTargets } from "../parts/draft/drafts.ts";
import { useFilters } from "../parts/filters.tsx";
import { Inputs, Refused, Ticks, type Values } from "../parts/form.tsx";
import { More } from "../parts/more.tsx";
import { Copy, PageHead, State, When } from "../parts/page.tsx";
import { List } from "../parts/table.tsx";
import { useData, useRole, useWorkspace } from "../session.tsx";

type FormRecord = DataOf<Client["api"]["forms"]["retrieve"]["query"]>;
type FormField = FormRecord["fields"][number];

const FIELDS = [
  { id: "first_name", name: "First name" },
  { id: "last_name", name: "Last name" },
] as const;
const OPEN = { true: ["Open", "good"], false: ["Closed", "muted"] } as const;

type Names = ReturnType<typeof namesOf>;

/** The sign-up forms of a team. */
export function Page() {
  const { client, base } = useWorkspace();
  const undo = useUndo();
  const mayWrite = useRole("EDITOR");
  const lists = namesOf(useLists());
  const choices = namesOf(useSizedTargets("newsletter"));
  return (
    <>
      <PageHead title="Forms">{mayWrite && <FormButton lists={lists} choices={choices} />}</PageHead>
      <List
        caption="Forms"
        queryKey={[base, "forms"]}
        read={(cursor) => client.api.forms.page.query({ query: { cursor, sort: "created_at" } })}
        keyOf={({ id }) => id}
        columns={[
          { name: "Name", cell: ({ name }) => name },
          { name: "List", cell: ({ list_id }) => lists[list_id] },
          { name: "Status", cell: ({ is_open }) => <State of={OPEN} is={String(is_open)} /> },
          { name: "Views", cell: ({ shown }) => shown, isNumber: true },
          { name: "Sign-ups", cell: ({ sent }) => sent, isNumber: true },
          { name: "Confirmed", cell: ({ confirmed }) => confirmed, isNumber: true },
          { name: "Created", cell: ({ created_at }) => <When at={created_at} /> },
          {
            name: "Actions",
            cell: (form) => (
              <div className="actions">
                <Opens title={`Use ${form.name}`} short="Use">
                  {() => <Ways formId={form.id} />}
                </Opens>
                {mayWrite && <FormButton lists={lists} choices={choices} form={form} />}
                {mayWrite && (
                  <More of={form.name}>
                    <Act
                      title={`Delete ${form.name}`}
                      short="Delete"
                      kind="danger"
                      submit="Delete form"
                      note={`Its page ends, and websites that use it take no more sign-ups. ${RESTORABLE}`}
                      act={() => client.app.forms.remove.mutate({ params: { formId: form.id } })}
                      undo={undo(form.id)}
                    />
                  </More>
                )}
              </div>
            ),
          },
        ]}
        empty="No forms yet. People sign up for a list with a form, on a page of this service or on your website."
      />
    </>
  );
}

const inputsOf = (choices: Names) =>
  [
    ["name", "Name", { required: true, maxLength: 200, hint: "Only your team sees it." }],
    ["list_id", "List", { choices, hint: "People confirm by email, even on a list with single opt-in." }],
    [
      "consent_text",
      "Consent",
      {
        ...{ required: true, rows: 3, maxLength: 1_000 },
        hint: "Shown above the button, such as: Yes, send me news by email.",
      },
    ],
  ] as const;

const MORE_INPUTS = [
  [
    "tracking_text",
    "Question about tracking",
    { rows: 2, maxLength: 1_000, hint: "For example: May we count what you open and click? Leave empty to ask none." },
  ],
  ["thank_you_url", "Page after the sign-up", { type: "url", hint: "Leave empty for a page of this service." }],
  ["sites", "Websites with the script", { rows: 2, hint: "One on each line, such as https://www.example.com" }],
  ["is_open", "Status", { choices: { true: "Open", false: "Closed" } }],
] as const;

/** The lines of a text, without those that are empty. */
const linesOf = (text = "") => text.split("\n").flatMap((line) => line.trim().replace(/\/$/, "") || []);

/** A button that makes a form, or changes one. @param choices the names of the lists with their sizes */
function FormButton({ lists, choices, form }: { lists: Names; choices: Names; form?: FormRecord }) {
  const { api, app } = useWorkspace().client;
  const [{ list: list_id }] = useFilters();
  const [fields, setFields] = useState<readonly string[]>([]);
  const bodyOf = (values: Values) => ({
    ...{ name: values["name"] ?? "", list_id: values["list_id"] ?? "", consent_text: values["consent_text"] ?? "" },
    tracking_text: values["tracking_text"] || null,
    thank_you_url: values["thank_you_url"] || null,
    ...{ fields: fields as FormField[], sites: linesOf(values["sites"]), is_open: values["is_open"] === "true" },
  });
  const values = form ? { ...form, sites: form.sites.join("\n") } : { list_id, is_open: true };
  return (
    <Act
      {...(form
        ? {
            title: `Edit ${form.name}`,
            short: "Edit",
            submit: "Save",
            note: "A website keeps the HTML that was copied: copy it again after you change a field or a text.",
          }
        : { title: "New form", submit: "Create form", kind: "primary" })}
      values={values}
      inputs={inputsOf(choices)}
      isOpenAtFirst={!form && list_id !== undefined}
      onOpen={() => setFields(form?.fields ?? [])}
      edits={
        form && { id: form.id, record: form, read: () => api.forms.retrieve.query({ params: { formId: form.id } }) }
      }
      act={(values, context, save): Promise<unknown> => {
        const body = bodyOf(values);
        if (!form) return app.forms.create.mutate({ body }, { context });
        return save(body, (options) => app.forms.update.mutate({ params: { formId: form.id }, body }, options));
      }}
    >
      <fieldset name="fields">
        <legend>Besides the address, ask for</legend>
        <Ticks options={FIELDS} chosen={fields} onChange={setFields} />
        <Refused name="fields" />
      </fieldset>
      <details className="stack" open={form !== undefined}>
        <summary>More options</summary>
        <div className="stack">
          <Inputs inputs={MORE_INPUTS} values={values} />
        </div>
      </details>
      <Sample fields={fields} lists={lists} />
    </Act>
  );
}

const PAPER = "#ffffff";

/** The page of the form around it, in the team's brand, as it would look: in dark colours where the console has them. */
function Sample({ fields, lists }: { fields: readonly string[]; lists: Names }) {
  const brand = useData(["brand"], ({ app }) => app.team.brand.query({}));
  const words = useData(["forms", "words"], ({ app }) => app.forms.words.query({}));
  const [values, setValues] = useState<Values>({});
  const ref = useRef<HTMLElement>(null);
  useEffect(() => {
    const form = ref.current?.closest("form");
    const read = () => form && setValues(Object.fromEntries(new FormData(form)) as Values);
    read();
    form?.addEventListener("input", read);
    return () => form?.removeEventListener("input", read);
  }, []);
  const asked = ["email" as const, ...FIELDS.flatMap(({ id }) => (fields.includes(id) ? [id] : []))];
  const list = lists[values["list_id"] ?? ""] ?? "";
  const ground = groundOf(brand.background_color);
  const inScheme = (backgroundColor: string, color: string, dark: string) => ({
    backgroundColor: `light-dark(${backgroundColor}, ${dark})`,
    color: `light-dark(${color}, ${DARK.text})`,
    colorScheme: "inherit",
  });
  const fontFamily = FONT_FAMILIES[brand.font as keyof typeof FONT_FAMILIES];
  const style = { ...inScheme(ground, textOn(ground), DARK.page), fontFamily };
  return (
    <section ref={ref} className="card sample" style={style} aria-label="Preview" inert>
      {brand.logo_url ? <img className="logo" src={brand.logo_url} alt={words.team} /> : <strong>{words.team}</strong>}
      <div style={inScheme(PAPER, TEXT, DARK.card)}>
        <h3>{words.title.replace("{list}", list)}</h3>
        <p>{words.intro.replace("{list}", list)}</p>
        {asked.map((name) => (
          <label key={name}>
            {words[name]}
            <input disabled />
          </label>
        ))}
        {values["tracking_text"] && (
          <label>
            <input type="checkbox" disabled /> {values["tracking_text"]}
          </label>
        )}
        <p>{values["consent_text"] || "The text of the consent"}</p>
        <span style={{ backgroundColor: brand.accent_color, color: textOn(brand.accent_color) }}>{words.button}</span>
      </div>
    </section>
  );
}

/** The three ways in which a form is used. */
function Ways({ formId }: { formId: string }) {
  const read = ({ app }: Client) => app.forms.embed.query({ params: { formId } });
  const { link, html, script } = useData(["forms", formId, "embed"], read);
  return (
    <>
      <h3>A link</h3>
      <p>It leads to a page of this service in your brand.</p>
      <Copy text={link} name="the link" isLink />
      <h3>HTML for your website</h3>
      <p>It needs no script. A second page asks for one more step, which keeps bots out.</p>
      <Copy text={html} name="the HTML" />
      <h3>HTML with a script</h3>
      <p>The person stays on your page. Name the website in the form, and put this line below the HTML.</p>
      <Copy text={script} name="the script" />
    </>
  );
}

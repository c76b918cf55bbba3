import { Fragment, useState } from "react";
import { FONT_FAMILIES, LOGO_WIDTH, readableOn, textOn } from "../../lib/mail-style.ts";
import { Field, type FieldProps, Form, type Values } from "../parts/form.tsx";
import { PickImage } from "../parts/images.tsx";
import { PageHead } from "../parts/page.tsx";
import { useData, useRole, useWorkspace } from "../session.tsx";

const LANGUAGES = { en: "English", de: "German", fr: "French", es: "Spanish" };
const FONTS = { sans: "Sans serif", serif: "Serif", mono: "Monospace" };

const FIELDS: readonly [name: string, label: string, more?: Partial<FieldProps>][] = [
  ["language", "Language", { choices: LANGUAGES, hint: "Text that Mailkeel adds is in this language." }],
  [
    "logo_url",
    "Logo",
    { type: "url", maxLength: 2_000, hint: "Shown on pages and in confirmation emails; new drafts begin with it." },
  ],
  ["accent_color", "Accent colour", { type: "color", hint: "Used for buttons and links." }],
  ["background_color", "Background colour", { type: "color", hint: "Shown around the text of an email." }],
  ["font", "Font", { choices: FONTS }],
  ["sender_name", "From name", { maxLength: 200, hint: "Shown on pages; new drafts start with it." }],
  ["sender_email", "From address", { type: "email", maxLength: 320, hint: "New newsletters start with it." }],
  ["mail_footer", "Footer", { rows: 3, maxLength: 1_000, hint: "Shown at the end of every email." }],
  [
    "postal_address",
    "Postal address",
    {
      ...{ rows: 4, maxLength: 1_000 },
      hint: "Many countries require it by law in every email. It is shown at the end, or where you put the merge tag {{ postal_address }}.",
    },
  ],
];

/** The look and the words of the team's mails. */
export function Page() {
  const { client, team } = useWorkspace();
  const disabled = !useRole("ADMIN");
  const { brand, changeBrand } = client.app.team;
  const read = () => brand.query({});
  const record = useData(["brand"], read);
  const [edits, setEdits] = useState<Values>({});
  const [turn, setTurn] = useState(0);
  const saved = Object.fromEntries(Object.entries(record).map(([name, value]) => [name, value ?? ""]));
  const values: Values = { ...saved, ...edits };
  const edit = (name: string) => (value: string) => setEdits((before) => ({ ...before, [name]: value }));
  return (
    <>
      <PageHead title="Brand" />
      {disabled && <p className="notice">An admin or an owner can change the brand.</p>}
      <div className="draft">
        <Form
          key={turn}
          submit="Save"
          isDisabled={disabled}
          edits={{ id: team, record, read }}
          onKept={() => {
            setEdits({});
            setTurn(turn + 1);
          }}
          onSubmit={async (given, _, save) => {
            const body = Object.fromEntries(Object.entries(given).map(([name, value]) => [name, value || null]));
            await save(body, (options) => changeBrand.mutate({ body }, options));
          }}
        >
          {FIELDS.map(([name, label, more]) => (
            <Fragment key={name}>
              <Field {...{ name, label, disabled, ...more }} value={values[name] ?? ""} onChange={edit(name)} />
              {name === "logo_url" && (
                <div className="actions">
                  {!disabled && <PickImage label="Choose a logo" onPick={({ url }) => edit("logo_url")(url)} />}
                </div>
              )}
            </Fragment>
          ))}
        </Form>
        <section className="stack" aria-labelledby="sample">
          <h2 id="sample">Sample</h2>
          <Sample values={values} />
        </section>
      </div>
    </>
  );
}

/** Below the text, also where the console is dark. */
const PAPER = "#ffffff";

function Sample({ values }: { values: Values }) {
  const { accent_color: accent = "", background_color: backgroundColor = PAPER, font = "" } = values;
  return (
    <div
      className="card sample"
      style={{
        backgroundColor,
        color: textOn(backgroundColor),
        fontFamily: FONT_FAMILIES[font as keyof typeof FONT_FAMILIES],
      }}
    >
      {values["sender_name"] && <small>From: {values["sender_name"]}</small>}
      <div>
        {values["logo_url"] && <img className="logo" src={values["logo_url"]} width={LOGO_WIDTH} alt="Logo" />}
        <h3>A heading</h3>
        <p>
          The text of an email with <u style={{ color: readableOn(PAPER, accent) }}>a link</u>.
        </p>
        <span style={{ backgroundColor: accent, color: textOn(accent) }}>A button</span>
      </div>
      <footer>
        {values["mail_footer"] && <small>{values["mail_footer"]}</small>}
        <small>{values["postal_address"] || "Your postal address"}</small>
        <small>
          You receive this email because you are on our mailing list. <u>Unsubscribe</u>
        </small>
      </footer>
    </div>
  );
}

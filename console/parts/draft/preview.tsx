import { useQuery } from "@tanstack/react-query";
import { useId } from "react";
import { refusalOf } from "../../api.ts";
import { useWorkspace } from "../../session.tsx";
import { Loading, Problem } from "../page.tsx";
import { useParameter } from "../parameter.ts";
import type { Kind } from "./drafts.ts";

const VIEWS = { wide: "Wide (600 px)", phone: "Phone (360 px)", text: "Text part" } as const;
type View = keyof typeof VIEWS;

interface PreviewProps {
  kind: Kind;
  id: string;
  /** Changes with each save: the saved mail is shown. */
  version: string;
}

/** The question by which the preview of a draft is known, also to those who show its problems. */
export function usePreview({ kind, id, version }: PreviewProps) {
  const { client, base } = useWorkspace();
  const [person] = useParameter("person");
  return useQuery({
    queryKey: [base, "preview", id, version, person],
    queryFn: async () => (await client.app.content.preview.query({ query: { type: kind, id, person } })).data,
    placeholderData: (before) => before,
    retry: false,
  });
}

/** The saved mail as one person would get it. Its HTML is a page of its own, which may run nothing. */
export function Preview(props: PreviewProps) {
  const { kind, id, version } = props;
  const { team, environment } = useWorkspace();
  const [person, setPerson] = useParameter("person");
  const [given, setView] = useParameter("view");
  const view: View = given !== undefined && given in VIEWS ? (given as View) : "wide";
  const query = usePreview(props);
  const field = useId();
  const parameters = new URLSearchParams({ team, environment: environment.toUpperCase(), version });
  if (person) parameters.set("person", person);
  const isUnknown = query.error !== null && refusalOf(query.error).param === "person";
  return (
    <section className="preview" aria-label="Preview">
      <div className="head">
        <h2>Preview</h2>
        <fieldset className="choices">
          <legend className="hidden">Shown as</legend>
          {(Object.keys(VIEWS) as View[]).map((name) => (
            <label key={name}>
              <input type="radio" name={field} checked={view === name} onChange={() => setView(name)} /> {VIEWS[name]}
            </label>
          ))}
        </fieldset>
      </div>
      <form
        className="line"
        onSubmit={(event) => {
          event.preventDefault();
          setPerson(String(new FormData(event.currentTarget).get("person") ?? "").trim());
        }}
      >
        <label htmlFor={field}>As the mail to</label>
        <input
          id={field}
          key={person}
          name="person"
          type="email"
          defaultValue={person}
          placeholder={query.data?.to.address}
          aria-invalid={isUnknown || undefined}
          aria-describedby={isUnknown ? `${field}-text` : undefined}
        />
        <button type="submit">Show</button>
        {isUnknown && (
          <p id={`${field}-text`} className="wrong">
            {refusalOf(query.error).message}
          </p>
        )}
      </form>
      {query.isPending && <Loading />}
      <Problem error={query.error} fields={["person"]} />
      {query.data && !query.error && (
        <>
          <dl className="mail-head">
            <dt>From</dt>
            <dd>{query.data.from ? mailbox(query.data.from) : <span className="muted">no sender yet</span>}</dd>
            <dt>To</dt>
            <dd>
              {mailbox(query.data.to)}
              {query.data.is_sample && <span className="muted"> (an example: it goes to no person yet)</span>}
            </dd>
            <dt>Subject</dt>
            <dd>{query.data.subject || <span className="muted">none yet</span>}</dd>
          </dl>
          {view === "text" ? (
            <pre className="text-part">{query.data.text}</pre>
          ) : (
            <div className="frame">
              <iframe
                className={view}
                title="The mail"
                sandbox=""
                src={`/console/preview/${kind}s/${id}?${parameters}`}
              />
            </div>
          )}
        </>
      )}
    </section>
  );
}

const mailbox = ({ name, address }: { name: string | null; address: string }) =>
  name ? `${name} <${address}>` : address;

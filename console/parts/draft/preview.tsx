import { useQuery } from "@tanstack/react-query";
import { useId } from "react";
import { refusalOf } from "../../api.ts";
import { useWorkspace } from "../../session.tsx";
import { Facts } from "../act.tsx";
import { useFilters } from "../filters.tsx";
import { Loading, Problem } from "../page.tsx";
import type { Kind } from "./drafts.ts";

const VIEWS = { wide: "Wide (600 px)", phone: "Phone (360 px)", text: "Text part" };

interface PreviewProps {
  kind: Kind;
  id: string;
  /** Changes with each save: the saved mail is shown. */
  version: string;
}

/** The saved mail as one person would get it. Its HTML is a page of its own, which may run nothing. */
export function Preview({ kind, id, version }: PreviewProps) {
  const { client, base, team, environment } = useWorkspace();
  const [{ person, view = "wide" }, setFilters] = useFilters();
  const query = useQuery({
    queryKey: [base, "preview", id, version, person],
    queryFn: async () => (await client.app.content.preview.query({ query: { type: kind, id, person } })).data,
    placeholderData: (before) => before,
    retry: false,
  });
  const field = useId();
  const parameters = new URLSearchParams({ team, environment: environment.toUpperCase(), version });
  if (person) parameters.set("person", person);
  const shown = query.error ? undefined : query.data;
  const { param, message } = query.error ? refusalOf(query.error) : {};
  const isUnknown = param === "person";
  return (
    <section className="stack" aria-label="Preview">
      <div className="head">
        <h2>Preview</h2>
        <div className="actions">
          {Object.entries(VIEWS).map(([name, text]) => (
            <button key={name} type="button" aria-pressed={view === name} onClick={() => setFilters({ view: name })}>
              {text}
            </button>
          ))}
        </div>
      </div>
      <form
        className="actions"
        onSubmit={(event) => {
          event.preventDefault();
          const given = String(new FormData(event.currentTarget).get("person")).trim();
          setFilters({ person: given || undefined });
        }}
      >
        <label htmlFor={field}>As the mail to</label>
        <input
          id={field}
          key={person}
          name="person"
          type="email"
          defaultValue={person}
          placeholder="a person's address"
          aria-invalid={isUnknown || undefined}
          aria-describedby={`${field}-text`}
        />
        <button type="submit">Show</button>
        <span id={`${field}-text`} className="wrong">
          {isUnknown && message}
        </span>
      </form>
      {query.isPending && <Loading />}
      <Problem error={query.error} fields={["person"]} />
      {shown && (
        <>
          <Facts
            of={[
              ["From", shown.from ? mailbox(shown.from) : "no sender yet"],
              ["To", `${mailbox(shown.to)}${shown.is_sample ? " (an example: it goes to no person yet)" : ""}`],
              ["Subject", shown.subject || "none yet"],
            ]}
          />
          {shown.problems.map((problem) => (
            <p key={problem.message} className="wrong">
              Before it can be sent: in the {problem.field}, {problem.message}.
            </p>
          ))}
          {view === "text" ? (
            <pre className="card">{shown.text}</pre>
          ) : (
            <div className="scroll">
              <iframe
                className={view === "phone" ? "phone" : undefined}
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

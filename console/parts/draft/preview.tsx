import { useQuery } from "@tanstack/react-query";
import { useWorkspace } from "../../session.tsx";
import { ChoiceFilter, SearchFilter, useFilters } from "../filters.tsx";
import { Facts, Loading, Problem } from "../page.tsx";
import type { Mail } from "./drafts.ts";

const VIEWS = { phone: "Phone (360 px)", text: "Text part" };
/** Of whom the mail is shown, beside the people who are found. */
const EXAMPLES = { sample: "An example with a name", nameless: "An example without a name" };
const LOOKS = { dark: "Dark", bare: "Without images" };

/** The block at the editor's cursor, as a fragment of the mail's page. */
let followed = "";
/** The page has no origin that could be asked for its place, and the history has no entry for this one. */
function scroll({ contentWindow, src, dataset }: HTMLIFrameElement): void {
  if (followed && dataset["loaded"] === src) contentWindow?.location.replace(src + followed);
}
/** Scrolls the preview to a block of the editor beside it. @param index among those of the document */
export function follow(index: number): void {
  followed = index > 0 ? `#b${index}` : "#top";
  document.querySelectorAll<HTMLIFrameElement>(".draft iframe").forEach(scroll);
}

interface PreviewProps {
  mail: Mail;
  /** Changes with each save: the saved mail is shown. */
  version: string;
}

/** The saved mail as one person would get it. Its HTML is a page of its own, which may run nothing. */
export function Preview({ mail, version }: PreviewProps) {
  const { client, base, team, environment } = useWorkspace();
  const [{ person, find, view, look }, set] = useFilters();
  const query = useQuery({
    queryKey: [base, "preview", mail, version, person],
    queryFn: async () => (await client.app.content.preview.query({ query: { ...mail, person } })).data,
    placeholderData: (before) => before,
    retry: false,
  });
  const parameters = new URLSearchParams({ team, environment: environment.toUpperCase(), version });
  if (mail.step_id) parameters.set("step", mail.step_id);
  if (person) parameters.set("person", person);
  if (look === "bare") parameters.set("images", "none");
  const shown = query.error ? undefined : query.data;
  return (
    <section className="stack" aria-label="Preview">
      <h2>Preview</h2>
      <div className="filters">
        <ChoiceFilter
          name="person"
          label="Preview as"
          any="First recipient"
          choices={{ ...EXAMPLES, ...(person && !(person in EXAMPLES) && { [person]: person }) }}
        />
        <SearchFilter name="find" label="Other people: address or name begins with" submit="Find" />
        <ChoiceFilter name="view" label="View" any="Wide (600 px)" choices={VIEWS} />
        <ChoiceFilter name="look" label="Look" any="Light" choices={LOOKS} />
      </div>
      {find && query.data && (
        <FoundPeople
          among={query.data.people}
          beginning={find}
          onChoose={(email) => set({ person: email, find: undefined })}
        />
      )}
      {query.isPending && <Loading />}
      <Problem error={query.error} />
      {shown && (
        <>
          <Facts
            of={[
              ["From", shown.from ? mailbox(shown.from) : "no sender yet"],
              ["To", `${mailbox(shown.to)}${shown.is_sample ? " (an example)" : ""}`],
              ["Subject", shown.subject || "none yet"],
            ]}
          />
          {shown.problems.map((problem) => (
            <p key={problem.message} className="wrong">
              Fix before sending: in the {problem.field}, {problem.message}.
            </p>
          ))}
          {view === "text" ? (
            <pre className="card">{shown.text}</pre>
          ) : (
            // biome-ignore lint/a11y/noNoninteractiveTabindex: keys scroll it
            <section className="scroll" aria-label="The email, to scroll" tabIndex={0}>
              <iframe
                className={[view, look].join(" ")}
                title="The email"
                sandbox=""
                onLoad={({ currentTarget: frame }) => {
                  frame.dataset["loaded"] = frame.src;
                  scroll(frame);
                }}
                src={`/console/preview/${mail.type}s/${mail.id}?${parameters}`}
              />
            </section>
          )}
        </>
      )}
    </section>
  );
}

function FoundPeople({
  among,
  beginning,
  onChoose,
}: {
  among: "subscribers" | "contacts";
  beginning: string;
  onChoose: (email: string) => void;
}) {
  const { client, base } = useWorkspace();
  const { data, error } = useQuery({
    queryKey: [base, among, beginning],
    queryFn: async () =>
      (await client.app.audience.search.query({ query: { in: among, text: beginning } })).data as unknown as Person[],
    retry: false,
  });
  return (
    <div role="status">
      <Problem error={error} />
      {data?.length === 0 && "No matches."}
      <div className="actions">
        {data?.map(({ email, first_name: first, last_name: last }) => (
          <button key={email} type="button" onClick={() => onChoose(email)}>
            {mailbox({ name: [first, last].filter(Boolean).join(" "), address: email })}
          </button>
        ))}
      </div>
    </div>
  );
}

type Person = Record<"email", string> & Record<"first_name" | "last_name", string | null>;

const mailbox = ({ name, address }: { name: string | null; address: string }) =>
  name ? `${name} <${address}>` : address;

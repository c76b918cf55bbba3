import { useQuery } from "@tanstack/react-query";
import { useWorkspace } from "../../session.tsx";
import { MOST_SHOWN } from "../audience/address-list.tsx";
import { ChoiceFilter, SearchFilter, useFilters } from "../filters.tsx";
import { Loading, Notice, Problem } from "../page.tsx";
import type { Mail } from "./drafts.ts";

const VIEWS = { wide: "Wide (600 px)", phone: "Phone (360 px)", text: "Text part" };
/** At first, the mail has the width for which the reader's own screen has room. */
const firstView = () => (window.matchMedia("(max-width: 48rem)").matches ? "phone" : "wide");
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

const DOCK_ID = "dock";
/** The place of the values of the block that is selected in the editor. */
export const Dock = () => <div id={DOCK_ID} className="dock" />;
export const dock = () => document.getElementById(DOCK_ID);
/** Scrolls no further than the place needs: it stands at the top of the preview, which may be above the window. */
export function showDock(): void {
  const place = dock();
  if (place?.parentElement) place.parentElement.scrollTop = 0;
  const { top } = place?.getBoundingClientRect() ?? { top: 0 };
  if (top < 0) window.scrollBy(0, top);
}

interface PreviewProps {
  mail: Mail;
  /** Changes with each save: the saved mail is shown. */
  version: string;
}

/** The saved mail as one person would get it. Its HTML is a page of its own, which may run nothing. */
export function Preview({ mail, version }: PreviewProps) {
  const { client, base, team, environment } = useWorkspace();
  const first = firstView();
  const { [first]: own, ...views } = VIEWS;
  const [{ person, find, view = first, look }, set] = useFilters();
  const query = useQuery({
    queryKey: [base, "preview", mail, version, person],
    queryFn: async () => (await client.app.content.preview.query({ query: { ...mail, person } })).data,
    placeholderData: (before) => before,
    retry: false,
  });
  const found = useQuery({
    queryKey: [base, "found", query.data?.people, find],
    queryFn: async () => {
      const search = { in: query.data?.people ?? "subscribers", text: find ?? "" };
      const people = (await client.app.audience.search.query({ query: search })).data as unknown as Person[];
      set({ person: people[0]?.email ?? person });
      return people;
    },
    enabled: Boolean(find && query.data),
    // A person who is chosen later stays.
    ...{ staleTime: "static", retry: false },
  });
  const others = (found.data ?? []).map(({ email, first_name: first, last_name: last }) => [
    email,
    mailbox({ name: [first, last].filter(Boolean).join(" "), address: email }),
  ]);
  const parameters = new URLSearchParams({ team, environment: environment.toUpperCase(), version });
  if (mail.step_id) parameters.set("step", mail.step_id);
  if (person) parameters.set("person", person);
  if (look === "bare") parameters.set("images", "none");
  const shown = query.error ? undefined : query.data;
  return (
    <section className="stack" aria-label="Preview">
      <Dock />
      <h2 className="hidden">Preview</h2>
      <div className="filters short">
        <ChoiceFilter
          name="person"
          label="Preview as"
          any="First recipient"
          choices={{
            ...EXAMPLES,
            ...(person && !(person in EXAMPLES) && { [person]: person }),
            ...Object.fromEntries(others),
          }}
        />
        <SearchFilter name="find" label="Other people: address or name" placeholder="Find someone" />
        <ChoiceFilter name="view" label="View" any={own} choices={views} />
        <ChoiceFilter name="look" label="Look" any="Light" choices={LOOKS} />
      </div>
      <Notice>{find && found.data && foundText(others.length)}</Notice>
      <Problem error={found.error} />
      {query.isPending && <Loading />}
      <Problem error={query.error} />
      {shown && (
        <>
          <div className="facts">
            <small className="muted">
              {shown.from ? mailbox(shown.from) : "No sender yet"} to {mailbox(shown.to)}
              {shown.is_sample && " (an example)"}
            </small>
            <p>
              <strong>{shown.subject || "No subject yet"}</strong> <span className="muted">{shown.preheader}</span>
            </p>
          </div>
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

/** One person alone is shown at once. @param count one more than `MOST_SHOWN` where there are others */
function foundText(count: number): string | false {
  if (count === 0) return "No matches.";
  return count > 1 && `${count > MOST_SHOWN ? `More than ${MOST_SHOWN}` : count} people found: choose one beside.`;
}

type Person = Record<"email", string> & Record<"first_name" | "last_name", string | null>;

const mailbox = ({ name, address }: { name: string | null; address: string }) =>
  name ? `${name} <${address}>` : address;

import { Link } from "@tanstack/react-router";
import { type Client, capitalized, type DataOf } from "../api.ts";
import { useUndo } from "../parts/bin.tsx";
import { plainSubject } from "../parts/draft/content.ts";
import { STATES } from "../parts/draft/drafts.ts";
import { Duplicate } from "../parts/duplicate.tsx";
import { ChoiceFilter, choiceOf, SearchFilter, useFilters } from "../parts/filters.tsx";
import { More } from "../parts/more.tsx";
import { choicesOf, PageHead, State, When } from "../parts/page.tsx";
import { Remove } from "../parts/remove.tsx";
import { type Kind, useCalls } from "../parts/send/calls.ts";
import { MoveStart, shortStart, useStartText } from "../parts/send/time.tsx";
import { partOf, shortPercent } from "../parts/send/words.ts";
import { List } from "../parts/table.tsx";
import { NewDraft } from "../parts/templates.tsx";
import { useRole, useWorkspace } from "../session.tsx";

const TEXTS = {
  newsletter: {
    title: "Newsletters",
    empty:
      "No newsletters yet. A newsletter is sent once to the subscribers of your lists: create one, write it, then send it.",
  },
  campaign: {
    title: "Campaigns",
    empty:
      "No campaigns yet. A campaign is sent once to the contacts of a segment, from one or more accounts: create one, then write it.",
  },
};

const { ACTIVE: _running, STOPPED: _stopped, ...FILTERS } = choicesOf(STATES);

export const Newsletters = () => <Page kind="newsletter" />;
export const Campaigns = () => <Page kind="campaign" />;

type Listed = DataOf<Client["app"]["content"]["page"]["query"]>["drafts"][number];

/** Of one that did not reach all, or not yet: how many have got it. */
const recipientsText = ({ status, sent, recipients }: Listed) =>
  recipients === null || status === "SENT" || status === "SCHEDULED"
    ? (recipients ?? (sent || null))?.toLocaleString()
    : partOf(sent, recipients);

function Page({ kind }: { kind: Kind }) {
  const { client, base } = useWorkspace();
  const [{ q, status: given }] = useFilters();
  const mayWrite = useRole("EDITOR");
  const status = choiceOf(FILTERS, given);
  const texts = TEXTS[kind];
  const startOf = useStartText();
  const { calls } = useCalls(kind, "");
  const undo = useUndo();
  return (
    <>
      <PageHead title={texts.title}>
        <NewDraft kind={kind} />
      </PageHead>
      <div className="filters">
        <SearchFilter name="q" label="Name or subject contains" />
        <ChoiceFilter name="status" label="Status" any="All" choices={FILTERS} />
      </div>
      <List
        caption={texts.title}
        queryKey={[base, `${kind}s`, "list", status, q]}
        read={async (cursor) => {
          const { data } = await client.app.content.page.query({ query: { type: kind, q, status, cursor } });
          return { data: data.drafts, meta: { next_cursor: data.next_cursor } };
        }}
        keyOf={({ id }) => id}
        columns={[
          {
            name: "Name",
            cell: ({ id, name, subject }) => (
              <>
                <Link className="cut" title={name} to={`${base}/${kind}s/${id}`}>
                  {name}
                </Link>
                <small className="cut muted">{subject ? plainSubject(subject) : "No subject yet"}</small>
              </>
            ),
          },
          { name: "Status", cell: (draft) => <State of={STATES} is={draft.status} /> },
          { name: "Audience", cell: ({ targets }) => targets.join(", ") || <span className="muted">none yet</span> },
          { name: "Recipients", cell: recipientsText, isNumber: true },
          { name: "Opened", cell: ({ sent, opened }) => sent > 0 && shortPercent(opened), isNumber: true },
          { name: "Clicked", cell: ({ sent, clicked }) => sent > 0 && shortPercent(clicked), isNumber: true },
          {
            name: "Date",
            cell: (draft) =>
              draft.send_at && draft.status !== "CANCELLED" ? (
                <time title={startOf(draft)}>{shortStart(draft)}</time>
              ) : (
                <span>
                  {draft.completed_at ? capitalized(STATES[draft.status][0]) : "Edited"}{" "}
                  <When at={draft.completed_at ?? draft.updated_at} isShort />
                </span>
              ),
          },
          {
            name: "Actions",
            cell: (draft) =>
              mayWrite && (
                <More of={draft.name}>
                  {draft.status === "SCHEDULED" && (
                    <MoveStart kind={kind} id={draft.id} timed={draft} name={draft.name} />
                  )}
                  <Duplicate type={kind} id={draft.id} name={draft.name} />
                  {draft.status === "DRAFT" && (
                    <Remove
                      title={`Delete ${draft.name}`}
                      short="Delete"
                      undo={undo(draft.id)}
                      act={(options) => calls.drafts.remove.mutate({ params: { [`${kind}Id`]: draft.id } }, options)}
                    />
                  )}
                </More>
              ),
          },
        ]}
        empty={q || status ? "Nothing matches these filters." : texts.empty}
      />
    </>
  );
}

import { Link } from "@tanstack/react-router";
import type { Client, DataOf } from "../api.ts";
import { AddressList } from "../parts/audience/address-list.tsx";
import { EMAIL_STATUSES, nameOf, PersonButton, PersonLink, useLists } from "../parts/audience/people.tsx";
import { Export } from "../parts/export.tsx";
import { ChoiceFilter, choiceOf, useFilters } from "../parts/filters.tsx";
import { choicesOf, PageHead, State, When } from "../parts/page.tsx";
import { people } from "../parts/send/words.ts";
import { skipEmpty } from "../parts/table.tsx";
import { useData, useRole, useWorkspace } from "../session.tsx";

type Listed = DataOf<Client["app"]["audience"]["people"]["query"]>["people"][number];

const STATUSES = { ...EMAIL_STATUSES, SUPPRESSED: ["suppressed", "warn"] } as const;
const EMPTY =
  "No people yet. Subscribers are on lists and get newsletters; segments select contacts, who get campaigns. Add a person, or import a file.";
const namesOf = (records: readonly { id: string; name: string }[]) =>
  Object.fromEntries(records.map(({ id, name }) => [id, name]));
const listsText = (lists: number) => (lists === 0 ? "on no list" : lists === 1 ? "on 1 list" : `on ${lists} lists`);

/** "1–50 of more than 500 people". */
function countText(shown: number, { total, has_more: hasMore }: Record<string, unknown>) {
  if (typeof total !== "number") return undefined;
  const text = `${hasMore ? "more than " : ""}${people(total)}`;
  return shown < total || hasMore ? `1–${shown.toLocaleString()} of ${text}` : text;
}

/** Subscribers, who get newsletters, and contacts, whom segments select: each person once. */
export function Page() {
  const { client, base } = useWorkspace();
  const mayWrite = useRole("EDITOR");
  const [{ list, segment, email_status }] = useFilters();
  const status = choiceOf(STATUSES, email_status);
  const lists = useLists();
  const segments = useData(["segments"], ({ app }) => app.audience.segments.query({}));
  type Query = Parameters<typeof client.app.audience.people.query>[0]["query"];
  const page = async (query: Query) => {
    const { data } = await client.app.audience.people.query({ query });
    return { data: data.people, meta: { next_cursor: data.next, total: data.total, has_more: data.has_more } };
  };
  const filters = { list_id: list, segment_id: segment, status };
  return (
    <>
      <PageHead title="People">
        <Export of="contacts" text="Export all contacts" />
        {mayWrite && (
          <>
            <Link className="button" to={`${base}/imports`}>
              Import
            </Link>
            <PersonButton />
          </>
        )}
      </PageHead>
      <AddressList<Listed>
        search={["Address or name", (text) => page({ text, ...filters })]}
        caption="People"
        queryKey={[base, "people", list, segment, status]}
        countText={countText}
        read={skipEmpty((after) => page({ after, ...filters }))}
        columns={[
          { name: "Address", cell: ({ email }) => <PersonLink email={email} /> },
          { name: "Name", cell: nameOf },
          { name: "Subscriber", cell: ({ lists: count }) => count !== null && listsText(count) },
          { name: "Contact", cell: ({ is_contact }) => is_contact && "Yes" },
          { name: "Address status", cell: ({ status: is }) => <State of={STATUSES} is={is} /> },
          { name: "Added", cell: ({ created_at }) => <When at={created_at} isShort /> },
        ]}
        filters={
          <>
            <ChoiceFilter name="list" label="List" any="All" choices={namesOf(lists)} />
            <ChoiceFilter name="segment" label="Segment" any="All" choices={namesOf(segments)} />
            <ChoiceFilter name="email_status" label="Address status" any="All" choices={choicesOf(STATUSES)} />
          </>
        }
        empty={list || segment || status ? "No people match these filters." : EMPTY}
      >
        <Export of="people" {...filters} text="Export these people" />
      </AddressList>
    </>
  );
}

import { Link } from "@tanstack/react-router";
import { useState } from "react";
import type { Client, DataOf } from "../api.ts";
import { AddressList } from "../parts/audience/address-list.tsx";
import {
  AddToList,
  EMAIL_STATUSES,
  nameOf,
  namesOf,
  PersonButton,
  PersonLink,
  SUBSCRIPTION_STATUSES,
  useLists,
} from "../parts/audience/people.tsx";
import { Export } from "../parts/export.tsx";
import { ChoiceFilter, choiceOf, useFilters } from "../parts/filters.tsx";
import { choicesOf, PageHead, State, When } from "../parts/page.tsx";
import { people } from "../parts/send/words.ts";
import { skipEmpty } from "../parts/table.tsx";
import { useData, useRole, useWorkspace } from "../session.tsx";
import { Suppress } from "./suppressions.tsx";

type Listed = DataOf<Client["app"]["audience"]["people"]["query"]>["people"][number];

const { UNSUBSCRIBED } = SUBSCRIPTION_STATUSES;
const STATUSES = { ...EMAIL_STATUSES, UNSUBSCRIBED, SUPPRESSED: ["suppressed", "warn"] } as const;
const EMPTY =
  "No people yet. Subscribers are on lists and get newsletters; segments select contacts, who get campaigns. Add a person, or import a file.";
const listsText = (lists: number) => (lists === 0 ? "on no list" : lists === 1 ? "on 1 list" : `on ${lists} lists`);

/** "1–50 of more than 500 people". */
function countText(shown: number, { total, has_more: hasMore }: Record<string, unknown>) {
  if (typeof total !== "number") return undefined;
  const text = `${hasMore ? "more than " : ""}${people(total)}`;
  return shown < total || hasMore ? `1–${shown.toLocaleString()} of ${text}` : text;
}

/** As many as a page has; one call of the service takes more. */
const MOST_CHOSEN = 50;

interface ChoiceProps {
  person: Listed;
  chosen: readonly Listed[];
  /** Without it none can be chosen. */
  onChange: ((chosen: readonly Listed[]) => void) | undefined;
}

/** A person's address, with a checkbox before it. */
function Choice({ person, chosen, onChange }: ChoiceProps) {
  const { email } = person;
  const others = chosen.filter((other) => other.email !== email);
  const isChosen = others.length < chosen.length;
  return (
    <span className="tick">
      {onChange && (
        <input
          type="checkbox"
          aria-label={`Choose ${email}`}
          checked={isChosen}
          disabled={!isChosen && chosen.length >= MOST_CHOSEN}
          onChange={() => onChange(isChosen ? others : [...chosen, person])}
        />
      )}
      <bdi className="cut" title={email}>
        <PersonLink email={email} />
      </bdi>
    </span>
  );
}

function ChooseAll({ rows, chosen, onChange }: { rows: readonly Listed[] } & Omit<ChoiceProps, "person">) {
  const most = rows.slice(0, MOST_CHOSEN);
  if (most.length < 2) return null;
  return (
    <label className="tick">
      <input
        type="checkbox"
        checked={most.every(({ email }) => chosen.some((one) => one.email === email))}
        onChange={({ target }) => onChange?.(target.checked ? most : [])}
      />
      {rows.length > most.length ? `Choose the first ${MOST_CHOSEN}` : "Choose all that are shown"}
    </label>
  );
}

/** Subscribers, who get newsletters, and contacts, whom segments select: each person once. */
export function Page() {
  const { client, base } = useWorkspace();
  const mayWrite = useRole("EDITOR");
  const [{ list, segment, email_status, q }] = useFilters();
  const status = choiceOf(STATUSES, email_status);
  const lists = useLists();
  const segments = useData(["segments"], ({ app }) => app.audience.segments.query({}));
  type Query = Parameters<typeof client.app.audience.people.query>[0]["query"];
  const page = async (query: Query) => {
    const { data } = await client.app.audience.people.query({ query });
    return { data: data.people, meta: { next_cursor: data.next, total: data.total, has_more: data.has_more } };
  };
  const filters = { list_id: list, segment_id: segment, status };
  // Those of another filter are not seen.
  const view = JSON.stringify([filters, q]);
  const [picked, setPicked] = useState<{ view: string; people: readonly Listed[] }>({ view, people: [] });
  const chosen = picked.view === view ? picked.people : [];
  const choose = (people: readonly Listed[]) => setPicked({ view, people });
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
        above={(rows) => mayWrite && <ChooseAll rows={rows} chosen={chosen} onChange={choose} />}
        read={skipEmpty((after) => page({ after, ...filters }))}
        columns={[
          {
            name: "Address",
            cell: (person) => <Choice person={person} chosen={chosen} onChange={mayWrite ? choose : undefined} />,
          },
          { name: "Name", cell: nameOf },
          { name: "Subscriber", cell: ({ lists: count }) => count !== null && listsText(count) },
          { name: "Contact", cell: ({ is_contact }) => is_contact && "Yes" },
          { name: "Status", cell: (person) => <State of={STATUSES} is={person.status} /> },
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
      {chosen.length > 0 && (
        <section className="stays actions notice" aria-label="Chosen people">
          <strong role="status">{people(chosen.length)} chosen</strong>
          <AddToList
            ids={chosen.flatMap(({ subscriber_id: id }) => id ?? [])}
            lists={lists}
            onDone={() => choose([])}
          />
          <Suppress emails={chosen.map(({ email }) => email)} onDone={() => choose([])} />
          <button type="button" onClick={() => choose([])}>
            Choose none
          </button>
          {chosen.some(({ subscriber_id: id }) => id === null) && (
            <span className="muted">Contacts alone are on no list: import them as subscribers first.</span>
          )}
        </section>
      )}
    </>
  );
}

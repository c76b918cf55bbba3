import type { DataOf } from "../../api.ts";
import { useData, useWorkspace } from "../../session.tsx";
import { AddressList } from "../audience/address-list.tsx";
import { PersonLink } from "../audience/people.tsx";
import { Chart } from "../chart.tsx";
import { ChoiceFilter, choiceOf, useFilters } from "../filters.tsx";
import { Facts, When } from "../page.tsx";
import { type Kind, type Send, useCalls } from "./calls.ts";
import { OUTCOMES, Outcomes, outcomeText } from "./live-send.tsx";
import { people, percent, reasonText } from "./words.ts";

const ENDED: Readonly<Record<string, string>> = {
  SENT: "It was sent",
  CANCELLED: "It was cancelled",
  FAILED: "It failed",
};

/** The report of a send that has ended. */
export function Report({ kind, send }: { kind: Kind; send: Send }) {
  return (
    <>
      <p>
        {ENDED[send.status] ?? "It has ended"}
        {send.completed_at && " on "}
        <When at={send.completed_at} />, to {people(send.recipients.total)}.
      </p>
      <h3>Outcomes</h3>
      <Outcomes recipients={send.recipients} />
      {send.started_at && <Responses id={send.resource_id} startedAt={send.started_at} />}
      <Hours id={send.resource_id} recipients={send.recipients.total} />
      <h3>Recipients</h3>
      <Recipients kind={kind} id={send.resource_id} />
    </>
  );
}

const DAY_MS = 86_400_000;
const MOST_DAYS = 365;
const dateOf = (instant: number) => new Date(instant).toISOString().slice(0, 10);

function Responses({ id, startedAt }: { id: string; startedAt: string }) {
  const { client } = useWorkspace();
  const { totals, rates } = useData(["analytics", id], () => {
    const begin = Date.parse(startedAt);
    const [from, to] = [dateOf(begin), dateOf(Math.min(Date.now(), begin + MOST_DAYS * DAY_MS))];
    return client.api.analytics.overview.query({ query: { resource_id: id, from, to } });
  });
  const rows: [name: string, count: number, rate: number][] = [
    ["Delivered", totals.delivered, rates.delivered],
    ["Opened", totals.opened_unique, rates.opened],
    ["Clicked", totals.clicked_unique, rates.clicked],
    ["Bounced", totals.bounced_hard + totals.bounced_soft, rates.bounced],
    ["Complained", totals.complained, rates.complained],
    ["Unsubscribed", totals.unsubscribed, rates.unsubscribed],
  ];
  return (
    <>
      <h3>Responses</h3>
      <Facts
        className="figures"
        of={rows.map(([name, count, rate]) => [
          name,
          <>
            {count.toLocaleString()} <span className="muted">{percent(rate, rate > 0 && rate < 0.001 ? 2 : 1)}</span>
            <meter value={rate} aria-label={`${name}: ${percent(rate, 2)}`} />
          </>,
        ])}
      />
      {totals.opened_unique + totals.clicked_unique === 0 && (
        <p className="muted">Opens and clicks are counted for mails that were sent with tracking turned on.</p>
      )}
    </>
  );
}

/** When people opened the mail and clicked in it. */
function Hours({ id, recipients }: { id: string; recipients: number }) {
  const { client } = useWorkspace();
  const read = () => client.app.overview.hours.query({ body: { resource_id: id } });
  const { hours, max_recipients: most } = useData(["hours", id], read);
  if (hours.length === 0) return null;
  return (
    <Chart
      title={`First opens and clicks${recipients > most ? `, of the first ${people(most)}` : ""}`}
      times={hours.map(({ hour }) => hour)}
      unit="hour"
      series={[
        { name: "Opened", values: hours.map(({ opened }) => opened) },
        { name: "Clicked", values: hours.map(({ clicked }) => clicked) },
      ]}
    />
  );
}

type Recipient = DataOf<ReturnType<typeof useCalls>["calls"]["recipients"]["query"]>[number];

/** The recipients by outcome; the outcome stands in the URL. */
function Recipients({ kind, id }: { kind: Kind; id: string }) {
  const { client, base } = useWorkspace();
  const [{ outcome }] = useFilters();
  const { calls, params } = useCalls(kind, id);
  const status = choiceOf(OUTCOMES, outcome)?.toUpperCase() as "SENT" | undefined;
  const read = async (cursor: string | undefined) => {
    for (let from = cursor; ; ) {
      const page = await calls.recipients.query({ params, query: { cursor: from, status } });
      const rows = page.data as readonly Recipient[];
      const next = page.meta["next_cursor"] as string | null;
      // A page of one outcome may be empty although others follow.
      if (rows.length > 0 || next === null) return { ...page, data: rows };
      from = next;
    }
  };
  const find = (starts_with: string) => client.app.content.recipients.query({ query: { type: kind, id, starts_with } });
  return (
    <AddressList<Recipient>
      search={["Address begins with", find]}
      caption="Recipients"
      queryKey={[base, "recipients", id, status]}
      read={read}
      columns={[
        { name: "Address", cell: ({ email }) => <PersonLink email={email} /> },
        { name: "Outcome", cell: (row) => outcomeText(row.status) },
        { name: "Reason", cell: ({ reason }) => reason && reasonText(reason) },
        { name: "At", cell: (row) => <When at={row.updated_at} /> },
      ]}
      empty={status ? "No recipient has this outcome: choose another one." : "It has no recipients."}
    >
      <ChoiceFilter name="outcome" label="Outcome" any="All" choices={OUTCOMES} />
    </AddressList>
  );
}

import { useQueryClient } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useEffect, useRef, useState } from "react";
import type { Client, DataOf } from "../../api.ts";
import { useData, useRole, useWorkspace } from "../../session.tsx";
import { AddressList } from "../audience/address-list.tsx";
import { nameOf, PersonLink, SUBSCRIPTION_STATUSES } from "../audience/people.tsx";
import { Chart } from "../chart.tsx";
import { type Draft, STATES } from "../draft/drafts.ts";
import { Preview } from "../draft/preview.tsx";
import { SaveCsv } from "../export.tsx";
import { ChoiceFilter, choiceOf, useFilters } from "../filters.tsx";
import { choicesOf, DAY_MS, instantText, Part, State, When } from "../page.tsx";
import { List, skipEmpty, Table } from "../table.tsx";
import { Look } from "../templates.tsx";
import { type Kind, type Send, settled, useCalls } from "./calls.ts";
import { Rates, useEarlier } from "./figures.tsx";
import { MailFacts, type MailProps, OUTCOMES, Outcomes } from "./live-send.tsx";
import { partOf, people, percent, reasonText } from "./words.ts";

const MOST_DAYS = 365;
/** Its figures grow while they are looked at: most within hours. */
const pollMs = (age: number) => (age < DAY_MS ? 10_000 : age < 7 * DAY_MS && 60_000);
const dateOf = (instant: number) => new Date(instant).toISOString().slice(0, 10);

/** The report of a send that has ended. */
export function Report({ kind, send, draft }: { kind: Kind; send: Send; draft: Draft }) {
  const { resource_id: id, recipients, started_at: startedAt } = send;
  const { base } = useWorkspace();
  const show = useShowPeople();
  const queries = useQueryClient();
  const begin = Date.parse(startedAt ?? draft.created_at);
  const read = ({ api }: Client) => {
    const [from, to] = [dateOf(begin), dateOf(Math.min(Date.now(), begin + MOST_DAYS * DAY_MS))];
    return api.analytics.overview.query({ query: { resource_id: id, from, to } });
  };
  const poll = () => pollMs(Date.now() - begin);
  const { totals, rates } = useData(["analytics", id], read, { poll });
  const began = useRef(totals);
  useEffect(() => {
    if (began.current === totals) return;
    for (const part of ["hours", "links", "domains", "recipients"]) {
      void queries.invalidateQueries({ queryKey: [base, part, id] });
    }
  }, [totals, queries, base, id]);
  const { sends, last, rates: before } = useEarlier(id);
  const label = sends > 1 ? `Last ${sends} sends` : "Last send";
  const ended = STATES[send.status as keyof typeof STATES]?.[0] ?? "Ended";
  return (
    <>
      {startedAt && (
        <>
          <Rates
            totals={totals}
            rates={rates}
            beside={
              last && [
                label,
                before,
                `${sends > 1 ? "The latest: " : ""}${last.name}, ${instantText(last.completed_at)}`,
              ]
            }
            onShow={(activity) => show({ activity })}
          />
          <p className="muted">
            {totals.tracked === 0
              ? "Tracking is off: opens and clicks of this send are not counted."
              : `Opens and clicks are counted for ${totals.tracked.toLocaleString()} of ${totals.sent.toLocaleString()} emails. Those by machines, such as spam filters and Apple's Mail Privacy Protection, are left out; one that may be either counts as an open, but not as a click.`}{" "}
            {totals.tracked === 0 && <Link to={`${base}/settings`}>Settings</Link>}
          </p>
        </>
      )}
      {recipients.sent < recipients.total && (
        <>
          <h3>Delivery status</h3>
          <Outcomes recipients={settled(recipients)} />
        </>
      )}
      <SentMail
        kind={kind}
        draft={draft}
        facts={[
          [ended, send.completed_at && <When at={send.completed_at} />],
          ["Recipients", send.status === "SENT" ? people(recipients.total) : partOf(recipients.sent, recipients.total)],
        ]}
      />
      <Hours id={id} recipients={recipients.total} />
      {totals.tracked > 0 && (
        <>
          <h3>Clicks by link</h3>
          <Links kind={kind} id={id} clicks={totals.clicked} />
        </>
      )}
      <Part>
        <Domains id={id} recipients={recipients.total} />
      </Part>
      <h3 id={RECIPIENTS}>Recipients</h3>
      <Recipients kind={kind} id={id} total={recipients.total} />
    </>
  );
}

/** The facts of a mail beside its picture, which opens the mail. */
export function SentMail(props: MailProps) {
  const { kind, draft } = props;
  const [isOpened, setOpened] = useState(false);
  return (
    <>
      <div className="sent">
        <button type="button" className="plain" aria-expanded={isOpened} onClick={() => setOpened(!isOpened)}>
          <Look {...draft} kind={kind} version="sent" />
          The email
        </button>
        <MailFacts {...props} />
      </div>
      {isOpened && <Preview mail={{ type: kind, id: draft.id }} version="sent" />}
    </>
  );
}

/** Behind a title where a larger send is shown in part. */
const ofFirst = (recipients: number, most: number) => (recipients > most ? `, of the first ${people(most)}` : "");

/** When people opened the mail and clicked in it. */
function Hours({ id, recipients }: { id: string; recipients: number }) {
  const read = ({ app }: Client) => app.overview.hours.query({ body: { resource_id: id } });
  const { hours, unit, max_recipients: most } = useData(["hours", id], read);
  // Of one, the chart would repeat the totals above.
  if (hours.length < 2) return null;
  return (
    <Chart
      title={`First opens and clicks, ${unit === "hour" ? "by hour" : "every five minutes"}${ofFirst(recipients, most)}`}
      times={hours.map(({ hour }) => hour)}
      unit={unit}
      series={[
        { name: "Opened", values: hours.map(({ opened }) => opened) },
        { name: "Clicked", values: hours.map(({ clicked }) => clicked) },
      ]}
    />
  );
}

/** The place of the list of people, to which links lead. */
const RECIPIENTS = "recipients";
type ClickedLink = DataOf<ReturnType<typeof useCalls>["calls"]["links"]["query"]>[number];

/** @returns leads to the people of an activity */
function useShowPeople(): (of: { activity: string; link?: string; url?: string }) => void {
  const [, filter] = useFilters();
  return ({ activity, link, url }) => {
    filter({ activity, link, url, outcome: undefined, q: undefined });
    document.getElementById(RECIPIENTS)?.scrollIntoView();
  };
}

/** The links that were clicked; each leads to the people who clicked it. */
function Links({ kind, id, clicks: all }: { kind: Kind; id: string; clicks: number }) {
  const { base } = useWorkspace();
  const { calls, params } = useCalls(kind, id);
  const show = useShowPeople();
  // Links are counted for longer than the figures.
  const shareOf = (clicks: number) => Math.min(1, clicks / Math.max(all, 1));
  return (
    <List<ClickedLink>
      caption="Clicks by link"
      queryKey={[base, "links", id]}
      read={(cursor) => calls.links.query({ params, query: { cursor } })}
      keyOf={(link) => link.id}
      columns={[
        { name: "Link", cell: ({ url }) => <code className="url">{url}</code> },
        {
          name: "People",
          cell: (link) => (
            <button
              type="button"
              className="plain"
              onClick={() => show({ activity: "clicked", link: link.id, url: link.url })}
            >
              {people(link.clickers)}
            </button>
          ),
          isNumber: true,
        },
        { name: "Clicks", cell: ({ clicks }) => clicks, isNumber: true },
        {
          name: "Share",
          cell: ({ url, clicks }) => (
            <meter value={shareOf(clicks)} aria-label={`${percent(shareOf(clicks))} of the clicks: ${url}`} />
          ),
        },
        {
          name: "Bots",
          title:
            "Clicks by programs, such as spam filters, and those that a program may have made. No other figure has them.",
          cell: (link) => link.clicks_machine + link.clicks_unknown,
          isNumber: true,
        },
        { name: "Last click", cell: ({ last_at }) => <When at={last_at} /> },
      ]}
      empty="No links were clicked."
    />
  );
}

function Domains({ id, recipients }: { id: string; recipients: number }) {
  const read = ({ app }: Client) => app.overview.domains.query({ body: { resource_id: id } });
  const { domains, max_recipients: most } = useData(["domains", id], read);
  // The tiles say as much of one without failures; null where the recipients are kept no longer, as their list says.
  if (!domains?.some(({ bounced, rejected }) => domains.length > 1 || bounced + rejected > 0)) return null;
  return (
    <>
      <h3>Domains</h3>
      <Table
        caption={`The ten largest domains${ofFirst(recipients, most)}`}
        rows={domains}
        keyOf={({ domain }) => domain}
        columns={[
          { name: "Domain", cell: ({ domain }) => (domain === "erased.invalid" ? "Erased people" : domain) },
          { name: "Delivered", cell: ({ delivered }) => delivered, isNumber: true },
          { name: "Bounced", cell: ({ bounced }) => bounced, isNumber: true },
          { name: "Rejected", cell: ({ rejected }) => rejected, isNumber: true },
        ]}
      />
    </>
  );
}

type Recipient = DataOf<Client["app"]["content"]["recipients"]["query"]>["recipients"][number];

const ACTIVITIES = {
  opened: "Opened",
  not_opened: "Did not open",
  clicked: "Clicked",
  bounced: "Bounced",
  unsubscribed: "Unsubscribed",
  complained: "Marked as spam",
};
/** Segments have conditions on these alone. */
const SEGMENTED: readonly string[] = ["opened", "not_opened", "clicked", "bounced", "unsubscribed"];

/** A button that saves the recipients as CSV, those of an activity where the list shows them alone. */
export function SaveRecipients({ kind, id }: { kind: Kind; id: string }) {
  const { content } = useWorkspace().client.app;
  const [{ activity: given, link, outcome }] = useFilters();
  const activity = choiceOf(ACTIVITIES, given);
  if (choiceOf(OUTCOMES, outcome)) return null;
  const query = { type: kind, id, activity, link: activity === "clicked" ? link : undefined };
  const read = (after: string) => content.exportRecipients.query({ query: { ...query, after } });
  const text = activity && `Export as CSV: ${ACTIVITIES[activity].toLowerCase()}`;
  return <SaveCsv name={`${activity ?? "recipients"}.csv`} text={text} read={read} />;
}

/** The recipients by outcome and activity, which stand in the URL. */
function Recipients({ kind, id, total }: { kind: Kind; id: string; total: number }) {
  const { client, base } = useWorkspace();
  const [filters, filter] = useFilters();
  const mayWrite = useRole("EDITOR");
  const status = choiceOf(OUTCOMES, filters["outcome"])?.toUpperCase() as "SENT" | undefined;
  const activity = choiceOf(ACTIVITIES, filters["activity"]);
  const link = activity === "clicked" ? filters["link"] : undefined;
  type Query = Parameters<typeof client.app.content.recipients.query>[0]["query"];
  const page = async (query: Omit<Query, "type" | "id">) => {
    const { data } = await client.app.content.recipients.query({ query: { type: kind, id, ...query } });
    return { data: data.recipients, meta: { next_cursor: data.next_after } };
  };
  const read = skipEmpty((after) => page({ after, status, ...(activity && { activity, link }) }));
  const find = (text: string) => page({ text });
  return (
    <>
      <AddressList<Recipient>
        search={["Address or name", find]}
        caption="Recipients"
        queryKey={[base, "recipients", id, status, activity, link]}
        read={read}
        first={10}
        countText={() => (status || activity || filters["q"] ? undefined : people(total))}
        columns={[
          { name: "Address", cell: ({ email }) => <PersonLink email={email} /> },
          { name: "Name", cell: nameOf },
          {
            name: "Delivery status",
            cell: ({ status, reason, has_unsubscribed }) => (
              <>
                <State of={OUTCOMES} is={status.toLowerCase()} />
                {reason && <span className="muted">: {reasonText(reason)}</span>}{" "}
                {has_unsubscribed && <State of={SUBSCRIPTION_STATUSES} is="UNSUBSCRIBED" />}
              </>
            ),
          },
          { name: "Sent", cell: (row) => row.status === "SENT" && <When at={row.updated_at} /> },
          { name: "First opened", cell: (row) => <When at={row.opened_at} /> },
          { name: "Last clicked", cell: (row) => <When at={row.clicked_at} /> },
        ]}
        empty={status || activity ? "No recipients match these filters." : "It has no recipients."}
      >
        <ChoiceFilter name="outcome" label="Delivery status" any="All" choices={choicesOf(OUTCOMES)} />
        <ChoiceFilter name="activity" label="Activity" any="All" choices={ACTIVITIES} />
        {link && (
          <>
            <p>
              Clicks on <code>{filters["url"]}</code>
            </p>
            <button type="button" onClick={() => filter({ link: undefined, url: undefined })}>
              Show clicks on all links
            </button>
          </>
        )}
      </AddressList>
      {mayWrite && activity && SEGMENTED.includes(activity) && (
        <Link className="button" to={`${base}/segments/new`} search={{ activity, mail: id, link }}>
          Create a segment
        </Link>
      )}
    </>
  );
}

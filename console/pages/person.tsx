import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Link, useParams } from "@tanstack/react-router";
import { useState } from "react";
import type { Client } from "../api.ts";
import { SUBSCRIPTION_STATUSES, useLists } from "../parts/audience/list-form.tsx";
import {
  type Contact,
  type DataOf,
  DeletePerson,
  EMAIL_STATUSES,
  nameOf,
  PersonButton,
  type Subscriber,
  useFields,
} from "../parts/audience/people.tsx";
import { SubscriptionActions } from "../parts/audience/subscription.tsx";
import { Lift, REASONS, Suppress } from "../parts/audience/suppressions.tsx";
import { When } from "../parts/filters.tsx";
import { Loading, PageHead, Problem } from "../parts/page.tsx";
import { List, Table } from "../parts/table.tsx";
import { useRole, useWorkspace } from "../session.tsx";

/** One person by their address: as a subscriber and as a contact, and the mails to them. */
export function Page() {
  const { email = "" } = useParams({ strict: false }) as { email?: string };
  const { client, base } = useWorkspace();
  const query = { email };
  const subscriber = useQuery({
    queryKey: [base, "subscribers", "of", email],
    queryFn: async (): Promise<Subscriber | null> => {
      const { data } = await client.api.subscribers.page.query({ query });
      const [found] = data;
      return found ? (await client.api.subscribers.retrieve.query({ params: { subscriberId: found.id } })).data : null;
    },
  });
  const contact = useQuery({
    queryKey: [base, "contacts", "of", email],
    queryFn: async () => (await client.api.contacts.page.query({ query })).data[0] ?? null,
  });
  const suppression = useQuery({
    queryKey: [base, "suppressions", "of", email],
    queryFn: async () => (await client.api.suppressions.page.query({ query })).data[0] ?? null,
  });
  if (subscriber.data === undefined || contact.data === undefined || suppression.data === undefined) {
    const error = subscriber.error ?? contact.error ?? suppression.error;
    return error ? <Problem error={error} /> : <Loading />;
  }
  return (
    <>
      <PageHead title={email} />
      <div className="cards">
        <MailCard email={email} suppression={suppression.data} />
        <SubscriberCard email={email} subscriber={subscriber.data} />
        <ContactCard email={email} contact={contact.data} />
      </div>
      {subscriber.data && <Subscriptions subscriber={subscriber.data} />}
      <Unsubscribes email={email} />
      <Mails email={email} />
    </>
  );
}

interface MailCardProps {
  email: string;
  suppression: DataOf<Client["api"]["suppressions"]["retrieve"]["query"]> | null;
}

/** Whether the address is mailed at all, and why not. */
function MailCard({ email, suppression }: MailCardProps) {
  return (
    <section className="card">
      <h2>Mail</h2>
      {suppression ? (
        <>
          <p className="wrong">
            Stopped: {REASONS[suppression.reason] ?? suppression.reason}, since <When at={suppression.created_at} />.
          </p>
          <Lift {...suppression} />
        </>
      ) : (
        <>
          <p className="good">Allowed.</p>
          <Suppress label="Stop all mail" email={email} />
        </>
      )}
    </section>
  );
}

function SubscriberCard({ email, subscriber }: { email: string; subscriber: Subscriber | null }) {
  const mayWrite = useRole("EDITOR");
  return (
    <section className="card">
      <h2>Subscriber</h2>
      {subscriber ? (
        <>
          <p>
            {nameOf(subscriber) || "No name"}, added <When at={subscriber.created_at} />.
          </p>
          {mayWrite && (
            <div className="actions">
              <PersonButton kind="subscribers" person={subscriber}>
                Edit
              </PersonButton>
              <DeletePerson kind="subscribers" person={subscriber} title="Delete subscriber" />
            </div>
          )}
        </>
      ) : (
        <>
          <p>Not a subscriber: no newsletter goes to them.</p>
          {mayWrite && (
            <PersonButton kind="subscribers" email={email}>
              New subscriber
            </PersonButton>
          )}
        </>
      )}
    </section>
  );
}

const shown = (value: Contact["fields"][string] | undefined) =>
  typeof value === "boolean" ? (value ? "yes" : "no") : String(value ?? "–");

function ContactCard({ email, contact }: { email: string; contact: Contact | null }) {
  const mayWrite = useRole("EDITOR");
  const fields = useFields(contact !== null);
  return (
    <section className="card">
      <h2>Contact</h2>
      {contact ? (
        <>
          <p>
            {nameOf(contact) || "No name"}, {EMAIL_STATUSES[contact.email_status]}, added{" "}
            <When at={contact.created_at} />.
          </p>
          <dl>
            {(fields.data ?? []).map(({ name }) => (
              <div key={name}>
                <dt>{name}</dt>
                <dd>{shown(contact.fields[name])}</dd>
              </div>
            ))}
          </dl>
          {mayWrite && (
            <div className="actions">
              <PersonButton kind="contacts" person={contact}>
                Edit
              </PersonButton>
              <DeletePerson kind="contacts" person={contact} title="Delete contact" />
            </div>
          )}
        </>
      ) : (
        <>
          <p>Not a contact: no campaign goes to them.</p>
          {mayWrite && (
            <PersonButton kind="contacts" email={email}>
              New contact
            </PersonButton>
          )}
        </>
      )}
    </section>
  );
}

function Subscriptions({ subscriber: { id, subscriptions } }: { subscriber: Subscriber }) {
  const { base } = useWorkspace();
  const lists = useLists();
  const nameOfList = (listId: string) => lists.data?.find((list) => list.id === listId)?.name ?? listId;
  const joined = subscriptions.map(({ list_id }) => list_id);
  return (
    <section className="block">
      <h2>Subscriptions</h2>
      {subscriptions.length === 0 ? (
        <p className="muted">They are on no list yet.</p>
      ) : (
        <Table
          caption="Subscriptions"
          rows={subscriptions}
          keyOf={({ list_id }) => list_id}
          columns={[
            {
              name: "List",
              cell: ({ list_id }) => <Link to={`${base}/lists/${list_id}`}>{nameOfList(list_id)}</Link>,
            },
            { name: "Status", cell: ({ status }) => SUBSCRIPTION_STATUSES[status] },
            {
              name: "Since",
              cell: ({ confirmed_at, unsubscribed_at, created_at }) => (
                <When at={unsubscribed_at ?? confirmed_at ?? created_at} />
              ),
            },
            {
              name: "Actions",
              cell: ({ list_id, status }) => (
                <SubscriptionActions listId={list_id} subscriberId={id} status={status} name={nameOfList(list_id)} />
              ),
            },
          ]}
        />
      )}
      <Join subscriberId={id} lists={(lists.data ?? []).filter((list) => !joined.includes(list.id))} />
    </section>
  );
}

/** Puts the person on another list. */
function Join({ subscriberId, lists }: { subscriberId: string; lists: { id: string; name: string }[] }) {
  const { client, base } = useWorkspace();
  const queries = useQueryClient();
  const [error, setError] = useState<unknown>();
  if (!useRole("EDITOR") || lists.length === 0) return null;
  const join = async (listId: string) => {
    try {
      await client.api.lists.addMembers.mutate({ params: { listId }, body: { subscriber_ids: [subscriberId] } });
      await queries.invalidateQueries({ queryKey: [base] });
    } catch (thrown) {
      setError(thrown);
    }
  };
  return (
    <form
      className="filters"
      onSubmit={(event) => {
        event.preventDefault();
        void join(String(new FormData(event.currentTarget).get("list")));
      }}
    >
      <label>
        <span className="muted">Another list</span>
        <select name="list">
          {lists.map(({ id, name }) => (
            <option key={id} value={id}>
              {name}
            </option>
          ))}
        </select>
      </label>
      <button type="submit">Add to the list</button>
      <Problem error={error} />
    </form>
  );
}

const SOURCES: Readonly<Record<string, string>> = {
  link: "by the link in a mail",
  one_click: "by the button of a mail program",
  mailto: "by a mail",
};

/** When the person opted out, and by which mail. */
function Unsubscribes({ email }: { email: string }) {
  const { client, base } = useWorkspace();
  const query = useQuery({
    queryKey: [base, "unsubscribes", email],
    queryFn: async () => (await client.api.unsubscribes.page.query({ query: { email } })).data,
  });
  if (!query.data?.length) return <Problem error={query.error} />;
  return (
    <section className="block">
      <h2>Opt-outs</h2>
      <ul>
        {query.data.map(({ id, source, campaign_id, unsubscribed_at }) => (
          <li key={id}>
            <When at={unsubscribed_at} />, {SOURCES[source] ?? source}
            {campaign_id && (
              <>
                {" of "}
                <Link to={`${base}/${campaign_id.startsWith("nl_") ? "newsletters" : "campaigns"}/${campaign_id}`}>
                  this mailing
                </Link>
              </>
            )}
          </li>
        ))}
      </ul>
    </section>
  );
}

const STATES: Readonly<Record<string, string>> = {
  QUEUED: "waits",
  SENDING: "is being sent",
  SENT: "delivered",
  REJECTED: "refused by its server",
  DEFERRED: "delayed, tried again",
  UNKNOWN: "outcome unknown",
  EXPIRED: "given up after many attempts",
  SUPPRESSED: "not mailed",
  CANCELLED: "cancelled before it left",
};
const REPORTS: Readonly<Record<string, string>> = {
  "bounce:hard": "bounced: no such address",
  "bounce:soft": "bounced for a time",
  "refusal:soft": "refused for a time",
  complaint: "complained",
  "complaint:unknown": "somebody complained",
  "complaint:withdrawn": "complaint taken back",
};
const times = (count: number) => (count === 0 ? "–" : count === 1 ? "once" : `${count} times`);

/** The latest mails to the address, and what became of them. */
function Mails({ email }: { email: string }) {
  const { client, base } = useWorkspace();
  return (
    <section className="block">
      <h2>Mails</h2>
      <List
        caption="Mails"
        queryKey={[base, "history", email]}
        read={async (before) => {
          const { data } = await client.app.audience.history.query({ query: { email, before } });
          return { data: data.mails, meta: { next_cursor: data.next } };
        }}
        keyOf={({ send_id }) => send_id}
        columns={[
          {
            name: "Subject",
            cell: ({ subject, resource_type, resource_id, is_sequence }) => (
              <Link to={`${base}/${is_sequence ? "sequence" : resource_type}s/${resource_id}`}>
                {subject ?? "(no subject)"}
              </Link>
            ),
          },
          { name: "When", cell: ({ updated_at }) => <When at={updated_at} /> },
          {
            name: "Outcome",
            cell: ({ status, reason, reports }) =>
              [
                `${STATES[status] ?? status}${status !== "SENT" && reason ? ` (${reason.split(":")[0]?.replaceAll("_", " ")})` : ""}`,
                ...reports.map(({ kind }) => REPORTS[kind] ?? kind),
              ].join("; "),
          },
          { name: "Opened", cell: ({ opens }) => times(opens) },
          { name: "Clicked", cell: ({ clicks }) => times(clicks) },
        ]}
        empty={<p>No mail went to this address yet, or its records are kept no longer.</p>}
      />
    </section>
  );
}

import { Link, useParams } from "@tanstack/react-router";
import type { Client, DataOf } from "../api.ts";
import { Act } from "../parts/act.tsx";
import { EnrolmentState } from "../parts/audience/enrolment.tsx";
import {
  AddToList,
  type Contact,
  DeletePerson,
  nameOf,
  type Person,
  PersonButton,
  type PersonKind,
  SUBSCRIPTION_STATUSES,
  type Subscriber,
  useFields,
  useLists,
} from "../parts/audience/people.tsx";
import { PersonData } from "../parts/audience/person-data.tsx";
import { plainSubject } from "../parts/draft/content.ts";
import type { Values } from "../parts/form.tsx";
import { More } from "../parts/more.tsx";
import { Facts, PageHead, State, When } from "../parts/page.tsx";
import { OUTCOMES } from "../parts/send/live-send.tsx";
import { reasonText } from "../parts/send/words.ts";
import { List, Table } from "../parts/table.tsx";
import { useData, useRole, useWorkspace } from "../session.tsx";
import { SubscriptionActions } from "./lists.tsx";
import { Lift, REASONS, Suppress } from "./suppressions.tsx";

/** One person by their address: as a subscriber and as a contact, and the mails to them. */
export function Page() {
  const { email = "" } = useParams({ strict: false }) as { email?: string };
  const { client } = useWorkspace();
  const { subscribers, contacts, suppressions } = client.api;
  const query = { email };
  const readSubscriber = async (): Promise<Subscriber | undefined> => {
    const [found] = (await subscribers.page.query({ query })).data;
    return found && (await subscribers.retrieve.query({ params: { subscriberId: found.id } })).data;
  };
  const [subscriber, [contact], [suppression]] = useData(["person", email], async () => {
    const pages = [contacts.page.query({ query }), suppressions.page.query({ query })] as const;
    const [person, one, stopped] = await Promise.all([readSubscriber(), ...pages]);
    return { data: [person, one.data, stopped.data] as const };
  });
  const fields = useFields();
  const mayWrite = useRole("EDITOR");
  const name = [subscriber, contact].map((one) => one && nameOf(one)).find(Boolean);
  const of = contact ?? subscriber;
  const statuses = subscriber?.subscriptions.map(({ status }) => status) ?? [];
  const hasLeft = statuses.includes("UNSUBSCRIBED") && !statuses.includes("CONFIRMED");
  const state = !of ? "absent" : hasLeft ? (contact ? "campaigns" : "UNSUBSCRIBED") : "mailed";
  const stopped = suppression?.reason === "UNSUBSCRIBED" ? "UNSUBSCRIBED" : "suppressed";
  return (
    <>
      <PageHead title={name ?? email}>
        <State of={MAIL} is={suppression ? stopped : state} />
        {mayWrite && of && (
          <PersonButton kind={contact ? "contacts" : "subscribers"} person={of} subscriber={contact && subscriber} />
        )}
        {mayWrite && (of || !suppression) && (
          <More>
            {!suppression && <Suppress emails={[email]} />}
            {subscriber && <DeletePerson kind="subscribers" person={subscriber} title="Delete subscriber" />}
            {contact && <DeletePerson kind="contacts" person={contact} title="Delete contact" />}
          </More>
        )}
      </PageHead>
      {suppression && (
        <div className="notice head">
          <p className="wrong">
            Gets no emails: {REASONS[suppression.reason] ?? suppression.reason},{" "}
            <When at={suppression.created_at} isAgo />.
          </p>
          <Lift {...suppression} />
        </div>
      )}
      <Facts
        of={[
          ["Address", email],
          ["Newsletters", <Kind key="s" kind="subscribers" email={email} person={subscriber} />],
          ["Campaigns", <Kind key="c" kind="contacts" email={email} person={contact} />],
          ...(contact ? fields.map(({ name }) => [name, shown(contact.fields[name])] as const) : []),
        ]}
      />
      {subscriber && <Subscriptions subscriber={subscriber} email={email} />}
      <Mails email={email} />
      <Sequences email={email} isStopped={Boolean(suppression) || state === "UNSUBSCRIBED"} />
      <OptOuts
        email={email}
        isBack={!suppression && state === "mailed" && (contact !== undefined || statuses.includes("CONFIRMED"))}
      />
      <Tracking email={email} consent={of?.tracking_consent ?? null} />
      <PersonData email={email} />
    </>
  );
}

const MAIL = {
  mailed: ["can be emailed", "good"],
  campaigns: ["campaigns only", "warn"],
  absent: ["not in your audience", "muted"],
  suppressed: ["suppressed", "wrong"],
  UNSUBSCRIBED: SUBSCRIPTION_STATUSES.UNSUBSCRIBED,
} as const;

const CONSENT_WAYS = {
  api: "through the API",
  import: "from an imported file",
  page: "on a page linked from an email",
  member: "recorded by a team member",
  form: "on a sign-up form",
};
const ANSWERS = { granted: "Tracking is allowed", denied: "Tracking is not allowed" } as const;
type Answer = keyof typeof ANSWERS;

/** The person's answer whether their opens and clicks may be counted. */
function Tracking({ email, consent }: { email: string; consent: Person["tracking_consent"] }) {
  const { noteConsent } = useWorkspace().client.app.audience;
  const note = async ({ status, words = "" }: Values) => {
    const tracking_consent = { status: status as Answer, words };
    await noteConsent.mutate({ body: { email, tracking_consent } });
  };
  return (
    <section className="stack">
      <h2>Consent to tracking</h2>
      {consent ? (
        <>
          <p className={consent.status === "granted" ? "good" : undefined}>
            {ANSWERS[consent.status]}: answered <When at={consent.at} isAgo />, {CONSENT_WAYS[consent.way]}.
          </p>
          {consent.words && <blockquote>{consent.words}</blockquote>}
        </>
      ) : (
        <p>This person has not said whether their opens and clicks may be tracked.</p>
      )}
      {useRole("EDITOR") && (
        <Act
          title="Record an answer"
          submit="Save"
          inputs={[
            ["status", "Answer", { choices: ANSWERS }],
            ["words", "The text they were shown", { required: true, maxLength: 1000 }],
          ]}
          values={{ status: "granted" }}
          act={note}
        />
      )}
    </section>
  );
}

const KINDS = {
  subscribers: ["Subscriber", "None: only subscribers get them."],
  contacts: ["Contact", "None: only contacts get them."],
} as const;

/** Since when the person is a subscriber or a contact. */
function Kind({ kind, email, person }: { kind: PersonKind; email: string; person: Person | undefined }) {
  const mayWrite = useRole("EDITOR");
  const [text, absent] = KINDS[kind];
  const hasBounced = person?.email_status === "INVALID";
  return person ? (
    <>
      {text}, added <When at={person.created_at} isAgo />
      {hasBounced && "; the address has bounced"}
    </>
  ) : (
    <>
      {absent} {mayWrite && <PersonButton kind={kind} email={email} />}
    </>
  );
}

const shown = (value: Contact["fields"][string] | undefined) =>
  typeof value === "boolean" ? (value ? "yes" : "no") : String(value ?? "–");

type Proof = DataOf<Client["app"]["audience"]["subscriptionProofs"]["query"]>[number];

/** How and when a person agreed to the emails of a list. */
function Agreed({ proof }: { proof: Proof | undefined }) {
  const {
    confirmed_at,
    confirmation_sent_at: asked_at,
    signed_up_at_a_form_at: form_at,
    words_of_the_form,
  } = proof ?? {};
  if (!form_at && !asked_at) return confirmed_at && "Not recorded: added by your team";
  const steps = [
    ["Signed up on a form", form_at],
    ["Asked by email", asked_at],
    ["Confirmed", confirmed_at],
  ] as const;
  return (
    <div>
      {steps.map(
        ([text, at]) =>
          at && (
            <div key={text}>
              {text}: <When at={at} isAgo />
            </div>
          ),
      )}
      {words_of_the_form && (
        <details>
          <summary>The words of the form</summary>
          <blockquote>{words_of_the_form}</blockquote>
        </details>
      )}
    </div>
  );
}

function Subscriptions({ subscriber: { id, subscriptions }, email }: { subscriber: Subscriber; email: string }) {
  const { base } = useWorkspace();
  const mayWrite = useRole("EDITOR");
  const lists = useLists();
  const proofs = useData(["proofs", email], ({ app }) => app.audience.subscriptionProofs.query({ query: { email } }));
  const listOf = (listId: string) =>
    lists.find((list) => list.id === listId) ?? { name: "a list that was deleted", optin: "SINGLE" };
  const joined = subscriptions.map(({ list_id }) => list_id);
  const others = lists.filter((list) => !joined.includes(list.id));
  return (
    <section className="stack">
      <h2>Lists</h2>
      <Table
        caption="Lists"
        empty="Not on any list yet."
        rows={subscriptions}
        keyOf={({ list_id }) => list_id}
        columns={[
          {
            name: "List",
            cell: ({ list_id }) => <Link to={`${base}/lists/${list_id}`}>{listOf(list_id).name}</Link>,
          },
          { name: "Status", cell: ({ status }) => <State of={SUBSCRIPTION_STATUSES} is={status} /> },
          {
            name: "Since",
            cell: ({ confirmed_at, unsubscribed_at, created_at }) => (
              <When at={unsubscribed_at ?? confirmed_at ?? created_at} isAgo />
            ),
          },
          {
            name: "Consent",
            cell: ({ list_id }) => <Agreed proof={proofs.find((proof) => proof.list_id === list_id)} />,
          },
          {
            name: "Actions",
            cell: ({ list_id, status }) => (
              <SubscriptionActions listId={list_id} subscriberId={id} status={status} {...listOf(list_id)} />
            ),
          },
        ]}
      />
      {mayWrite && others.length > 0 && <AddToList ids={[id]} lists={others} />}
    </section>
  );
}

/** Those that the person is or was in. */
function Sequences({ email, isStopped }: { email: string; isStopped: boolean }) {
  const { base } = useWorkspace();
  const enrolments = useData(["enrolments", email], ({ app }) => app.audience.enrolments.query({ query: { email } }));
  return (
    enrolments.length > 0 && (
      <section className="stack">
        <h2>Sequences</h2>
        <Table
          caption="Sequences"
          rows={enrolments}
          keyOf={({ sequence_id }) => sequence_id}
          columns={[
            { name: "Name", cell: ({ sequence_id: id, name }) => <Link to={`${base}/sequences/${id}`}>{name}</Link> },
            { name: "State", cell: (enrolment) => <EnrolmentState {...enrolment} isStopped={isStopped} /> },
            { name: "Entered", cell: ({ entered_at: at, state }) => state !== "PRESENT" && <When at={at} isAgo /> },
          ]}
        />
      </section>
    )
  );
}

const SOURCES: Readonly<Record<string, string>> = {
  link: "through the link in an email",
  one_click: "with the button of an email app",
  mailto: "by email",
};

/** When the person opted out, and by which mail. */
function OptOuts({ email, isBack }: { email: string; isBack: boolean }) {
  const { client, base } = useWorkspace();
  const optOuts = useData(["unsubscribes", email], () => client.api.unsubscribes.page.query({ query: { email } }));
  const pathOf = (id: string) => `${base}/${id.startsWith("nl_") ? "newsletters" : "campaigns"}/${id}`;
  return (
    optOuts.length > 0 && (
      <section className="stack">
        <h2>Unsubscribes</h2>
        <ul>
          {optOuts.map(({ id, source, campaign_id, unsubscribed_at: at }) => (
            <li key={id}>
              <When at={at} isAgo />, {SOURCES[source] ?? source}
              {campaign_id && ": "}
              {campaign_id && <Link to={pathOf(campaign_id)}>view the email</Link>}
            </li>
          ))}
        </ul>
        {isBack && <p className="good">They can be emailed again.</p>}
      </section>
    )
  );
}

const REPORTS: Readonly<Record<string, string>> = {
  "bounce:hard": "bounced: no such address",
  "bounce:soft": "bounced temporarily",
  "refusal:soft": "rejected temporarily",
  complaint: "marked as spam",
  "complaint:unknown": "someone complained",
  "complaint:withdrawn": "complaint withdrawn",
};
const times = (count: number) => (count === 0 ? "–" : count === 1 ? "once" : `${count} times`);

/** The latest mails to the address, and what became of them. */
function Mails({ email }: { email: string }) {
  const { client, base } = useWorkspace();
  return (
    <section className="stack">
      <h2>Emails</h2>
      <List
        caption="Emails"
        queryKey={[base, "history", email]}
        read={async (before) => {
          const { data } = await client.app.audience.history.query({ query: { email, before } });
          return { data: data.mails, meta: { next_cursor: data.next } };
        }}
        first={50}
        keyOf={({ send_id }) => send_id}
        columns={[
          {
            name: "Subject",
            cell: ({ subject, resource_type, resource_id, is_sequence }) => (
              <Link to={`${base}/${is_sequence ? "sequence" : resource_type}s/${resource_id}`}>
                {subject ? plainSubject(subject) : "(no subject)"}
              </Link>
            ),
          },
          { name: "When", cell: ({ status, updated_at }) => status !== "QUEUED" && <When at={updated_at} isAgo /> },
          {
            name: "Delivery status",
            cell: ({ status, reason, reports }) => (
              <>
                <State of={OUTCOMES} is={status.toLowerCase()} /> {status !== "SENT" && reason && reasonText(reason)}{" "}
                {reports.map(({ kind }) => REPORTS[kind] ?? kind).join("; ")}
              </>
            ),
          },
          { name: "Opened", cell: ({ opens }) => times(opens) },
          { name: "Clicked", cell: ({ clicks }) => times(clicks) },
        ]}
        empty="No emails were sent to this address yet, or their records are no longer kept."
      />
    </section>
  );
}

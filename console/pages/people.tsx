import { Link } from "@tanstack/react-router";
import { AddressList, useSearch } from "../parts/audience/address-list.tsx";
import {
  DeletePerson,
  EMAIL_STATUSES,
  nameOf,
  type Person,
  PersonButton,
  type PersonKind,
  PersonLink,
} from "../parts/audience/people.tsx";
import { Export } from "../parts/export.tsx";
import { ChoiceFilter, choiceOf, useFilters } from "../parts/filters.tsx";
import { More } from "../parts/more.tsx";
import { choicesOf, PageHead, State, When } from "../parts/page.tsx";
import { useRole, useWorkspace } from "../session.tsx";

/** The people on the team's lists, who get newsletters. */
export const Subscribers = () => <People kind="subscribers" />;
/** The people whom segments select, and campaigns mail. */
export const Contacts = () => <People kind="contacts" />;

const EMPTY = {
  subscribers: "No subscribers yet. Subscribers are on lists and get newsletters: add one here, or import a file.",
  contacts:
    "No contacts yet. Segments select contacts, and campaigns are sent to them: add one here, or import a file.",
} as const;

function People({ kind }: { kind: PersonKind }) {
  const { client, base } = useWorkspace();
  const mayWrite = useRole("EDITOR");
  const [{ email_status }] = useFilters();
  const isContacts = kind === "contacts";
  const caption = isContacts ? "Contacts" : "Subscribers";
  const status = choiceOf(EMAIL_STATUSES, email_status);
  return (
    <>
      <PageHead title={caption}>
        {isContacts && <Export of="contacts" />}
        {mayWrite && (
          <>
            <Link className="button" to={`${base}/imports`}>
              Import
            </Link>
            <PersonButton kind={kind} />
          </>
        )}
      </PageHead>
      <AddressList<Person>
        search={useSearch(kind)}
        caption={caption}
        queryKey={[base, kind, status]}
        read={(cursor) => {
          const query = { cursor, sort: "created_at" as const };
          if (isContacts) return client.api.contacts.page.query({ query: { ...query, email_status: status } });
          return client.api.subscribers.page.query({ query });
        }}
        columns={[
          { name: "Address", cell: ({ email }) => <PersonLink email={email} /> },
          { name: "Name", cell: nameOf },
          ...(isContacts
            ? [
                {
                  name: "Address status",
                  cell: ({ email_status: is }: Person) => is && <State of={EMAIL_STATUSES} is={is} />,
                },
              ]
            : []),
          { name: "Added", cell: ({ created_at }) => <When at={created_at} /> },
          {
            name: "Actions",
            cell: (person) =>
              mayWrite && (
                <div className="actions">
                  <PersonButton kind={kind} person={person} />
                  <More of={person.email}>
                    <DeletePerson kind={kind} person={person} title="Delete" />
                  </More>
                </div>
              ),
          },
        ]}
        empty={status ? "No contacts have this status." : EMPTY[kind]}
      >
        {isContacts && (
          <ChoiceFilter name="email_status" label="Address status" any="All" choices={choicesOf(EMAIL_STATUSES)} />
        )}
      </AddressList>
    </>
  );
}

import { Link } from "@tanstack/react-router";
import {
  DeletePerson,
  EMAIL_STATUSES,
  FOUND_NOTE,
  findByAddress,
  NONE_FOUND,
  nameOf,
  type Person,
  PersonButton,
  type PersonKind,
  PersonLink,
} from "../parts/audience/people.tsx";
import { Export } from "../parts/export.tsx";
import { ChoiceFilter, FilterBar, SearchFilter, useFilters } from "../parts/filters.tsx";
import { PageHead, When } from "../parts/page.tsx";
import { List } from "../parts/table.tsx";
import { useRole, useWorkspace } from "../session.tsx";

/** The people on the team's lists, who get newsletters. */
export const Subscribers = () => <People kind="subscribers" />;
/** The people whom segments select, and campaigns mail. */
export const Contacts = () => <People kind="contacts" />;

const EMPTY = {
  subscribers:
    "No subscriber yet. Subscribers are on lists and get newsletters: make one here, or import many from a file.",
  contacts:
    "No contact yet. Segments select contacts, and campaigns mail them: make one here, or import many from a file.",
} as const;

function People({ kind }: { kind: PersonKind }) {
  const { client, base } = useWorkspace();
  const mayWrite = useRole("EDITOR");
  const [{ q, email_status }] = useFilters();
  const isContacts = kind === "contacts";
  const caption = isContacts ? "Contacts" : "Subscribers";
  const status = email_status === "ACTIVE" || email_status === "INVALID" ? email_status : undefined;
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
      <FilterBar>
        <SearchFilter name="q" label="Address or name begins with" />
        {isContacts && !q && (
          <ChoiceFilter name="email_status" label="Address status" any="all" choices={EMAIL_STATUSES} />
        )}
      </FilterBar>
      {q && <p className="muted">{FOUND_NOTE}</p>}
      <List<Person>
        caption={caption}
        queryKey={[base, kind, q, status]}
        read={(cursor) => {
          if (q) return findByAddress<Person>(client, kind, q);
          const query = { cursor, sort: "created_at" as const };
          if (isContacts) return client.api.contacts.page.query({ query: { ...query, email_status: status } });
          return client.api.subscribers.page.query({ query });
        }}
        keyOf={({ id }) => id}
        columns={[
          { name: "Address", cell: ({ email }) => <PersonLink email={email} /> },
          { name: "Name", cell: nameOf },
          ...(isContacts
            ? [{ name: "Address status", cell: ({ email_status: is }: Person) => is && EMAIL_STATUSES[is] }]
            : []),
          { name: "Added", cell: ({ created_at }) => <When at={created_at} /> },
          {
            name: "Actions",
            cell: (person) =>
              mayWrite && (
                <div className="actions">
                  <PersonButton kind={kind} person={person} />
                  <DeletePerson kind={kind} person={person} title="Delete" />
                </div>
              ),
          },
        ]}
        empty={q ? NONE_FOUND : status ? "No contact has this status." : EMPTY[kind]}
      />
    </>
  );
}

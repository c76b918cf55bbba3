import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import type { Client } from "../../api.ts";
import { useRole, useWorkspace } from "../../session.tsx";
import { Act, useDone } from "../act.tsx";
import { All } from "../all.tsx";
import { Export } from "../export.tsx";
import { ChoiceFilter, FilterBar, SearchFilter, useFilters, When } from "../filters.tsx";
import type { Values } from "../form.tsx";
import { PageHead, Problem } from "../page.tsx";
import { type Column, List } from "../table.tsx";
import { Delete } from "./delete.tsx";

export type DataOf<Read extends (...args: never[]) => Promise<{ data: unknown }>> = Awaited<ReturnType<Read>>["data"];
export type Subscriber = DataOf<Client["api"]["subscribers"]["retrieve"]["query"]>;
export type Contact = DataOf<Client["api"]["contacts"]["retrieve"]["query"]>;
export type FieldDefinition = DataOf<Client["api"]["contacts"]["listFields"]["query"]>[number];
export type PersonKind = "subscribers" | "contacts";
export type Person = Omit<Subscriber, "object" | "subscriptions"> & Partial<Pick<Contact, "fields" | "email_status">>;

const ONE = { subscribers: "subscriber", contacts: "contact" } as const;

export const EMAIL_STATUSES = { ACTIVE: "can be mailed", INVALID: "bounced: is not mailed" } as const;
export const nameOf = ({ first_name, last_name }: Pick<Person, "first_name" | "last_name">) =>
  [first_name, last_name].filter(Boolean).join(" ");

export function PersonLink({ email }: { email: string }) {
  const { base } = useWorkspace();
  return <Link to={`${base}/people/${encodeURIComponent(email)}`}>{email}</Link>;
}

/** Inputs of a person's address and names. */
export const PERSON_INPUTS = [
  ["email", "Address", { type: "email", required: true, maxLength: 320 }],
  ["first_name", "First name"],
  ["last_name", "Last name"],
] as const;

/** The custom fields of the team's contacts. */
export function useFields(isNeeded = true) {
  const { client, base } = useWorkspace();
  return useQuery({
    queryKey: [base, "fields"],
    queryFn: async () => (await client.api.contacts.listFields.query({})).data,
    enabled: isNeeded,
  });
}

/** An input for the value of a custom field. */
function inputOf({ name, type }: FieldDefinition) {
  if (type !== "boolean") return [`fields.${name}`, name, { type, step: "any" }] as const;
  return [`fields.${name}`, name, { choices: { "": "not known", true: "yes", false: "no" } }] as const;
}

/** The value that an input holds; null takes it away. */
function heldBy({ name, type }: FieldDefinition, values: Values) {
  const text = values[`fields.${name}`] ?? "";
  if (text === "") return null;
  return type === "number" ? Number(text) : type === "boolean" ? text === "true" : text;
}

interface PersonButtonProps {
  kind: PersonKind;
  /** The one to change; a new one unless given. */
  person?: Person;
  /** Address of a new one. */
  email?: string;
}

/** A button that makes or changes a subscriber or a contact. */
export function PersonButton({ kind, person, email }: PersonButtonProps) {
  const { contacts, subscribers } = useWorkspace().client.api;
  const done = useDone(kind);
  const isContact = kind === "contacts";
  const fields = useFields(isContact);
  const definitions = (isContact && fields.data) || [];
  const save = (values: Values): Promise<unknown> => {
    const { email: address = "", first_name, last_name } = values;
    const body = { email: address, first_name: first_name || null, last_name: last_name || null };
    if (!isContact) {
      if (!person) return subscribers.create.mutate({ body });
      return subscribers.update.mutate({ params: { subscriberId: person.id }, body });
    }
    const all = definitions.map((field) => [field.name, heldBy(field, values)] as const);
    const whole = { ...body, fields: Object.fromEntries(all.filter(([, value]) => person || value !== null)) };
    if (!person) return contacts.create.mutate({ body: whole });
    return contacts.update.mutate({ params: { contactId: person.id }, body: whole });
  };
  const held = Object.entries(person?.fields ?? {}).map(([name, value]) => [`fields.${name}`, value]);
  return (
    <Act
      {...(person
        ? { title: `Edit the ${ONE[kind]} ${person.email}`, short: "Edit", submit: "Save" }
        : { title: `New ${ONE[kind]}`, submit: `Make the ${ONE[kind]}`, kind: "primary" })}
      inputs={[...PERSON_INPUTS, ...definitions.map(inputOf)]}
      values={{ email, ...person, ...Object.fromEntries(held) }}
      isDisabled={isContact && !fields.data}
      act={(values) => done(save(values))}
    >
      <Problem error={isContact && fields.error} />
    </Act>
  );
}

export function DeletePerson({ kind, person, title }: { kind: PersonKind; person: Person; title: string }) {
  const { contacts, subscribers } = useWorkspace().client.api;
  const goes =
    kind === "contacts"
      ? "the contact goes with its custom fields. A subscriber with the same address stays, and so does a stop on mail to it."
      : "the subscriber goes with all subscriptions. A contact with the same address stays, and so does a stop on mail to it. The lists remember opt-outs.";
  return (
    <Delete
      title={title}
      call={(options) =>
        kind === "contacts"
          ? contacts.remove.mutate({ params: { contactId: person.id } }, options)
          : subscribers.remove.mutate({ params: { subscriberId: person.id } }, options)
      }
    >
      {person.email}: {goes}
    </Delete>
  );
}

/** Records whose addresses, or people whose names, begin with a text, as a table; 25 at most. */
export function Found<Row extends { id: string }>({
  kind,
  text,
  caption,
  columns,
}: {
  kind: PersonKind | "suppressions";
  text: string;
  caption: string;
  columns: readonly Column<Row>[];
}) {
  const { client, base } = useWorkspace();
  const query = useQuery({
    queryKey: [base, kind, "search", text],
    queryFn: async () =>
      (await client.app.audience.search.query({ query: { in: kind, starts_with: text } })).data as unknown as Row[],
  });
  const empty = `No address${kind === "suppressions" ? "" : " or name"} begins with “${text}”. Search for fewer letters.`;
  return (
    <>
      <All caption={caption} query={query} columns={columns} keyOf={({ id }) => id} empty={empty} />
      {query.data?.length === 25 && <p className="muted">These are the first 25. Write more letters.</p>}
    </>
  );
}

const EMPTY = {
  subscribers:
    "No subscriber yet. Subscribers are on lists and get newsletters: make one here, or import many from a file.",
  contacts:
    "No contact yet. Segments select contacts, and campaigns mail them: make one here, or import many from a file.",
} as const;

/** The subscribers, or the contacts, of the team. */
export function People({ kind }: { kind: PersonKind }) {
  const { client, base } = useWorkspace();
  const mayWrite = useRole("EDITOR");
  const [{ q, email_status }] = useFilters();
  const caption = kind === "contacts" ? "Contacts" : "Subscribers";
  const columns: Column<Person>[] = [
    { name: "Address", cell: ({ email }) => <PersonLink email={email} /> },
    { name: "Name", cell: nameOf },
    ...(kind === "contacts"
      ? [{ name: "Address status", cell: ({ email_status: status }: Person) => status && EMAIL_STATUSES[status] }]
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
  ];
  const status = email_status === "ACTIVE" || email_status === "INVALID" ? email_status : undefined;
  return (
    <>
      <PageHead title={caption}>
        {kind === "contacts" && <Export of="contacts" />}
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
        {kind === "contacts" && !q && (
          <ChoiceFilter name="email_status" label="Address status" any="all" choices={EMAIL_STATUSES} />
        )}
      </FilterBar>
      {q ? (
        <Found kind={kind} text={q} caption={caption} columns={columns} />
      ) : (
        <List<Person>
          caption={caption}
          queryKey={[base, kind, status]}
          read={(cursor) =>
            kind === "contacts"
              ? client.api.contacts.page.query({ query: { cursor, sort: "created_at", email_status: status } })
              : client.api.subscribers.page.query({ query: { cursor, sort: "created_at" } })
          }
          keyOf={({ id }) => id}
          columns={columns}
          empty={<p>{status ? "No contact has this status." : EMPTY[kind]}</p>}
        />
      )}
    </>
  );
}

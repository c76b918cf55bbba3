import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { type ReactNode, useState } from "react";
import type { Client } from "../../api.ts";
import { useRole, useWorkspace } from "../../session.tsx";
import { Dialog } from "../dialog.tsx";
import { Export } from "../export.tsx";
import { ChoiceFilter, FilterBar, SearchFilter, useFilters, When } from "../filters.tsx";
import { Field, Form } from "../form.tsx";
import { Empty, Loading, PageHead, Problem } from "../page.tsx";
import { Remove } from "../remove.tsx";
import { type Column, List, Table } from "../table.tsx";

export type DataOf<Read extends (...args: never[]) => Promise<{ data: unknown }>> = Awaited<ReturnType<Read>>["data"];
export type Subscriber = DataOf<Client["api"]["subscribers"]["retrieve"]["query"]>;
export type Contact = DataOf<Client["api"]["contacts"]["retrieve"]["query"]>;
export type FieldDefinition = DataOf<Client["api"]["contacts"]["listFields"]["query"]>[number];
export type PersonKind = "subscribers" | "contacts";
type Person = Omit<Subscriber, "object" | "subscriptions"> & Partial<Pick<Contact, "fields" | "email_status">>;

const ONE = { subscribers: "subscriber", contacts: "contact" } as const;

export const EMAIL_STATUSES = { ACTIVE: "can be mailed", INVALID: "bounced: is not mailed" } as const;
export const nameOf = ({ first_name, last_name }: Pick<Person, "first_name" | "last_name">) =>
  [first_name, last_name].filter(Boolean).join(" ");

export function PersonLink({ email }: { email: string }) {
  const { base } = useWorkspace();
  return <Link to={`${base}/people/${encodeURIComponent(email)}`}>{email}</Link>;
}

/** The custom fields of the team's contacts. */
export function useFields(isNeeded = true) {
  const { client, base } = useWorkspace();
  return useQuery({
    queryKey: [base, "fields"],
    queryFn: async () => (await client.api.contacts.listFields.query({})).data,
    enabled: isNeeded,
  });
}

const TYPES = { text: "text", number: "number", date: "date" } as const;

function CustomField({
  field,
  value,
  problem,
}: {
  field: FieldDefinition;
  value: unknown;
  problem: string | undefined;
}) {
  const name = `fields.${field.name}`;
  const given = value === undefined ? "" : String(value);
  if (field.type !== "boolean") {
    const step = field.type === "number" ? { step: "any" } : {};
    return (
      <Field label={field.name} name={name} type={TYPES[field.type]} {...step} defaultValue={given} problem={problem} />
    );
  }
  return (
    <Field
      label={field.name}
      name={name}
      problem={problem}
      control={(id) => (
        <select id={id} name={name} defaultValue={given}>
          <option value="">not known</option>
          <option value="true">yes</option>
          <option value="false">no</option>
        </select>
      )}
    />
  );
}

/** The values of custom fields that a form holds; null takes a value away. */
function fieldsOf(definitions: readonly FieldDefinition[], values: Record<string, string>, isNew: boolean) {
  const parse = (type: FieldDefinition["type"], text: string) => {
    if (text === "") return null;
    return type === "number" ? Number(text) : type === "boolean" ? text === "true" : text;
  };
  const all = definitions.map(({ name, type }) => [name, parse(type, values[`fields.${name}`] ?? "")] as const);
  return Object.fromEntries(isNew ? all.filter(([, value]) => value !== null) : all);
}

interface PersonDialogProps {
  kind: PersonKind;
  /** The one to change; a new one unless given. */
  person?: Person | undefined;
  /** Address of a new one. */
  email?: string;
  onClose: () => void;
}

/** Makes or changes a subscriber or a contact. */
function PersonDialog({ kind, person, email = "", onClose }: PersonDialogProps) {
  const { client, base } = useWorkspace();
  const queries = useQueryClient();
  const fields = useFields(kind === "contacts");
  const definitions = fields.data ?? [];
  const save = async ({ email: address = "", first_name, last_name, ...values }: Record<string, string>) => {
    const body = { email: address, first_name: first_name || null, last_name: last_name || null };
    const whole = { ...body, fields: fieldsOf(definitions, values, !person) };
    if (kind === "contacts") {
      if (person) await client.api.contacts.update.mutate({ params: { contactId: person.id }, body: whole });
      else await client.api.contacts.create.mutate({ body: whole });
    } else if (person) {
      await client.api.subscribers.update.mutate({ params: { subscriberId: person.id }, body });
    } else await client.api.subscribers.create.mutate({ body });
    await queries.invalidateQueries({ queryKey: [base, kind] });
    onClose();
  };
  const names = ["email", "first_name", "last_name", ...definitions.map(({ name }) => `fields.${name}`)];
  return (
    <Dialog title={person ? `Edit ${person.email}` : `New ${ONE[kind]}`} onClose={onClose}>
      <Problem error={fields.error} />
      {kind === "contacts" && fields.isPending ? (
        <Loading />
      ) : (
        <Form fields={names} submit={person ? "Save" : `Make the ${ONE[kind]}`} onSubmit={save}>
          {(problemOf) => (
            <>
              <Field
                label="Address"
                name="email"
                type="email"
                required
                maxLength={320}
                defaultValue={person?.email ?? email}
                problem={problemOf("email")}
              />
              <Field
                label="First name"
                name="first_name"
                defaultValue={person?.first_name ?? ""}
                problem={problemOf("first_name")}
              />
              <Field
                label="Last name"
                name="last_name"
                defaultValue={person?.last_name ?? ""}
                problem={problemOf("last_name")}
              />
              {definitions.map((field) => (
                <CustomField
                  key={field.name}
                  field={field}
                  value={person?.fields?.[field.name]}
                  problem={problemOf(`fields.${field.name}`)}
                />
              ))}
            </>
          )}
        </Form>
      )}
    </Dialog>
  );
}

/** A button that opens the form of a person. */
export function PersonButton({ children, ...dialog }: Omit<PersonDialogProps, "onClose"> & { children: ReactNode }) {
  const [isOpen, setOpen] = useState(false);
  return (
    <>
      <button type="button" className={dialog.person ? undefined : "primary"} onClick={() => setOpen(true)}>
        {children}
      </button>
      {isOpen && <PersonDialog {...dialog} onClose={() => setOpen(false)} />}
    </>
  );
}

export function DeletePerson({ kind, person, title }: { kind: PersonKind; person: Person; title: string }) {
  const { client, base } = useWorkspace();
  const queries = useQueryClient();
  return (
    <Remove
      title={title}
      act={(context) =>
        kind === "contacts"
          ? client.api.contacts.remove.mutate({ params: { contactId: person.id } }, { context: { ...context } })
          : client.api.subscribers.remove.mutate({ params: { subscriberId: person.id } }, { context: { ...context } })
      }
      onDone={() => queries.invalidateQueries({ queryKey: [base, kind] })}
    >
      <p>
        {person.email}:{" "}
        {kind === "contacts"
          ? "the contact goes with its custom fields. A subscriber with the same address stays, and so does a stop on mail to it."
          : "the subscriber goes with all subscriptions. A contact with the same address stays, and so does a stop on mail to it. The lists remember opt-outs."}
      </p>
    </Remove>
  );
}

/** Records whose addresses begin with a text, as a table; 25 at most. */
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
  if (query.isPending) return <Loading />;
  if (query.error) return <Problem error={query.error} />;
  if (query.data.length === 0) return <Empty>No address begins with “{text}”. Search for fewer letters.</Empty>;
  return (
    <>
      <Table caption={caption} rows={query.data} columns={columns} keyOf={({ id }) => id} />
      {query.data.length === 25 && <p className="muted">These are the first 25. Write more of the address.</p>}
    </>
  );
}

/** The subscribers, or the contacts, of the team. */
export function People({ kind, empty }: { kind: PersonKind; empty: ReactNode }) {
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
    ...(mayWrite
      ? [
          {
            name: "Actions",
            cell: (person: Person) => (
              <div className="actions">
                <PersonButton kind={kind} person={person}>
                  Edit
                </PersonButton>
                <DeletePerson kind={kind} person={person} title="Delete" />
              </div>
            ),
          },
        ]
      : []),
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
            <PersonButton kind={kind}>New {ONE[kind]}</PersonButton>
          </>
        )}
      </PageHead>
      <FilterBar>
        <SearchFilter name="q" label="Address begins with" />
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
          empty={status ? <p>No contact has this status.</p> : empty}
        />
      )}
    </>
  );
}

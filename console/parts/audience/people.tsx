import { Link } from "@tanstack/react-router";
import { useState } from "react";
import { type Client, type DataOf, HttpRefusal, refusalOf } from "../../api.ts";
import { useData, useWorkspace } from "../../session.tsx";
import { Act } from "../act.tsx";
import type { Values } from "../form.tsx";
import { Remove } from "../remove.tsx";

export type Subscriber = DataOf<Client["api"]["subscribers"]["retrieve"]["query"]>;
export type Contact = DataOf<Client["api"]["contacts"]["retrieve"]["query"]>;
export type FieldDefinition = DataOf<Client["api"]["contacts"]["listFields"]["query"]>[number];
export type PersonKind = "subscribers" | "contacts";
export type Person = Omit<Subscriber, "object" | "subscriptions"> & Partial<Pick<Contact, "fields" | "email_status">>;

export type ListRecord = DataOf<Client["api"]["lists"]["retrieve"]["query"]>;

export const SUBSCRIPTION_STATUSES = {
  CONFIRMED: ["subscribed", "good"],
  PENDING: ["awaiting confirmation", "warn"],
  UNSUBSCRIBED: ["unsubscribed", "muted"],
} as const;

/** The names of records by their ids, for choices. */
export const namesOf = (records: readonly { id: string; name: string }[]): Readonly<Record<string, string>> =>
  Object.fromEntries(records.map(({ id, name }) => [id, name]));

/** All lists of the team, by their names. */
export const useLists = () => useData(["lists", "all"], ({ app }) => app.audience.allLists.query({}));

const ONE = { subscribers: "subscriber", contacts: "contact" } as const;

export const EMAIL_STATUSES = {
  ACTIVE: ["active", "good"],
  INVALID: ["bounced", "wrong"],
} as const;
export const nameOf = ({ first_name, last_name }: Pick<Person, "first_name" | "last_name">) =>
  [first_name, last_name].filter(Boolean).join(" ");

export function PersonLink({ email }: { email: string }) {
  const { base } = useWorkspace();
  return <Link to={`${base}/people/${encodeURIComponent(email)}`}>{email}</Link>;
}

interface AddToListProps {
  /** Of subscribers. */
  ids: readonly string[];
  lists: readonly { id: string; name: string }[];
  onDone?: () => void;
}

const ASKED = "On a list with double opt-in an email asks each person to confirm: add only people who agreed to it.";

/** A button that adds subscribers to one of some lists. */
export function AddToList({ ids, lists, onDone }: AddToListProps) {
  const { addMembers } = useWorkspace().client.api.lists;
  const choices = namesOf(lists);
  const add = async ({ listId = "" }: Values) => {
    const body = { subscriber_ids: [...ids] };
    const { added, already_subscribed, opted_out } = (await addMembers.mutate({ params: { listId }, body })).data;
    onDone?.();
    const outcomes = [
      ["Added", added],
      ["On the list already", already_subscribed],
      ["Unsubscribed, and not added", opted_out],
    ] as const;
    return outcomes.flatMap(([words, { length }]) => (length > 0 ? `${words}: ${length}` : [])).join(". ");
  };
  return (
    <Act
      title="Add to a list"
      submit="Add"
      note={ASKED}
      isDisabled={ids.length === 0}
      inputs={[["listId", "List", { required: true, choices }]]}
      act={add}
    />
  );
}

/** Inputs of a person's address and names. */
export const PERSON_INPUTS = [
  ["email", "Address", { type: "email", required: true, maxLength: 320 }],
  ["first_name", "First name"],
  ["last_name", "Last name"],
] as const;

/** The custom fields of the team's contacts. */
export const useFields = () => useData(["fields"], ({ api }) => api.contacts.listFields.query({}));

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

const KINDS = {
  subscribers: "Subscriber, who gets newsletters of lists",
  contacts: "Contact, whom segments select for campaigns",
} as const;

interface PersonButtonProps {
  /** Its dialog asks for it unless given. */
  kind?: PersonKind;
  /** The one to change; a new one unless given. */
  person?: Person | undefined;
  /** Of the same person, who is a contact: it is changed, too. */
  subscriber?: Subscriber | undefined;
  /** Address of a new one. */
  email?: string;
}

/** The procedures of subscribers or contacts, and the parameters that name one. */
const callsOf = ({ api }: Client, kind: PersonKind, id = "") => ({
  calls: kind === "contacts" ? api.contacts : api.subscribers,
  params: { [`${ONE[kind]}Id`]: id } as { subscriberId: string; contactId: string },
});

/** A button that makes or changes a subscriber or a contact. */
export function PersonButton({ kind: given, person, subscriber, email }: PersonButtonProps) {
  const [chosen, choose] = useState("subscribers");
  const kind = given ?? (chosen as PersonKind);
  const { client } = useWorkspace();
  const { calls, params } = callsOf(client, kind, person?.id);
  const fields = useFields();
  const definitions = kind === "contacts" ? fields : [];
  const save = async ({ email: address = "", first_name, last_name, ...values }: Values) => {
    const names = { email: address, first_name: first_name || null, last_name: last_name || null };
    const all = definitions.map((field) => [field.name, heldBy(field, values)] as const);
    const known = Object.fromEntries(all.filter(([, value]) => person || value !== null));
    const body = { ...names, ...(kind === "contacts" && { fields: known }) };
    await (person ? calls.update.mutate({ params, body }) : calls.create.mutate({ body }));
    if (!subscriber) return;
    const both = { params: { subscriberId: subscriber.id }, body: names };
    await client.api.subscribers.update.mutate(both).catch((error) => {
      const { message, requestId, status } = refusalOf(error);
      throw new HttpRefusal({
        message: `The contact was saved, but the subscriber was not: ${message}`,
        requestId,
        status,
      });
    });
  };
  const named = subscriber && nameOf(subscriber) ? subscriber : {};
  const held = Object.entries(person?.fields ?? {}).map(([name, value]) => [`fields.${name}`, value]);
  return (
    <Act
      {...(person
        ? { title: `Edit ${person.email}`, short: "Edit", submit: "Save" }
        : given
          ? { title: `New ${ONE[kind]}`, submit: `Create ${ONE[kind]}` }
          : { title: "Add a person", submit: "Add", kind: "primary" })}
      inputs={[
        ...(given ? [] : [["kind", "Add as", { choices: KINDS, onChange: choose }] as const]),
        ...PERSON_INPUTS,
        ...definitions.map(inputOf),
      ]}
      values={{ kind, email, ...person, ...named, ...Object.fromEntries(held) }}
      act={save}
    />
  );
}

export function DeletePerson({ kind, person, title }: { kind: PersonKind; person: Person; title: string }) {
  const { client } = useWorkspace();
  const { calls, params } = callsOf(client, kind, person.id);
  const goes =
    kind === "contacts"
      ? "the contact and its custom fields are deleted. A subscriber with the same address stays, and a suppressed address stays suppressed."
      : "the subscriber and all subscriptions are deleted. A contact with the same address stays, and a suppressed address stays suppressed. Lists remember who unsubscribed.";
  return (
    <Remove title={title} act={(options) => calls.remove.mutate({ params }, options)}>
      {person.email}: {goes}
    </Remove>
  );
}

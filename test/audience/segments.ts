import type { SubscriptionStatus } from "../../db/entities/audience.ts";
import type { EmailStatus, FieldValues } from "../../db/entities/contact.ts";
import type { EngagementKind } from "../../db/entities/engagement.ts";
import { type EntityManager, kysely, type Tenant } from "../../db/orm.ts";
import { newId } from "../../domain/ids.ts";
import { recordSend } from "../support/factories.ts";

/** A contact with the facts that a segment's conditions may ask for. Instants are ISO 8601. */
export interface StoredPerson {
  id: string;
  email: string;
  first_name: string | null;
  last_name: string | null;
  fields: Partial<FieldValues>;
  email_status: EmailStatus;
  created_at: string;
  updated_at: string;
  /** The status per list of a subscriber with the same address. */
  lists: Partial<Record<string, SubscriptionStatus>>;
  events: { event: "received" | EngagementKind; resource: string; at: string }[];
}

/** Leaves out properties without a value. */
const present = <T>(values: Partial<Record<string, T>>): Record<string, T> =>
  Object.fromEntries(Object.entries(values).flatMap(([key, value]) => (value === undefined ? [] : [[key, value]])));

/** Past the API. Each resource has one send; a mail to a person who did not receive it was rejected. */
export async function storePeople(em: EntityManager, tenant: Tenant, people: readonly StoredPerson[]): Promise<void> {
  const db = kysely(em);
  const owner = { team_id: tenant.teamId, environment: tenant.environment };
  const contacts = people.map(({ lists: _lists, events: _events, fields, ...columns }) => ({
    ...columns,
    ...owner,
    fields: present(fields),
  }));
  await db.insertInto("contacts").values(contacts).execute();
  const subscribers = people.map(({ email }) => ({ id: newId("subscriber"), ...owner, email }));
  await db.insertInto("subscribers").values(subscribers).execute();
  const memberships = people.flatMap(({ lists }, i) =>
    Object.entries(present(lists)).map(([list_id, status]) => ({
      list_id,
      subscriber_id: subscribers[i]?.id ?? "",
      ...owner,
      status,
    })),
  );
  if (memberships.length > 0) await db.insertInto("subscriptions").values(memberships).execute();
  const resources = new Set(people.flatMap(({ events }) => events.map(({ resource }) => resource)));
  for (const resource of resources) await storeMails(em, tenant, resource, people);
}

async function storeMails(
  em: EntityManager,
  tenant: Tenant,
  resource: string,
  people: readonly StoredPerson[],
): Promise<void> {
  const db = kysely(em);
  const sendId = await recordSend(em, tenant, resource, people.length);
  const eventsOf = (person: StoredPerson) => person.events.filter((event) => event.resource === resource);
  const recipients = people.map((person, seq) => {
    const received = eventsOf(person).find(({ event }) => event === "received");
    const row = { send_id: sendId, seq, member_id: person.id, email: person.email };
    return received
      ? { ...row, state: "SENT" as const, updated_at: received.at }
      : { ...row, state: "REJECTED" as const, updated_at: new Date() };
  });
  await db.insertInto("send_recipients").values(recipients).execute();
  const engagements = people.flatMap((person, seq) =>
    eventsOf(person).flatMap(({ event, at: last_at }) =>
      event === "received"
        ? []
        : [
            {
              send_id: sendId,
              seq,
              kind: event,
              team_id: tenant.teamId,
              environment: tenant.environment,
              resource_id: resource,
              email: person.email,
              count: 1,
              first_at: "2020-01-01T00:00:00Z",
              last_at,
            },
          ],
    ),
  );
  if (engagements.length > 0) await db.insertInto("engagements").values(engagements).execute();
}

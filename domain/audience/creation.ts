import { type RawBuilder, sql } from "kysely";
import { JsonText } from "../../db/json.ts";
import type { EntityManager, Tenant } from "../../db/orm.ts";
import { defineStatement, type NamedValues } from "../../db/prepared.ts";
import { isConflict, transaction } from "../../db/transaction.ts";
import type { StoredAddress } from "../address.ts";
import { emitCreated } from "../webhooks/emit.ts";
import { notifyRelay, notifyRelayAfterCommit } from "../webhooks/notify-relay.ts";
import type { EventObjects } from "../webhooks/objects.ts";
import {
  type CountedSlots,
  countedSlots,
  ensureCounted,
  hasNoRoom,
  type TakenSlots,
  takingSlots,
} from "./contact-slots.ts";
import type { PersonFields } from "./people.ts";

/** A record that was just made, and the contact slots that it takes. */
export interface Created<T> extends TakenSlots {
  id: string;
  /** As the API and its event show it. */
  record: JsonText<T>;
}

/** The columns of the record of a person, and the hash that is kept of an address once its person was erased. */
export type PersonColumns = Pick<StoredAddress, keyof StoredAddress> &
  Omit<PersonFields, "email"> & { id: string; addressHash: string };

type CreatedEvent = "subscriber.created" | "contact.created";

/** The row of the statement: none where the address is taken or erased. */
interface CreatedRow extends CountedSlots {
  record: string;
  emitted: boolean;
}

/** How records of a kind are made. */
interface Creation<Values extends NamedValues, Name extends CreatedEvent> {
  event: Name;
  /** See domain/webhooks/records.ts. */
  record: (row: string) => RawBuilder<EventObjects[Name]>;
  /** The insert of one row, which does nothing where the address is taken or erased, up to its `returning`. Called with placeholders. */
  insert: (tenant: Tenant, values: Values) => RawBuilder<unknown>;
}

/**
 * Declares how the records of a kind are made: with the slot of their address and their event, in one statement, which is
 * compiled once, because these are the most frequent writes.
 */
export function defineCreation<Values extends NamedValues & { id: string }, Name extends CreatedEvent>({
  event,
  record,
  insert,
}: Creation<Values, Name>) {
  const statementOf = (orFail: boolean) =>
    defineStatement(
      (_em, given: Values & Tenant) => sql<CreatedRow>`
      with written as (${insert(given, given)} returning *),
      made as materialized (select ${record("written")} as object from written),
      ${takingSlots(given, sql`select email from written`, { orFail })},
      ${emitCreated(given, event)}
      select object as record, ${countedSlots}, exists (select from emitted) as emitted from made`,
    );
  const insideStatement = statementOf(false);
  const aloneStatement = statementOf(true);

  /** Makes a record in the transaction that `em` is in. */
  async function createInside(em: EntityManager, tenant: Tenant, values: Values): Promise<CreatedRow | undefined> {
    const [made] = (await insideStatement(em, { ...values, ...tenant })).rows;
    if (!made) return undefined;
    await ensureCounted(em, tenant, made);
    if (made.emitted) notifyRelayAfterCommit(em);
    return made;
  }

  /** Makes a record by one statement, which commits by itself; where it cannot be the only one, in a transaction. */
  async function createAlone(em: EntityManager, tenant: Tenant, values: Values): Promise<CreatedRow | undefined> {
    try {
      const [made] = (await aloneStatement(em, { ...values, ...tenant })).rows;
      if (made?.emitted) notifyRelay(em);
      return made;
    } catch (error) {
      if (!hasNoRoom(error) && !isConflict(error)) throw error;
      return transaction(em, (inside) => createInside(inside, tenant, values));
    }
  }

  /**
   * Makes a record. Outside of a transaction it is committed then.
   * @returns undefined where another record of the kind has the address, or it was erased
   * @throws {ApiError} `quota_exceeded` when the plan allows no further address
   */
  return async (
    em: EntityManager,
    tenant: Tenant,
    values: Values,
  ): Promise<Created<EventObjects[Name]> | undefined> => {
    const made = await (em.isInTransaction() ? createInside : createAlone)(em, tenant, values);
    return made && { id: values.id, record: new JsonText(made.record), slots: made.slots };
  };
}

import { type RawBuilder, sql } from "kysely";
import { JsonText } from "../../db/json.ts";
import type { EntityManager, Tenant } from "../../db/orm.ts";
import { defineStatement } from "../../db/statements.ts";
import { transaction } from "../../db/transaction.ts";
import type { StoredAddress } from "../address.ts";
import { emitCreated } from "../webhooks/emit.ts";
import { notifyRelayAfterCommit } from "../webhooks/notify.ts";
import type { EventObjects } from "../webhooks/objects.ts";
import { slotsRefusal, type TakenSlots, takingSlots } from "./contact-slots.ts";
import type { PersonFields } from "./people.ts";

/** A record that was just made, and the contact slots that it takes. */
export interface Created<T> extends TakenSlots {
  id: string;
  /** As the API and its event show it. */
  record: JsonText<T>;
}

/** The columns of a person's record, and the hash by which an erased address is found. */
export type PersonColumns = Pick<StoredAddress, keyof StoredAddress> &
  Omit<PersonFields, "email"> & { id: string; addressHash: string };

interface CreatedRow extends TakenSlots {
  record: string;
  emitted: boolean;
}

/** The parts of the statement that makes a record of one kind. */
interface Creation<Name extends "subscriber.created" | "contact.created"> {
  event: Name;
  /** See domain/webhooks/records.ts. */
  record: (row: string) => RawBuilder<EventObjects[Name]>;
  /** The insert of the row of the CTE `given`, without `returning`; none where the address is taken or erased. */
  insert: (tenant: Tenant) => RawBuilder<unknown>;
}

/** Declares the statement that makes a record of one kind, takes the contact slot of its address and emits its event. */
export function defineCreation<
  Name extends "subscriber.created" | "contact.created",
  Values extends PersonColumns = PersonColumns,
>({ event, record, insert }: Creation<Name>) {
  const statement = defineStatement((_em, { teamId, environment, ...values }: Pick<Tenant, keyof Tenant> & Values) => {
    const tenant = { teamId, environment };
    const columns = Object.entries(values).map(([name, value]) => sql`${value}::text as ${sql.id(name)}`);
    return sql<CreatedRow>`
      with given as (select ${sql.join(columns)}),
      written as (${insert(tenant)} returning *),
      made as materialized (select email, ${record("written")} as object from written),
      ${takingSlots(tenant, sql`select email from written`)},
      ${emitCreated(tenant, event)}
      select object as record, (select slots from taken) as slots, exists (select from emitted) as emitted from made`;
  });

  /**
   * Makes a record in the transaction of `em`, or in one of its own.
   * @returns undefined when another record of the kind has the address, or the address was erased
   * @throws {ApiError} `quota_exceeded` when the plan allows no further address
   */
  return (em: EntityManager, tenant: Tenant, values: Values): Promise<Created<EventObjects[Name]> | undefined> =>
    transaction(em, async (tx) => {
      const { rows } = await statement(tx, { ...values, ...tenant }).catch((error) => {
        throw slotsRefusal(error) ?? error;
      });
      const [made] = rows;
      if (!made) return undefined;
      if (made.emitted) notifyRelayAfterCommit(tx);
      return { id: values.id, record: new JsonText(made.record), slots: made.slots };
    });
}

import { type RawBuilder, sql } from "kysely";
import { JsonText } from "../../db/json.ts";
import type { EntityManager, Tenant } from "../../db/orm.ts";
import { defineStatement, type NamedValues } from "../../db/statements.ts";
import { transaction } from "../../db/transaction.ts";
import { storedAddress } from "../address.ts";
import { hashAddress, refuseErased } from "../erasure/erased-addresses.ts";
import { newId } from "../ids.ts";
import type { Vault } from "../secrets/crypto.ts";
import { emitCreated } from "../webhooks/emit.ts";
import { notifyRelayAfterCommit } from "../webhooks/notify.ts";
import type { EventObjects } from "../webhooks/objects.ts";
import { slotsRefusal, type TakenSlots, takingSlots } from "./contact-slots.ts";
import { alreadyExists, type PersonFields, type PersonKind } from "./people.ts";

export interface Created<T> extends TakenSlots {
  id: string;
  record: JsonText<T>;
}

interface CreatedRow extends TakenSlots {
  record: string;
  emitted: boolean;
}

type CreatedEvent = "subscriber.created" | "contact.created";

interface Creation<Name extends CreatedEvent> {
  kind: PersonKind;
  event: Name;
  record: (row: string) => RawBuilder<EventObjects[Name]>;
  /** The insert of the row of the CTE `given`, without `returning`; none where the address is taken or erased. */
  insert: (tenant: Tenant) => RawBuilder<unknown>;
  /** What the client can do where the address is taken. */
  remedy?: string;
}

/** Declares the function that makes a record of one kind, takes the contact slot of its address and emits its event. */
export function defineCreation<Name extends CreatedEvent>({ kind, event, record, insert, remedy }: Creation<Name>) {
  const statement = defineStatement(
    (_em, { teamId, environment, ...values }: Pick<Tenant, keyof Tenant> & NamedValues) => {
      const tenant = { teamId, environment };
      const columns = Object.entries(values).map(([name, value]) => sql`${value}::text as ${sql.id(name)}`);
      return sql<CreatedRow>`
      with given as (select ${sql.join(columns)}),
      written as (${insert(tenant)} returning *),
      made as materialized (select email, ${record("written")} as object from written),
      ${takingSlots(tenant, sql`select email from written`)},
      ${emitCreated(tenant, event)}
      select object as record, (select slots from taken) as slots, exists (select from emitted) as emitted from made`;
    },
  );

  /**
   * Makes a record in the transaction of `em`, or in one of its own. @param more columns besides those of a person
   * @throws {ApiError} `resource_already_exists`, `person_erased`, `quota_exceeded`
   */
  return async (
    em: EntityManager,
    vault: Vault,
    tenant: Tenant,
    { email, firstName, lastName }: PersonFields,
    more: NamedValues = {},
  ): Promise<Created<EventObjects[Name]>> => {
    const id = newId(kind);
    const address = storedAddress(email);
    const addressHash = hashAddress(vault, tenant, address.email);
    const made = await transaction(em, async (tx) => {
      const values = { ...more, id, ...address, addressHash, firstName, lastName };
      const { rows } = await statement(tx, { ...values, ...tenant }).catch((error) => {
        throw slotsRefusal(error) ?? error;
      });
      if (rows[0]?.emitted) notifyRelayAfterCommit(tx);
      return rows[0];
    });
    if (made) return { id, record: new JsonText(made.record), slots: made.slots };
    await refuseErased(em, vault, tenant, email);
    throw alreadyExists(kind, remedy);
  };
}

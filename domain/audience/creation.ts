import { setTimeout as delay } from "node:timers/promises";
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
import { notifyRelay, notifyRelayAfterCommit } from "../webhooks/notify.ts";
import type { EventObjects } from "../webhooks/objects.ts";
import { slotsRefusal, type TakenSlots, takingSlots } from "./contact-slots.ts";
import { alreadyExists, type PersonFields, type PersonKind } from "./people.ts";

export interface Created<T> extends TakenSlots {
  id: string;
  record: JsonText<T>;
}

/** Its slots are those of all records of the statement. */
interface CreatedRow extends TakenSlots {
  id: string;
  record: string;
  emitted: boolean;
}

/** A record to be made: the text of each column by its name. */
type Given = NamedValues & { id: string; email: string };

/** A record that the next statement of its tenant makes. */
interface Waiting extends PromiseWithResolvers<CreatedRow | undefined> {
  given: Given;
}

/** Statements of a tenant begin at least this often, also while one waits for a lock. */
const MOST_WAIT_MS = 500;

type CreatedEvent = "subscriber.created" | "contact.created";

interface Creation<Name extends CreatedEvent> {
  kind: PersonKind;
  event: Name;
  record: (row: string) => RawBuilder<EventObjects[Name]>;
  /** The insert of the rows of the CTE `given`, as `g`, without `returning`; none where the address is taken or erased. */
  insert: (tenant: Tenant) => RawBuilder<unknown>;
  /** What the client can do where the address is taken. */
  remedy?: string;
}

/**
 * Declares the function that makes a record of one kind, takes the contact slot of its address and emits its event. Records
 * of a tenant that come while a statement is under way share the next one: most of its cost is the same for any number.
 */
export function defineCreation<Name extends CreatedEvent>({ kind, event, record, insert, remedy }: Creation<Name>) {
  const statement = defineStatement((_em, { teamId, environment, ...columns }: Tenant & NamedValues) => {
    const tenant = { teamId, environment };
    const names = sql.join(Object.keys(columns).map((name) => sql.id(name)));
    const lists = sql.join(Object.values(columns).map((values) => sql`${values}::text[]`));
    return sql<CreatedRow>`
      with given as (select * from unnest(${lists}) g (${names})),
      written as (${insert(tenant)} returning *),
      made as materialized (select id, email, ${record("written")} as object from written),
      ${takingSlots(tenant, sql`select email from written`)},
      ${emitCreated(tenant, event)}
      select id, object as record, (select slots from taken) as slots, exists (select from emitted) as emitted from made`;
  });

  /** In one order of the addresses, so that two statements do not deadlock. */
  async function make(em: EntityManager, tenant: Tenant, records: readonly Given[]): Promise<CreatedRow[]> {
    const sorted = records.toSorted((a, b) => (a.email < b.email ? -1 : 1));
    const names = Object.keys(sorted[0] ?? {});
    const columns = Object.fromEntries(names.map((name) => [name, sorted.map((given) => given[name])]));
    return (await statement(em, { ...columns, ...tenant })).rows;
  }

  const makeOne = (em: EntityManager, tenant: Tenant, given: Given): Promise<CreatedRow | undefined> =>
    transaction(em, async (tx) => {
      const [row] = await make(tx, tenant, [given]).catch((error) => {
        throw slotsRefusal(error) ?? error;
      });
      if (row?.emitted) notifyRelayAfterCommit(tx);
      return row;
    });

  /** Makes all by one statement, or, where that fails, each by itself. */
  async function makeAll(em: EntityManager, tenant: Tenant, all: readonly Waiting[]): Promise<void> {
    try {
      const rows = await make(
        em,
        tenant,
        all.map(({ given }) => given),
      );
      if (rows[0]?.emitted) notifyRelay(em);
      for (const { given, resolve } of all) resolve(rows.find(({ id }) => id === given.id));
    } catch {
      for (const { given, resolve, reject } of all) makeOne(em, tenant, given).then(resolve, reject);
    }
  }

  /** By tenant, those that have come since the latest statement began. */
  const lines = new Map<string, Waiting[]>();

  async function serve(key: string, em: EntityManager, tenant: Tenant): Promise<void> {
    for (let line = lines.get(key); line && line.length > 0; line = lines.get(key)) {
      lines.set(key, []);
      await Promise.race([makeAll(em, tenant, line), delay(MOST_WAIT_MS, undefined, { ref: false })]);
    }
    lines.delete(key);
  }

  function makeTogether(em: EntityManager, tenant: Tenant, given: Given): Promise<CreatedRow | undefined> {
    const key = `${tenant.teamId} ${tenant.environment}`;
    const waiting = { given, ...Promise.withResolvers<CreatedRow | undefined>() };
    const line = lines.get(key);
    if (line) line.push(waiting);
    else {
      lines.set(key, [waiting]);
      void serve(key, em, tenant);
    }
    return waiting.promise;
  }

  /**
   * Makes a record in the transaction of `em`, or else commits it. @param more columns besides those of a person
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
    const given = { ...more, id, ...address, addressHash, firstName, lastName };
    const made = await (em.isInTransaction() ? makeOne : makeTogether)(em, tenant, given);
    if (made) return { id, record: new JsonText(made.record), slots: made.slots };
    await refuseErased(em, vault, tenant, email);
    throw alreadyExists(kind, remedy);
  };
}

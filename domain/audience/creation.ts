import { type RawBuilder, sql } from "kysely";
import { JsonText } from "../../db/json.ts";
import type { EntityManager, Tenant } from "../../db/orm.ts";
import { withSharedClaim } from "../../db/pool.ts";
import { defineStatement, type NamedValues } from "../../db/statements.ts";
import { isConflict, transaction } from "../../db/transaction.ts";
import { isLockTimeout, refusesValues } from "../../db/unreachable.ts";
import { Batches } from "../../lib/batches.ts";
import { type IdempotencyHandle, lockedClaims, rememberingRecords } from "../access/idempotency.ts";
import { storedAddress } from "../address.ts";
import { hashAddress, refuseErased } from "../erasure/erased-addresses.ts";
import { newId } from "../ids.ts";
import type { Vault } from "../secrets/crypto.ts";
import { emitCreated, notifyRelay, notifyRelayAfterCommit } from "../webhooks/emit.ts";
import type { EventObjects } from "../webhooks/objects.ts";
import { slotsRefusal, type TakenSlots, takingSlots } from "./contact-slots.ts";
import { alreadyExists, type PersonFields, type PersonKind, refuseTaken } from "./people.ts";

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

/** A record to be made: the value of each column by its name. */
type Given = NamedValues & { id: string; email: string };

/**
 * How long a statement that makes several records waits for a lock: another transaction may be writing the address of one
 * of them, and the others shall not wait for it.
 */
const MOST_LOCK_MS = 250;

/** Whether a statement for several records failed by one of them, so that each is to be made by itself. */
const isOfOneRecord = (error: unknown): boolean =>
  slotsRefusal(error) !== undefined || isConflict(error) || isLockTimeout(error) || refusesValues(error);

type CreatedEvent = "subscriber.created" | "contact.created";

interface Creation<Name extends CreatedEvent> {
  kind: PersonKind;
  event: Name;
  record: (row: string) => RawBuilder<EventObjects[Name]>;
  /**
   * The insert of the rows of the CTE `given`, as `g`, in the order of their addresses, so that two statements do not
   * deadlock; without `returning`. None where the address is taken or erased.
   */
  insert: (tenant: Tenant) => RawBuilder<unknown>;
  /** What the client can do where the address is taken. */
  remedy?: string;
}

/**
 * Declares the function that makes a record of one kind, takes the contact slot of its address, emits its event and
 * remembers the answer. Records of a tenant that come while a statement is under way share the next one: most of its cost
 * is the same for any number.
 */
export function defineCreation<Name extends CreatedEvent>({ kind, event, record, insert, remedy }: Creation<Name>) {
  const statement = defineStatement((_em, { teamId, environment, lockMs, ...columns }: Tenant & NamedValues) => {
    const tenant = { teamId, environment };
    const names = sql.join(Object.keys(columns).map((name) => sql.id(name)));
    const keyHashes = sql`${columns["keyHash"]}`;
    const lists = sql.join(Object.values(columns).map((values) => sql`${values}::text[]`));
    return sql<CreatedRow>`
      with asked as materialized (
        -- The limit is set before the first row is read.
        select g.* from (
          select set_config('lock_timeout', coalesce(${lockMs}::text, current_setting('lock_timeout')), true) offset 0
        ) limited, unnest(${lists}) g (${names})),
      claimed as materialized (${lockedClaims(tenant, keyHashes)}),
      given as materialized (
        select g.* from asked g left join claimed c on c.key_hash = g."keyHash"
        where g."keyHash" is null or c.attempt = g.attempt::int),
      written as (${insert(tenant)} returning *),
      made as materialized (select id, email, ${record("written")} as object from written),
      ${takingSlots(tenant, sql`select email from written`)},
      ${emitCreated(tenant, event)},
      remembered as (${rememberingRecords(tenant, keyHashes, sql`select "keyHash", object from made join given using (id)`)})
      select id, object as record, (select slots from taken) as slots, exists (select from emitted) as emitted from made`;
  });

  async function make(em: EntityManager, tenant: Tenant, records: readonly Given[]): Promise<CreatedRow[]> {
    const names = Object.keys(records[0] ?? {});
    const columns = Object.fromEntries(names.map((name) => [name, records.map((given) => given[name])]));
    const lockMs = records.length > 1 ? `${MOST_LOCK_MS}ms` : null;
    return (await statement(em, { ...columns, ...tenant, lockMs })).rows;
  }

  const makeOne = (em: EntityManager, tenant: Tenant, given: Given): Promise<CreatedRow | undefined> =>
    transaction(em, async (tx) => {
      const [row] = await make(tx, tenant, [given]).catch((error) => {
        throw slotsRefusal(error) ?? error;
      });
      if (row?.emitted) notifyRelayAfterCommit(tx);
      return row;
    });

  const batches = new Batches<Given, CreatedRow[] | "alone">();

  /** @returns "alone" when each record has to be made by itself; nothing was written then */
  async function makeAll(
    em: EntityManager,
    tenant: Tenant,
    records: readonly Given[],
  ): Promise<CreatedRow[] | "alone"> {
    try {
      const rows = await make(em, tenant, records);
      if (rows[0]?.emitted) notifyRelay(em);
      return rows;
    } catch (error) {
      // After any other the statement may have been committed, and a second one would find the addresses taken.
      if (isOfOneRecord(error)) return "alone";
      throw error;
    }
  }

  async function makeTogether(em: EntityManager, tenant: Tenant, given: Given): Promise<CreatedRow | undefined> {
    const name = `${tenant.teamId} ${tenant.environment}`;
    const { result } = await batches.join(name, given, (records) =>
      withSharedClaim(() => makeAll(em, tenant, records)),
    );
    return result === "alone" ? makeOne(em, tenant, given) : result.find(({ id }) => id === given.id);
  }

  /**
   * Makes a record in the transaction of `em`, or else commits it.
   * @param claim of a request with an Idempotency-Key; nothing is made when it does not hold the key any more
   * @param more columns besides those of a person
   * @throws {ApiError} `resource_already_exists`, `person_erased`, `quota_exceeded`
   */
  return async (
    em: EntityManager,
    vault: Vault,
    tenant: Tenant,
    { email, firstName, lastName }: PersonFields,
    claim: IdempotencyHandle | null = null,
    more: NamedValues = {},
  ): Promise<Created<EventObjects[Name]>> => {
    const id = newId(kind);
    const address = storedAddress(email);
    const addressHash = hashAddress(vault, tenant, address.email);
    const { keyHash = null, attempt = null } = claim ?? {};
    const given = { ...more, keyHash, attempt, id, ...address, addressHash, firstName, lastName };
    const made = await (em.isInTransaction() ? makeOne : makeTogether)(em, tenant, given);
    if (made) return { id, record: new JsonText(made.record), slots: made.slots };
    await refuseErased(em, vault, tenant, email);
    await refuseTaken(em, tenant, kind, address.email, remedy);
    // It was deleted meanwhile.
    throw alreadyExists(kind, remedy);
  };
}

import { type RawBuilder, sql } from "kysely";
import { JsonText } from "../../db/json.ts";
import type { EntityManager, Tenant } from "../../db/orm.ts";
import { defineStatement, type NamedValues } from "../../db/statements.ts";
import { isConflict, transaction } from "../../db/transaction.ts";
import { codeOf, isLockTimeout } from "../../db/unreachable.ts";
import { Batches } from "../access/batches.ts";
import {
  type AnswerWriting,
  type ClaimingAnswer,
  NotClaimedError,
  type RecordAnswer,
  writingClaimed,
  writingHeld,
} from "../access/idempotency.ts";
import type { StoredAddress } from "../address.ts";
import { emitCreated } from "../webhooks/emit.ts";
import { notifyRelay, notifyRelayAfterCommit } from "../webhooks/notify.ts";
import type { EventObjects } from "../webhooks/objects.ts";
import { slotOf, slotsRefusal, type TakenSlots, takingSlots } from "./contact-slots.ts";
import type { PersonFields } from "./people.ts";

export interface Created<T> extends TakenSlots {
  id: string;
  record: JsonText<T>;
}

/** The columns of a person's record, and the hash by which an erased address is found. */
export type PersonColumns = Pick<StoredAddress, keyof StoredAddress> &
  Omit<PersonFields, "email"> & { id: string; addressHash: string };

export const PERSON_COLUMNS = ["id", "email", "emailSpelling", "firstName", "lastName", "addressHash"] as const;

type CreatedEvent = "subscriber.created" | "contact.created";

/** None where the address is taken or erased. */
interface CreatedRow extends TakenSlots {
  id: string;
  record: string;
  emitted: boolean;
}

type Remembered = RecordAnswer | ClaimingAnswer | null;

const isClaiming = (answer: Remembered): answer is ClaimingAnswer => answer !== null && "fingerprint" in answer;

interface Given {
  values: NamedValues & { id: string };
  answer: Remembered;
}

interface Creation<Name extends CreatedEvent> {
  event: Name;
  columns: readonly string[];
  record: (row: string) => RawBuilder<EventObjects[Name]>;
  /** Inserts the rows of the CTE `given`, as `g`, ordered by address; none that is taken or erased, or unless `mayInsert`. */
  insert: (tenant: Tenant, mayInsert: RawBuilder<boolean>) => RawBuilder<unknown>;
}

const MOST_TOGETHER = 100;
/** Another transaction may be writing one of the addresses: the other records do not wait for it longer. */
const MOST_LOCK_MS = 250;
/** SQLSTATEs of an error that a single record can cause: in its values, or with another record. */
const OF_A_RECORD = /^2[23]/;

/** Whether a statement for several records failed by one of them, so that each is to be made by itself. */
const isOfOneRecord = (error: unknown): boolean =>
  slotsRefusal(error) !== undefined ||
  isConflict(error) ||
  isLockTimeout(error) ||
  (error instanceof Error && OF_A_RECORD.test(codeOf(error)));

/**
 * Declares the statement that makes records of one kind, takes their contact slots and emits their events. Records of a
 * tenant that are made at once share one: most of what it costs is the same for any number of rows.
 */
export function defineCreation<Name extends CreatedEvent>({ event, columns, record, insert }: Creation<Name>) {
  const making = (writing?: AnswerWriting) => {
    const given = [...columns, ...(writing?.columns ?? [])];
    const statement = defineStatement((_em, { lockMs, ...lists }: NamedValues & Tenant & { lockMs: string | null }) => {
      const tenant: Tenant = lists;
      const mayInsert = writing
        ? sql<boolean>`exists (select from claimed c where c.key_hash = g."keyHash")`
        : sql<boolean>`true`;
      return sql<CreatedRow>`
        with given as materialized (
          -- The limit is set before the first row is read.
          select g.* from (
            select set_config('lock_timeout', coalesce(${lockMs}::text, current_setting('lock_timeout')), true) offset 0
          ) limited, unnest(${sql.join(given.map((name) => sql`${lists[name]}::text[]`))})
            g (${sql.join(given.map((name) => sql.id(name)))})),
        ${writing ? sql`${writing.claimed(tenant)},` : sql``}
        written as (${insert(tenant, mayInsert)} returning *),
        made as materialized (select id, email, ${record("written")} as object from written),
        ${takingSlots(tenant, sql`select email from written`)},
        ${emitCreated(tenant, event)}${writing ? sql`, ${writing.answered(tenant)}` : sql``}
        select made.id, made.object as record, ${slotOf("made")}, exists (select from emitted) as emitted from made`;
    });
    return async (em: EntityManager, tenant: Tenant, records: readonly Given[], lockMs?: number) => {
      const rows = records.map(({ values, answer }): NamedValues => ({ ...values, ...answer }));
      const lists = Object.fromEntries(given.map((name) => [name, rows.map((row) => row[name])]));
      const limit = lockMs === undefined ? null : `${lockMs}ms`;
      const { rows: made } = await statement(em, { ...lists, ...tenant, lockMs: limit });
      if (made[0]?.emitted) (em.isInTransaction() ? notifyRelayAfterCommit : notifyRelay)(em);
      return made;
    };
  };
  const statements = { plain: making(), held: making(writingHeld), claiming: making(writingClaimed) };
  const statementFor = (answer: Remembered) =>
    statements[answer === null ? "plain" : isClaiming(answer) ? "claiming" : "held"];

  async function createInside(em: EntityManager, tenant: Tenant, given: Given): Promise<CreatedRow | undefined> {
    const [made] = await statementFor(given.answer)(em, tenant, [given]);
    return made;
  }

  const createAlone = (em: EntityManager, tenant: Tenant, given: Given): Promise<CreatedRow | undefined> =>
    transaction(em, (tx) => createInside(tx, tenant, given));

  /** By the name of their batch. */
  const gathering = new Map<string, Given[]>();
  const batches = new Batches<ReadonlyMap<string, CreatedRow> | "alone">();

  /** @returns "alone" when each record has to be made by itself; nothing was written then */
  async function insertTogether(
    em: EntityManager,
    tenant: Tenant,
    gathered: readonly Given[],
  ): Promise<ReadonlyMap<string, CreatedRow> | "alone"> {
    const isOne = gathered.length === 1;
    try {
      const statement = statementFor(gathered[0]?.answer ?? null);
      const rows = await statement(em, tenant, gathered, isOne ? undefined : MOST_LOCK_MS);
      return new Map(rows.map((row) => [row.id, row]));
    } catch (error) {
      if (isOne ? isConflict(error) : isOfOneRecord(error)) return "alone";
      throw error;
    }
  }

  async function createTogether(em: EntityManager, tenant: Tenant, given: Given): Promise<CreatedRow | undefined> {
    const name = `${tenant.teamId} ${tenant.environment} ${isClaiming(given.answer)}`;
    const gathered = gathering.get(name) ?? [];
    if (gathered.length >= MOST_TOGETHER) return createAlone(em, tenant, given);
    gathering.set(name, gathered);
    gathered.push(given);
    const { result } = await batches.join(name, () => {
      gathering.delete(name);
      return insertTogether(em, tenant, gathered);
    });
    return result === "alone" ? createAlone(em, tenant, given) : result.get(given.values.id);
  }

  /**
   * Makes a record, and commits it unless `em` is in a transaction. @param answer is remembered with the record
   * @returns undefined when the address is taken or erased, or the attempt no longer holds its Idempotency-Key
   * @throws {ApiError} `quota_exceeded` @throws {Error} see `isNotClaimed`
   */
  return async (
    em: EntityManager,
    tenant: Tenant,
    values: Given["values"],
    answer: Remembered,
  ): Promise<Created<EventObjects[Name]> | undefined> => {
    // An attempt that holds its key has been committed once already: it is rare.
    const isRare = answer !== null && !isClaiming(answer);
    const create = em.isInTransaction() ? createInside : isRare ? createAlone : createTogether;
    const made = await create(em, tenant, { values, answer }).catch((error) => {
      throw slotsRefusal(error) ?? error;
    });
    if (!made && isClaiming(answer)) throw new NotClaimedError();
    return made && { id: values.id, record: new JsonText(made.record), slots: made.slots };
  };
}

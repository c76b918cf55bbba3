import { type RawBuilder, sql } from "kysely";
import { JsonText } from "../../db/json.ts";
import type { EntityManager, Tenant } from "../../db/orm.ts";
import { defineStatement, type NamedValues } from "../../db/prepared.ts";
import { isConflict, transaction } from "../../db/transaction.ts";
import { Batches } from "../access/batches.ts";
import type { StoredAddress } from "../address.ts";
import {
  answerClaimed,
  answerWritten,
  type ClaimingAnswer,
  claimFree,
  claimHeld,
  NotClaimedError,
  type RecordAnswer,
} from "../idempotency.ts";
import { emitCreated } from "../webhooks/emit.ts";
import { notifyRelay, notifyRelayAfterCommit } from "../webhooks/notify-relay.ts";
import type { EventObjects } from "../webhooks/objects.ts";
import { type CountedSlots, ensureCounted, hasNoRoom, slotOf, type TakenSlots, takingSlots } from "./contact-slots.ts";
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

export const PERSON_COLUMNS = ["id", "email", "emailSpelling", "firstName", "lastName", "addressHash"] as const;

type CreatedEvent = "subscriber.created" | "contact.created";

/** The row that a statement returns for each record. It returns none where the address is taken or erased. */
interface CreatedRow extends CountedSlots {
  id: string;
  record: string;
  emitted: boolean;
}

/** The answer that is remembered with a record; null for none. */
type Remembered = RecordAnswer | ClaimingAnswer | null;

const isClaiming = (answer: RecordAnswer | ClaimingAnswer): answer is ClaimingAnswer => "fingerprint" in answer;

/** The values of a record to be made: texts, which the insert casts. */
type Values = NamedValues & { id: string };

/** The parts of the statement that makes records of one kind. */
interface Creation<Name extends CreatedEvent> {
  event: Name;
  columns: readonly string[];
  /** See domain/webhooks/records.ts. */
  record: (row: string) => RawBuilder<EventObjects[Name]>;
  /**
   * The insert of the rows of `given`, which have the columns, in the order of their addresses; without `returning`. It
   * inserts no row where the address is taken or erased, or `mayInsert` is false.
   */
  insert: (tenant: Tenant, given: RawBuilder<unknown>, mayInsert: RawBuilder<boolean>) => RawBuilder<unknown>;
}

/** Records that one statement makes at most. */
const MOST_TOGETHER = 100;
/**
 * How long a statement that makes several records waits for a lock: another transaction may be writing the address of one
 * of them, and the others shall not wait for it.
 */
const MOST_LOCK_MS = 250;
/** SQLSTATE of a lock that was not free in time. */
const LOCK_NOT_AVAILABLE = "55P03";

const isLocked = (error: unknown): boolean =>
  error instanceof Error && "code" in error && error.code === LOCK_NOT_AVAILABLE;

/**
 * Declares the statements that make records of one kind, take the contact slots of their addresses and emit their events.
 * They are compiled once, because these are the most frequent writes. Records of a tenant that are made at once share a
 * statement: most of what one costs is the same for any number of rows.
 */
export function defineCreation<Name extends CreatedEvent>({ event, columns, record, insert }: Creation<Name>) {
  const making = (tenant: Tenant, given: RawBuilder<unknown>, mayInsert: RawBuilder<boolean>, orFail: boolean) => sql`
      written as (${insert(tenant, given, mayInsert)} returning *),
      made as materialized (select id, email, ${record("written")} as object from written),
      ${takingSlots(tenant, sql`select email from written`, { orFail })},
      ${emitCreated(tenant, event)}`;
  const result = sql`
    made.id, made.object as record, ${slotOf("made")}, exists (select from emitted) as emitted from made`;
  const one = (values: Values): RawBuilder<unknown> =>
    sql`(select ${sql.join(columns.map((column) => sql`${values[column]}::text as ${sql.id(column)}`))})`;

  const statementOf = (orFail: boolean) => {
    const plain = defineStatement(
      (_em, given: Values & Tenant) => sql<CreatedRow>`
      with ${making(given, one(given), sql<boolean>`true`, orFail)} select ${result}`,
    );
    const answeringBy = <Answer extends RecordAnswer>(
      claim: (answer: Answer) => RawBuilder<unknown>,
      answerOf: (answer: Answer) => RawBuilder<unknown>,
    ) =>
      defineStatement(
        (_em, given: Values & Tenant & Answer) => sql<CreatedRow>`
        with ${claim(given)}, ${making(given, one(given), sql<boolean>`exists (select from claimed)`, orFail)},
          ${answerOf(given)}
        select ${result}`,
      );
    const answering = answeringBy(claimHeld, answerWritten);
    const claiming = answeringBy(claimFree, answerClaimed);
    return (em: EntityManager, values: Values & Tenant, answer: Remembered) => {
      if (!answer) return plain(em, values);
      return isClaiming(answer) ? claiming(em, { ...values, ...answer }) : answering(em, { ...values, ...answer });
    };
  };
  // In a transaction the slots can be counted by a further statement; a statement alone must fail and be repeated in one.
  const statementInside = statementOf(false);
  const statementAlone = statementOf(true);

  const statementTogether = defineStatement((_em, given: NamedValues & Tenant & { lockMs: string }) => {
    const lists = sql.join(columns.map((column) => sql`${given[column]}::text[]`));
    // The limit is set before the first row is read.
    const rows = sql`(
      select g.* from (select set_config('lock_timeout', ${given.lockMs}, true) offset 0) limited,
        unnest(${lists}) g (${sql.join(columns.map((column) => sql.id(column)))}))`;
    return sql<CreatedRow>`with ${making(given, rows, sql<boolean>`true`, true)} select ${result}`;
  });

  /** Makes a record in the transaction that `em` is in. */
  async function createInside(
    em: EntityManager,
    tenant: Tenant,
    values: Values,
    answer: Remembered,
  ): Promise<CreatedRow | undefined> {
    const [made] = (await statementInside(em, { ...values, ...tenant }, answer)).rows;
    if (!made) return undefined;
    await ensureCounted(em, tenant, made);
    if (made.emitted) notifyRelayAfterCommit(em);
    return made;
  }

  /**
   * Makes a record by one statement, which commits by itself. Falls back to a transaction when the slots must be
   * counted in all parts, or on a conflict.
   */
  async function createAlone(
    em: EntityManager,
    tenant: Tenant,
    values: Values,
    answer: Remembered,
  ): Promise<CreatedRow | undefined> {
    try {
      const [made] = (await statementAlone(em, { ...values, ...tenant }, answer)).rows;
      if (made?.emitted) notifyRelay(em);
      return made;
    } catch (error) {
      if (!hasNoRoom(error) && !isConflict(error)) throw error;
      return transaction(em, (inside) => createInside(inside, tenant, values, answer));
    }
  }

  /** Records to be made by the next statement of a tenant, by its name. */
  const gathering = new Map<string, Values[]>();
  const batches = new Batches<ReadonlyMap<string, CreatedRow> | "alone">();

  /** @returns "alone" when each of the records has to be made by itself; nothing was written then */
  async function insertTogether(
    em: EntityManager,
    tenant: Tenant,
    gathered: readonly Values[],
  ): Promise<ReadonlyMap<string, CreatedRow> | "alone"> {
    if (gathered.length === 1) return "alone";
    const lists = Object.fromEntries(columns.map((column) => [column, gathered.map((values) => values[column])]));
    try {
      const { rows } = await statementTogether(em, { ...lists, ...tenant, lockMs: `${MOST_LOCK_MS}ms` });
      if (rows[0]?.emitted) notifyRelay(em);
      return new Map(rows.map((row) => [row.id, row]));
    } catch (error) {
      if (hasNoRoom(error) || isConflict(error) || isLocked(error)) return "alone";
      throw error;
    }
  }

  /** Makes a record that remembers no answer, by one statement with those that the tenant makes at the same time. */
  async function createTogether(em: EntityManager, tenant: Tenant, values: Values): Promise<CreatedRow | undefined> {
    const name = `${tenant.teamId} ${tenant.environment}`;
    const gathered = gathering.get(name) ?? [];
    if (gathered.length >= MOST_TOGETHER) return createAlone(em, tenant, values, null);
    gathering.set(name, gathered);
    gathered.push(values);
    const { result } = await batches.join(name, () => {
      gathering.delete(name);
      return insertTogether(em, tenant, gathered);
    });
    return result === "alone" ? createAlone(em, tenant, values, null) : result.get(values.id);
  }

  /**
   * Makes a record, and commits it unless `em` is in a transaction.
   * @param answer is remembered with the record
   * @returns undefined when another record of the kind has the address, or the address was erased, or the attempt no longer
   *   holds its Idempotency-Key
   * @throws {ApiError} `quota_exceeded` when the plan allows no further address
   * @throws {Error} see `isNotClaimed`, for an answer whose key is claimed with the record
   */
  return async (
    em: EntityManager,
    tenant: Tenant,
    values: Values,
    answer: Remembered,
  ): Promise<Created<EventObjects[Name]> | undefined> => {
    const make = () => (answer ? createAlone(em, tenant, values, answer) : createTogether(em, tenant, values));
    const made = await (em.isInTransaction() ? createInside(em, tenant, values, answer) : make());
    if (!made && answer && isClaiming(answer)) throw new NotClaimedError();
    return made && { id: values.id, record: new JsonText(made.record), slots: made.slots };
  };
}

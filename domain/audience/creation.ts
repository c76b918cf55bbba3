import { type RawBuilder, sql } from "kysely";
import { JsonText } from "../../db/json.ts";
import type { EntityManager, Tenant } from "../../db/orm.ts";
import { defineStatement, type NamedValues } from "../../db/prepared.ts";
import { isConflict, transaction } from "../../db/transaction.ts";
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

/** The columns of a person's record, and the hash by which an erased address is found. */
export type PersonColumns = Pick<StoredAddress, keyof StoredAddress> &
  Omit<PersonFields, "email"> & { id: string; addressHash: string };

type CreatedEvent = "subscriber.created" | "contact.created";

/** The row that the statement returns. It returns none where the address is taken or erased. */
interface CreatedRow extends CountedSlots {
  record: string;
  emitted: boolean;
}

/** The answer that is remembered with a record; null for none. */
type Remembered = RecordAnswer | ClaimingAnswer | null;

const isClaiming = (answer: RecordAnswer | ClaimingAnswer): answer is ClaimingAnswer => "fingerprint" in answer;

/** The parts of the statement that makes the records of one kind. */
interface Creation<Values extends NamedValues, Name extends CreatedEvent> {
  event: Name;
  /** See domain/webhooks/records.ts. */
  record: (row: string) => RawBuilder<EventObjects[Name]>;
  /**
   * The insert of one row, without `returning`; it inserts no row where the address is taken or erased, or `mayInsert` is
   * false. Called with placeholders.
   */
  insert: (tenant: Tenant, values: Values, mayInsert: RawBuilder<boolean>) => RawBuilder<unknown>;
}

/**
 * Declares the statement that makes a record of one kind, takes the contact slot of its address and emits its event. It
 * is compiled once, because these are the most frequent writes.
 */
export function defineCreation<Values extends NamedValues & { id: string }, Name extends CreatedEvent>({
  event,
  record,
  insert,
}: Creation<Values, Name>) {
  const making = (given: Values & Tenant, mayInsert: RawBuilder<boolean>, orFail: boolean) => sql`
      written as (${insert(given, given, mayInsert)} returning *),
      made as materialized (select ${record("written")} as object from written),
      ${takingSlots(given, sql`select email from written`, { orFail })},
      ${emitCreated(given, event)}`;
  const result = sql`object as record, ${countedSlots}, exists (select from emitted) as emitted from made`;

  const statementOf = (orFail: boolean) => {
    const plain = defineStatement(
      (_em, given: Values & Tenant) => sql<CreatedRow>`
      with ${making(given, sql<boolean>`true`, orFail)} select ${result}`,
    );
    const answeringBy = <Answer extends RecordAnswer>(
      claim: (answer: Answer) => RawBuilder<unknown>,
      answerOf: (answer: Answer) => RawBuilder<unknown>,
    ) =>
      defineStatement(
        (_em, given: Values & Tenant & Answer) => sql<CreatedRow>`
        with ${claim(given)}, ${making(given, sql<boolean>`exists (select from claimed)`, orFail)}, ${answerOf(given)}
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
    const made = await (em.isInTransaction() ? createInside : createAlone)(em, tenant, values, answer);
    if (!made && answer && isClaiming(answer)) throw new NotClaimedError();
    return made && { id: values.id, record: new JsonText(made.record), slots: made.slots };
  };
}

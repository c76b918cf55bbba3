import { sql } from "kysely";
import { type EntityManager, forTenant, kysely, ofTenant } from "../../db/orm.ts";
import { counting } from "../access/request-limit.ts";
import { addSubscribers } from "../audience/lists.ts";
import type { PersonFields } from "../audience/people.ts";
import { createSubscriber } from "../audience/subscribers.ts";
import { ApiError } from "../errors.ts";
import type { Vault } from "../secrets/crypto.ts";
import { countForm, type PublicForm } from "./forms.ts";
import type { Proof } from "./proof.ts";

/** Sign-ups in an hour, and of people without scripts among them. */
export const PER_NETWORK = 30;
export const UNSOLVED_PER_NETWORK = 3;
/** Sign-ups in a day, UTC. */
export const PER_FORM = 2_000;
const HOUR = sql`date_bin('1 hour', statement_timestamp(), 'epoch')`;

export interface SignUp extends PersonFields {
  /** The texts that the person was shown, as their page says. */
  textId: string;
  /** They ticked the question about tracking. */
  tracking: boolean;
}

/**
 * Takes a proof and counts a sign-up, in the caller's transaction: one of its own, so that the counts are locked shortly, and the
 * sign-up of an erased person has used its proof up, too. One above a limit leaves its proof, as the refusal undoes the counts.
 * @param network of the client; null where it is not known, and not limited @returns false for a proof that was used before
 * @throws {ApiError} `rate_limit_exceeded`
 */
export async function admitSignUp(
  em: EntityManager,
  vault: Vault,
  formId: string,
  { salt, madeAt, isSolved }: Proof,
  network: string | null,
): Promise<boolean> {
  const isCounted = async (callerId: string, most: number, start = HOUR) => {
    const count = counting(sql`${callerId}::text`, { requests: sql`1`, limit: sql`${most}::int` }, start);
    return (await count.execute(kysely(em))).rows.length > 0;
  };
  if (!(await isCounted(`form-proof/${salt}`, 1, sql`${madeAt}::timestamptz`))) return false;
  const client = network && vault.hash("form", network);
  const isWithin =
    (client === null || (await isCounted(`form/${client}`, PER_NETWORK))) &&
    (client === null || isSolved || (await isCounted(`form-unsolved/${client}`, UNSOLVED_PER_NETWORK))) &&
    (await countForm(em, formId, "sent", PER_FORM));
  if (!isWithin) throw new ApiError("rate_limit_exceeded");
  return true;
}

/**
 * Signs a person up, in the caller's transaction. Every list asks them for a confirmation by mail; a person who has confirmed
 * is asked nothing. Names of a subscriber who exists stay: another person may have typed the address.
 * @throws {ApiError} `person_erased`, `quota_exceeded`: the answer to the person is that of any other sign-up
 */
export async function signUp(
  em: EntityManager,
  vault: Vault,
  { id, teamId, environment, listId, textId: presentId }: PublicForm,
  { textId, tracking, ...person }: SignUp,
): Promise<void> {
  const tenant = { teamId, environment };
  const own = forTenant(em, tenant);
  const shown = await kysely(em)
    .selectFrom("form_texts")
    .select(["id", "tracking"])
    .where(ofTenant(tenant))
    .where("form_id", "=", id)
    .where("id", "in", [textId, presentId])
    .orderBy((row) => row("id", "=", presentId))
    .executeTakeFirstOrThrow();
  const subscriberId = await createSubscriber(own, vault, tenant, person).then(
    ({ id }) => id,
    (error) => {
      const known = error instanceof ApiError && error.code === "resource_already_exists" && error.record?.id;
      if (known) return known;
      throw error;
    },
  );
  const byForm = { textId: shown.id, tracking: shown.tracking === null ? null : tracking };
  await addSubscribers(own, vault, tenant, listId, [subscriberId], byForm);
}

import { LockMode } from "@mikro-orm/postgresql";
import { type RawBuilder, sql } from "kysely";
import { Suppression, type SuppressionReason } from "../../db/entities/audience.ts";
import { type EntityManager, forTenant, kysely, ofTenant, type Tenant } from "../../db/orm.ts";
import { storedAddress } from "../address.ts";
import { hashAddress, isErased, isPlaceholder } from "../erasure/erased-addresses.ts";
import { orNotFound } from "../errors.ts";
import { newId } from "../ids.ts";
import type { Vault } from "../secrets/crypto.ts";
import { emit } from "../webhooks/emit.ts";
import { suppressionRecord } from "../webhooks/records.ts";
import { HARD_BOUNCE, refreshEmailStatus } from "./email-status.ts";
import { endSignUps } from "./opt-outs.ts";

/** SQL: only that a person unsubscribed keeps mail from the address of this suppression, so that the person may lift it. */
export const isUnsubscribe = (suppression: string) =>
  sql`(${sql.ref(`${suppression}.reason`)} = 'UNSUBSCRIBED' and not ${sql.ref(`${suppression}.has_other_reason`)})`;

/** SQL: the end of an insert of suppressions. One of an unsubscribe keeps its reason, and a client sees no change of it. */
export const orNoteReason = sql`on conflict (team_id, environment, email) do update set has_other_reason = true
  where ${isUnsubscribe("suppressions")} and excluded.reason <> 'UNSUBSCRIBED'
  returning *, xmax = 0 as is_new`;

export interface SuppressionOutcome {
  /** Each given address is in one of the two arrays, in the given order. */
  added: string[];
  alreadySuppressed: string[];
  /** Of the second array: they are not mailed, and no row holds them. */
  erased: string[];
}

/**
 * Puts addresses on the team's do-not-mail list; one that is on it keeps its reason, but a person no longer takes back an
 * unsubscribe when there is another reason. UNSUBSCRIBED ends sign-ups that wait for
 * a confirmation, and a hard bounce makes contacts INVALID. MANUAL makes no event: the client adds the address.
 * @param emails valid addresses; one that is repeated, in any spelling, counts once, in its first spelling
 * @param options `vault`: needed where a client names the addresses, so that no erased one is stored
 */
export async function suppress(
  em: EntityManager,
  tenant: Tenant,
  emails: readonly string[],
  reason: SuppressionReason,
  { vault }: { vault?: Vault | undefined } = {},
): Promise<SuppressionOutcome> {
  const distinct = new Map<string, string | null>();
  for (const { email, emailSpelling } of emails.map(storedAddress)) {
    // A report about an erased person has a placeholder as address. A client may give any address.
    if (reason !== "MANUAL" && isPlaceholder(email)) continue;
    if (!distinct.has(email)) distinct.set(email, emailSpelling);
  }
  if (distinct.size === 0) return { added: [], alreadySuppressed: [], erased: [] };
  const addresses = [...distinct.keys()];
  if (reason === "UNSUBSCRIBED") {
    // First: a confirmation at the same moment, which lifts such a suppression, is waited for.
    await endSignUps(
      em,
      tenant,
      sql`s.subscriber_id in (
        select p.id from subscribers p where ${ofTenant(tenant, "p")} and p.email = any(${addresses}))`,
    );
  }
  const hashes = addresses.map((email) => (vault ? hashAddress(vault, tenant, email) : null));
  const { rows } = await sql<{ id: string | null; email: string; erased: boolean }>`
    with given as materialized (
      select g.id, g.email, g.spelling, ${vault ? isErased(tenant, sql.ref("g.hash")) : sql`false`} as erased
      from unnest(${addresses.map(() => newId("suppression"))}::text[], ${addresses}::text[],
        ${[...distinct.values()]}::text[], ${hashes}::text[]) as g (id, email, spelling, hash)
    ), inserted as (
      insert into suppressions (id, team_id, environment, email, email_spelling, reason)
      select id, ${tenant.teamId}, ${tenant.environment}, email, spelling, ${reason} from given where not erased
      -- Every caller inserts in the order of the addresses, so that two overlapping batches do not deadlock.
      order by email collate "C"
      ${orNoteReason}
    )
    select id, email, false as erased from inserted where is_new
    union all select null, email, true from given where erased`.execute(kysely(em));
  const inserted = rows.flatMap(({ id, email }) => (id === null ? [] : [{ id, email }]));
  const erased = new Set(rows.flatMap((row) => (row.erased ? [row.email] : [])));
  const added = new Set(inserted.map((row) => row.email));
  if (reason !== "MANUAL" && inserted.length > 0) {
    const ids = inserted.map((row) => row.id);
    await emit(em, tenant, "suppression.added", suppressionRows(tenant, sql`s.id = any(${ids})`));
  }
  if (reason === HARD_BOUNCE && added.size > 0) await refreshEmailStatus(em, tenant, [...added]);
  const shown = (isShown: (email: string) => boolean) =>
    [...distinct].flatMap(([email, spelling]) => (isShown(email) ? [spelling ?? email] : []));
  return {
    added: shown((email) => added.has(email)),
    alreadySuppressed: shown((email) => !added.has(email)),
    erased: shown((email) => erased.has(email)),
  };
}

const suppressionRows = (tenant: Tenant, condition: RawBuilder<unknown>) => ({
  record: suppressionRecord("s"),
  from: sql`suppressions s where ${ofTenant(tenant, "s")} and ${condition}`,
});

/** Lifts a suppression of any reason. Opt-outs per list and the unsubscribes stay. @throws {ApiError} `not_found` */
export async function liftSuppression(em: EntityManager, tenant: Tenant, suppressionId: string): Promise<void> {
  const lockMode = LockMode.PESSIMISTIC_WRITE;
  const suppression = orNotFound(await em.findOne(Suppression, { id: suppressionId }, { lockMode }));
  await emit(em, tenant, "suppression.removed", suppressionRows(tenant, sql`s.id = ${suppressionId}`));
  await em.remove(suppression).flush();
  if (suppression.reason === HARD_BOUNCE) await refreshEmailStatus(em, tenant, [suppression.email]);
}

/** Lifts suppressions `s` of nothing but an unsubscribe that meet a condition. @returns whether there was one */
export async function liftUnsubscribed(
  em: EntityManager,
  tenant: Tenant,
  condition: RawBuilder<unknown>,
): Promise<boolean> {
  const { rows } = await sql<{ id: string }>`
    select s.id from suppressions s where ${ofTenant(tenant, "s")} and ${isUnsubscribe("s")} and ${condition}
    for update`.execute(kysely(em));
  for (const { id } of rows) await liftSuppression(forTenant(em, tenant), tenant, id);
  return rows.length > 0;
}

import { sql } from "kysely";
import { Member } from "../../db/entities/team.ts";
import { type EntityManager, kysely } from "../../db/orm.ts";
import { transaction } from "../../db/transaction.ts";
import { OPERATOR, recordAct } from "../audit/record.ts";
import { ApiError } from "../errors.ts";
import type { Vault } from "../secrets/crypto.ts";
import { addMember, lockTeam } from "../teams/teams.ts";
import { type ProviderPerson, SignInRefusal } from "./oidc.ts";
import { LINK_MINUTES, openSession } from "./sessions.ts";

/**
 * Opens a session for a person of the provider, as a link of a member that is used at once. The first sign-in binds the account,
 * which is an issuer and a subject, and the address to each other: from then on each works with the other alone.
 * @param flow the random text of this sign-in, which has one link @param teamId where a new person with a role becomes a member
 * @throws {SignInRefusal} `unknown`, `bound`; `expired` for an answer that was used before
 */
export function openProviderSession(
  em: EntityManager,
  vault: Vault,
  { issuer, subject, email, name, role }: ProviderPerson,
  { flow, teamId }: { flow: string; teamId: string | undefined },
): Promise<string> {
  const id = `link_${vault.hash("session", "oidc", flow)}`;
  return transaction(em, async (tx) => {
    const db = kysely(tx);
    if (teamId !== undefined && role !== undefined) {
      // One who was removed is not new. The others need no lock.
      const isNew = async () => (await tx.count(Member, { teamId, email })) === 0;
      if (await isNew()) await lockTeam(tx, teamId);
      if (await isNew()) {
        const { id } = await addMember(tx, teamId, { email, name, role });
        const act = { way: "CONSOLE", memberId: id, credential: null, act: "team.join", objectId: id } as const;
        await recordAct(tx, { teamId, environment: "LIVE" }, { ...act, count: null, requestId: null });
      }
    }
    if ((await tx.count(Member, { email, removedAt: null })) === 0) throw new SignInRefusal("unknown");
    const account = sql`issuer = ${issuer} and subject = ${subject}`;
    await sql`insert into console_identities (issuer, subject, email, last_used_at)
      values (${issuer}, ${subject}, ${email}, clock_timestamp()) on conflict do nothing`.execute(db);
    const bound = await sql`update console_identities set last_used_at = clock_timestamp()
      where ${account} and email = ${email} returning email`.execute(db);
    if (bound.rows.length === 0) throw new SignInRefusal("bound");
    const made = await sql`insert into sign_in_links (id, email, expires_at)
      values (${id}, ${email}, clock_timestamp() + make_interval(mins => ${LINK_MINUTES}))
      on conflict do nothing returning id`.execute(db);
    if (made.rows.length === 0) throw new SignInRefusal("expired", "used_before");
    return openSession(tx, vault, { link: `${id}.${vault.sign("sign-in", id)}`, browser: undefined });
  });
}

/**
 * Lets another account of the provider sign in with an address; the audit log of each team with this member says so.
 * @param act the word of the audit log
 * @throws {ApiError} `not_found`
 */
export const unbindAddress = (em: EntityManager, email: string, act: string): Promise<void> =>
  transaction(em, async (tx) => {
    const { rows } = await sql`delete from console_identities where email = ${email} returning email`.execute(
      kysely(tx),
    );
    if (rows.length === 0) throw new ApiError("not_found", "No account of the provider is bound to this address.");
    for (const { id: objectId, teamId } of await tx.find(Member, { email, removedAt: null }))
      await recordAct(
        tx,
        { teamId, environment: "LIVE" },
        { ...OPERATOR, act, objectId, count: null, requestId: null },
      );
  });

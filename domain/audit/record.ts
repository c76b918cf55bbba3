import { createHash } from "node:crypto";
import type { AuditWay } from "../../db/entities/audit.ts";
import { type EntityManager, kysely, type Tenant } from "../../db/orm.ts";
import { defineStatement } from "../../db/statements.ts";
import { afterCommit } from "../../db/transaction.ts";
import type { Caller } from "../access/access.ts";
import { idOfBytes, newId } from "../ids.ts";

/** The member or the key that acted, and the way. A key acts by itself: its member is not named. */
export interface Actor {
  way: AuditWay;
  memberId: string | null;
  credential: string | null;
}

export const OPERATOR: Actor = { way: "COMMAND", memberId: null, credential: null };

export function actorOf(caller: Caller): Actor {
  const { kind, memberId } = caller;
  if (kind === "oauth_token") return { way: "OAUTH_CLIENT", memberId, credential: caller.keyId };
  if (kind === "session" || caller.isOfSessions) return { way: "CONSOLE", memberId, credential: null };
  return { way: "API_KEY", memberId: null, credential: caller.id };
}

export interface Act extends Actor {
  act: string;
  objectId: string | null;
  count: number | null;
  requestId: string | null;
}

type Row = Pick<Act, keyof Act> & Pick<Tenant, keyof Tenant> & { id: string };

const insert = defineStatement((em, { teamId, memberId, objectId, requestId, ...row }: Row) =>
  kysely(em)
    .insertInto("audit_entries")
    .values({ team_id: teamId, member_id: memberId, object_id: objectId, request_id: requestId, ...row })
    .onConflict((conflict) => conflict.doNothing()),
);

/** Entries of a day that this process knows to be there. */
const known = new Set<string>();
const MOST_KNOWN = 10_000;

/**
 * Writes an entry of the audit log, in the transaction of `em` if it is in one. What is done to members, and to the team itself,
 * stands in that of LIVE.
 * @param isDaily the first such act of its actor on its object in a UTC day stands for all
 */
export async function recordAct(em: EntityManager, tenant: Tenant, act: Act, isDaily = false): Promise<void> {
  const { requestId: _, count: __, ...same } = act;
  const place = /^(mbr|team)_/.test(act.objectId ?? "") ? ({ ...tenant, environment: "LIVE" } as const) : tenant;
  if (!isDaily) return void (await insert(em, { id: newId("auditEntry"), ...place, ...act }));
  const of = JSON.stringify([new Date().toISOString().slice(0, 10), place.teamId, place.environment, same]);
  const id = idOfBytes("auditEntry", createHash("sha256").update(of).digest().subarray(0, 16));
  if (known.has(id)) return;
  await insert(em, { id, ...place, ...act });
  const know = () => {
    if (known.size >= MOST_KNOWN) known.clear();
    known.add(id);
  };
  if (em.isInTransaction()) afterCommit(em, id, know);
  else know();
}

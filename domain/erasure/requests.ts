import { type RawBuilder, sql } from "kysely";
import type { PersonRequestKind, PersonRequestState } from "../../db/entities/person-request.ts";
import type { Environment } from "../../db/entities/shared.ts";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../db/orm.ts";
import { isoInstant } from "../../db/sql.ts";
import { ApiError, orNotFound } from "../errors.ts";
import { newId } from "../ids.ts";
import type { Vault } from "../secrets/crypto.ts";
import { holdPlace, type LimitedRecords, lockRecords } from "../teams/record-limit.ts";
import { type ErasureOptions, type ErasureReport, erasePerson } from "./erase.ts";
import { hashAddress, personErased } from "./erased-addresses.ts";
import { exportPerson } from "./export.ts";

/*
 * Exports and erasures that ADMINs ask for. A row that is RUNNING is the command: a workflow carries it out, which the reconciler
 * starts where it is missing.
 */

const limited = (name: string, condition: RawBuilder<boolean>, remedy: string): LimitedRecords => ({
  ...{ table: "person_requests", name, condition, remedy },
});
const UNDER_WAY = limited("exports and erasures under way", sql`state = 'RUNNING'`, "wait until one has ended");
const MAX_UNDER_WAY = 10;
const EXPORTS = limited("exports of people", sql`kind = 'EXPORT'`, "each is deleted after seven days");
const MAX_EXPORTS = 100;
/** An erasure has no personal data once it has ended: it is kept as entries of the audit log are. */
const KEPT = { EXPORT: "7 days", ERASURE: "400 days" };
const LISTED = 20;
/** An erasure that waits for open transactions leaves its place to another team after so long, and tries again later. */
const WAIT_MS = 10_000;

const keptFor = (kind: PersonRequestKind) => sql<string>`now() + ${KEPT[kind]}::interval`;

/** Of an erasure: counts of the rows, and the team's own texts that name the person. */
export type ErasureOutcome = Pick<ErasureReport, "rows" | "mentions">;

const ofPerson = (tenant: Tenant, hash: string) => sql<boolean>`(${ofTenant(tenant)} and address_hash = ${hash})`;

/** @returns `isDone`: the erasure is complete */
const readErased = (em: EntityManager, tenant: Tenant, hash: string) =>
  kysely(em)
    .selectFrom("erased_addresses")
    .select([isoInstant(sql`erased_at`).as("at"), sql<boolean>`placeholder is null`.as("isDone")])
    .where(ofPerson(tenant, hash))
    .executeTakeFirst();

/**
 * Orders an export or an erasure, in the caller's transaction. A second order of what is under way changes nothing, and an export
 * replaces the one before. @param email as addresses are compared @returns the request's id
 * @throws {ApiError} `person_erased`, but an erasure that did not end is ordered again; `resource_limit_reached`
 */
export async function orderRequest(
  em: EntityManager,
  vault: Vault,
  tenant: Tenant,
  { kind, email, memberId }: { kind: PersonRequestKind; email: string; memberId: string },
): Promise<string> {
  const db = kysely(em);
  const hash = hashAddress(vault, tenant, email);
  await lockRecords(em, tenant, "person_requests");
  const same = sql<boolean>`(${ofPerson(tenant, hash)} and kind = ${kind})`;
  const open = db.selectFrom("person_requests").select("id").where(same).where("state", "=", "RUNNING");
  const found = await open.executeTakeFirst();
  if (found) return found.id;
  const erased = await readErased(em, tenant, hash);
  if (erased && (erased.isDone || kind === "EXPORT")) throw personErased("email");
  await holdPlace(em, tenant, UNDER_WAY, MAX_UNDER_WAY);
  if (kind === "EXPORT") {
    await db.deleteFrom("person_requests").where(same).execute();
    await holdPlace(em, tenant, EXPORTS, MAX_EXPORTS);
  }
  const { teamId: team_id, environment } = tenant;
  const row = {
    id: newId("personRequest"),
    team_id,
    environment,
    kind,
    email,
    address_hash: hash,
    member_id: memberId,
  };
  await db
    .insertInto("person_requests")
    .values({ ...row, expires_at: keptFor(kind) })
    .execute();
  return row.id;
}

/** The latest requests about a person, and when they were erased and by which member. */
export async function readRequests(em: EntityManager, vault: Vault, tenant: Tenant, email: string) {
  const hash = hashAddress(vault, tenant, email);
  const member = sql`select m.name from members m where m.team_id = ${tenant.teamId} and m.id = member_id`;
  const requests = await kysely(em)
    .selectFrom("person_requests")
    .select(["id", "kind", "email", "state", "step", sql<ErasureOutcome | null>`outcome`.as("outcome")])
    .select([isoInstant(sql`created_at`).as("created_at"), isoInstant(sql`expires_at`).as("expires_at")])
    .select(sql<string | null>`(${member})`.as("by"))
    .where(ofPerson(tenant, hash))
    .where("expires_at", ">", sql<string>`now()`)
    .orderBy("id", "desc")
    .limit(LISTED)
    .execute();
  const erased = await readErased(em, tenant, hash);
  const { by = null } = requests.find(({ kind, state }) => kind === "ERASURE" && state === "DONE") ?? {};
  return { erased: erased?.isDone ? { at: erased.at, by } : null, requests };
}

/** The JSON of an export that is there. @throws {ApiError} `not_found` */
export async function readExport(em: EntityManager, tenant: Tenant, id: string): Promise<string> {
  const found = kysely(em).selectFrom("person_requests").select("file").where(ofTenant(tenant)).where("id", "=", id);
  return orNotFound((await found.where("expires_at", ">", sql<string>`now()`).executeTakeFirst())?.file ?? undefined);
}

/** Carried out by no workflow for a minute, or so it may be. */
export const readUnfinishedRequests = (em: EntityManager) =>
  kysely(em)
    .selectFrom("person_requests")
    .select(["id", "team_id as teamId", sql<Environment>`environment`.as("environment")])
    .where("state", "=", "RUNNING")
    .where("updated_at", "<", sql<string>`now() - interval '1 minute'`)
    .execute();

const running = (em: EntityManager, tenant: Tenant, id: string) =>
  kysely(em).updateTable("person_requests").where(ofTenant(tenant)).where("id", "=", id).where("state", "=", "RUNNING");

/** Ends a request that cannot go on. An address that is refused already stays refused; a second order completes the erasure. */
export const failRequest = async (em: EntityManager, tenant: Tenant, id: string, failure: string): Promise<void> =>
  void (await running(em, tenant, id).set({ state: "FAILED", step: failure, email: null }).execute());

/**
 * Exports or erases the person, as the row orders; a repetition does what is left.
 * @param stopping the work is given up, for another process to repeat
 * @returns the state at the end; RUNNING where transactions are open that may still hold the person: repeat it later
 */
export async function carryOutRequest(
  em: EntityManager,
  vault: Vault,
  tenant: Tenant,
  id: string,
  stopping: AbortSignal,
  onStep: (step: string) => void = () => {},
  wait: Pick<ErasureOptions, "waitMs" | "slackMs"> = {},
): Promise<PersonRequestState | "DELETED"> {
  const find = () =>
    kysely(em.fork())
      .selectFrom("person_requests")
      .select(["kind", "email", "state"])
      .where(ofTenant(tenant))
      .where("id", "=", id)
      .executeTakeFirst();
  const request = await find();
  if (request?.state !== "RUNNING" || request.email === null) return request?.state ?? "DELETED";
  const { kind, email } = request;
  let shown: Promise<unknown> = Promise.resolve();
  const show = (step: string) => {
    stopping.throwIfAborted();
    onStep(step);
    // The next one shows more.
    shown = shown.then(() => running(em.fork(), tenant, id).set({ step }).execute()).catch(() => {});
  };
  try {
    if (kind === "ERASURE")
      await erasePerson(em, vault, tenant, email, { dryRun: false, waitMs: WAIT_MS, ...wait, onStep: show });
    else {
      const file = await exportPerson(em, vault, tenant, email, show);
      await running(em, tenant, id)
        .set({ state: "DONE", step: null, file, expires_at: keptFor(kind) })
        .execute();
    }
  } catch (error) {
    if (!(error instanceof ApiError && error.code === "resource_state_invalid")) throw error;
    show("waiting for transactions that are open; tried again every minute");
  } finally {
    await shown;
  }
  return (await find())?.state ?? "DELETED";
}

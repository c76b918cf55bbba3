import { sql } from "kysely";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../../db/orm.ts";
import { limitStatements } from "../../../db/statements.ts";
import { IsolationLevel, transaction } from "../../../db/transaction.ts";
import { type IdempotencyHandle, lockClaim, writeAnswer } from "../../access/idempotency.ts";
import { readAccess } from "../../access/key-lookup.ts";
import { actorOf, recordAct } from "../../audit/record.ts";
import { lockBalance, moveCredits } from "../../teams/credits.ts";
import type { Draft } from "../drafts/draft.ts";
import { planMembers } from "../drafts/members.ts";
import { markScheduled } from "../ledger/lifecycle.ts";
import { type SendResource, sendScope } from "../resource.ts";
import { checkPlan } from "./confirm-refusals.ts";
import { capExceeded, readSendCap, type SendCap, type SendingKey } from "./gates.ts";
import { startOf } from "./send-time.ts";

export interface ConfirmRequest extends Tenant {
  previewId: string;
  resource: SendResource;
  apiKeyId: string;
  /** The claim under which the answer is stored, in the transaction of the effect. */
  idempotency: IdempotencyHandle;
}

/** The facts of a confirm. They are stored with its effect, and the API makes the answer from them. */
export interface ArmedSend {
  sendId: string;
  resourceId: string;
  recipients: number;
  /** ISO 8601. */
  sendAt: string;
  cap: SendCap;
}

const ARMED_STATUS = 202;

/**
 * Arms a send, all or nothing, in one snapshot (REPEATABLE READ), so that the plan's digest and the copy see the same
 * recipients. A key that stops working before the commit arms nothing; a second call for the same request changes
 * nothing.
 * @param planMs how long the recipients may take to be counted, and then to be copied
 * @throws {ApiError} `request_in_flight` when another attempt has taken the request over; as `readAccess`; as
 *   `checkPlan`
 */
export function confirmSend(em: EntityManager, request: ConfirmRequest, planMs: number): Promise<void> {
  let tries = 0;
  const armOnce = async (tx: EntityManager) => {
    await limitStatements(tx, planMs);
    // First, so that nothing changes the claim while the recipients are copied, however long that takes.
    if (await lockClaim(tx, request.idempotency)) return;
    // The team's balance may change while a large plan is resolved: that conflict must happen once at most.
    if (tries++ > 0) await lockBalance(tx, request);
    await arm(tx, request);
  };
  return transaction(em, armOnce, { isolationLevel: IsolationLevel.REPEATABLE_READ });
}

async function arm(em: EntityManager, request: ConfirmRequest): Promise<void> {
  const { teamId, environment, resource, previewId } = request;
  const tenant: Tenant = { teamId, environment };
  const scope = sendScope(resource);
  // The API authenticated the key before this confirm waited for its turn.
  const { caller: key } = await readAccess(em, tenant, request.apiKeyId, scope);
  const plan = await checkPlan(em, { tenant, resource, key }, previewId);
  const recipients = plan.counts.eligible;
  await moveCredits(em, tenant, { kind: "RESERVE", amount: recipients, sendId: previewId, cause: "confirm" });
  const cap = await takeFromCap(em, key, recipients);
  await writeSend(em, request, plan.draft, recipients, cap);
  const act = resource.type === "newsletter" ? "sendNewsletter" : "sendCampaign";
  const { requestId } = request.idempotency;
  await recordAct(em, tenant, { ...actorOf(key), act, objectId: resource.id, count: recipients, requestId });
  // Locked last, so that a revocation never waits for the copy of the recipients: it makes this transaction conflict,
  // and the next try refuses the key.
  await readAccess(em, tenant, request.apiKeyId, scope, { lock: true });
}

/** In one conditional statement, so that two sends cannot overdraw the lineage's day. @throws {Refusal} `send_cap_exceeded` */
export async function takeFromCap(em: EntityManager, key: SendingKey, mails: number): Promise<SendCap> {
  const { rows } = await sql<{ used: number }>`
    insert into daily_send_usage as u (lineage_id, day, used)
    select ${key.lineageId}, (now() at time zone 'UTC')::date, ${mails}
    where ${mails}::int <= ${key.dailySendCap}::int
    on conflict (lineage_id, day) do update set used = u.used + excluded.used
      where u.used + excluded.used <= ${key.dailySendCap}::int
    returning used`.execute(kysely(em));
  const [row] = rows;
  if (!row) throw capExceeded((await readSendCap(em, key)).secondsToReset);
  return { limit: key.dailySendCap, usedToday: row.used, remaining: key.dailySendCap - row.used };
}

const MOST_SORTED = 50_000;

/**
 * Copies the eligible members of a plan into the ledger and opens a lane for each account, in the transaction of the
 * confirm. `seq` follows the members' ids where they are few enough to be sorted.
 * @throws {Error} when the members are not as many as were planned
 */
async function copyRecipients(em: EntityManager, sendId: string, draft: Draft, recipients: number): Promise<void> {
  const members = await planMembers(em, draft);
  // `permitted` alone would make a full join of the members a nested loop, see `selectSubscribers`.
  const order = sql.raw(recipients <= MOST_SORTED ? "order by id" : "");
  const { numAffectedRows: copied } = await sql`
    insert into send_recipients (send_id, seq, member_id, email, email_spelling, first_name, last_name, list_id, fields)
    select ${sendId}::text, (row_number() over (${order}))::int, id, email, email_spelling, first_name, last_name, list_id, fields
    from (${members}) members
    where coalesce(permitted, false) and not suppressed`.execute(kysely(em));
  if (Number(copied) !== recipients) throw new Error(`planned ${recipients} recipients, copied ${copied}`);
  const lanes = draft.accounts.map(({ id }) => ({ send_id: sendId, account_id: id }));
  await kysely(em).insertInto("send_lanes").values(lanes).execute();
}

async function writeSend(
  em: EntityManager,
  request: ConfirmRequest,
  draft: Draft,
  recipients: number,
  cap: SendCap,
): Promise<void> {
  const db = kysely(em);
  await copyRecipients(em, request.previewId, draft, recipients);
  const { now } = await db
    .selectNoFrom(sql<string>`date_trunc('milliseconds', clock_timestamp())`.as("now"))
    .executeTakeFirstOrThrow();
  const sendAt = startOf(new Date(now), draft);
  await db
    .insertInto("sends")
    .values({
      id: request.previewId,
      team_id: request.teamId,
      environment: request.environment,
      resource_type: draft.resource.type,
      resource_id: draft.resource.id,
      api_key_id: request.apiKeyId,
      status: "SCHEDULED",
      recipients,
      tracking: draft.tracking,
      footer: draft.footer,
      send_at: sendAt,
    })
    .execute();
  await markScheduled(em, request, draft.resource, { id: request.previewId, sendAt });
  await db
    .updateTable("send_previews")
    .set({ used_at: sql<string>`clock_timestamp()` })
    .where("id", "=", request.previewId)
    .where(ofTenant(request))
    .execute();

  const armed: ArmedSend = {
    sendId: request.previewId,
    resourceId: draft.resource.id,
    recipients,
    sendAt: sendAt.toISOString(),
    cap,
  };
  const answer = { status: ARMED_STATUS, kind: "facts", payload: JSON.stringify(armed) } as const;
  if (!(await writeAnswer(em, request.idempotency, answer))) throw new Error("a locked claim took no answer");
}

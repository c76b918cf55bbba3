import { sql } from "kysely";
import { type EntityManager, kysely, type Tenant } from "../../db/orm.ts";
import { IsolationLevel, transaction } from "../../db/transaction.ts";
import { reserveCredits } from "../credits.ts";
import { notFound } from "../errors.ts";
import { type IdempotencyHandle, writeAnswer } from "../idempotency.ts";
import { emit } from "../webhooks/emit.ts";
import { newsletterRow } from "../webhooks/records.ts";
import { type Draft, readDraft } from "./draft.ts";
import {
  assertDraftReady,
  assertKeyMaySend,
  capExceeded,
  checkGates,
  readSendCap,
  type SendCap,
  type SendingKey,
} from "./gates.ts";
import { copyRecipients } from "./ledger.ts";
import { planMembers, resolvePlan } from "./plan.ts";
import { sendAnswer } from "./present.ts";
import { assertDraft, readPreview, readSendingKey } from "./preview.ts";
import { Refusal } from "./refusal.ts";
import type { SendResource } from "./resource.ts";
import { nextSendAt } from "./send-days.ts";

export interface ConfirmRequest extends Tenant {
  previewId: string;
  resource: SendResource;
  apiKeyId: string;
  /** Where the answer is written down, in the transaction of the effect. */
  idempotency: IdempotencyHandle;
}

/**
 * Arms a newsletter, all or nothing: checks the preview, resolves the plan again, runs every gate again, reserves
 * credits, counts the daily cap, copies the recipients into the ledger and writes the answer. One snapshot serves the
 * digest and the copy (REPEATABLE READ), so nobody comes in or gets lost between the two.
 *
 * A second call for the same request finds the first one's work and changes nothing.
 * @throws {ApiError} the first refusal, in the order of docs/decisions.md
 */
export function confirmSend(em: EntityManager, request: ConfirmRequest): Promise<void> {
  return transaction(em, (tx) => arm(tx, request), { isolationLevel: IsolationLevel.REPEATABLE_READ });
}

async function arm(em: EntityManager, request: ConfirmRequest): Promise<void> {
  const key = await readSendingKey(em, request, request.apiKeyId);
  assertKeyMaySend(key);
  const draft = await readDraft(em, request, request.resource, { lock: true });
  const preview = await readPreview(em, request, request.resource, request.previewId);
  if (!preview) throw notFound();
  if (preview.used_at !== null) {
    if (await isOwnWork(em, request)) return;
    throw new Refusal("confirmation_stale", "used");
  }
  if (preview.expired) throw new Refusal("confirmation_stale", "expired");
  assertDraft(draft);
  if (preview.api_key_id !== key.id) throw new Refusal("send_plan_changed", "other_key");

  const accountGone = draft.account === null;
  const subject = accountGone ? { ...draft, accountAddress: preview.account_address } : draft;
  const plan = await resolvePlan(em, subject);
  if (plan.digest !== preview.plan_digest) throw new Refusal("send_plan_changed", "drift");

  assertDraftReady({ ...draft, accountGone });
  await checkGates(em, request, key, { ...draft, accountGone }, plan.counts);
  if (!draft.account) throw new Refusal("sending_domain_unverified", "account_gone");

  const recipients = plan.counts.eligible;
  await reserveCredits(em, request, request.previewId, recipients);
  const cap = await takeFromCap(em, key, recipients);
  await writeSend(em, request, draft, draft.account.id, recipients, cap);
}

/** Whether this very request armed the send before: its answer stands, the caller just did not hear of it. */
async function isOwnWork(em: EntityManager, { idempotency }: ConfirmRequest): Promise<boolean> {
  const record = await kysely(em)
    .selectFrom("idempotency_records")
    .select("status")
    .where("team_id", "=", idempotency.teamId)
    .where("environment", "=", idempotency.environment)
    .where("key_hash", "=", idempotency.keyHash)
    .where("attempt", "=", idempotency.attempt)
    .executeTakeFirst();
  return record?.status === 202;
}

/** Counts `mails` against the lineage's day in one conditional statement, so that two sends cannot overdraw it. */
async function takeFromCap(em: EntityManager, key: SendingKey, mails: number): Promise<SendCap> {
  const { rows } = await sql<{ used: number }>`
    insert into daily_send_usage as u (lineage_id, day, used)
    select ${key.lineageId}, (clock_timestamp() at time zone 'UTC')::date, ${mails}
    where ${mails}::int <= ${key.dailySendCap}::int
    on conflict (lineage_id, day) do update set used = u.used + excluded.used
      where u.used + excluded.used <= ${key.dailySendCap}::int
    returning used`.execute(kysely(em));
  const [row] = rows;
  if (!row) throw capExceeded((await readSendCap(em, key)).secondsToReset);
  return { limit: key.dailySendCap, usedToday: row.used, remaining: key.dailySendCap - row.used };
}

async function writeSend(
  em: EntityManager,
  request: ConfirmRequest,
  draft: Draft,
  accountId: string,
  recipients: number,
  cap: SendCap,
): Promise<void> {
  const db = kysely(em);
  await copyRecipients(em, { sendId: request.previewId, accountId, members: planMembers(draft), recipients });

  const { now } = await db
    .selectNoFrom(sql<string>`date_trunc('milliseconds', clock_timestamp())`.as("now"))
    .executeTakeFirstOrThrow();
  const sendAt = nextSendAt(new Date(now), draft.sendDays, draft.timeZone);
  const facts = { sendId: request.previewId, newsletterId: draft.resource.id };
  await db
    .insertInto("sends")
    .values({
      id: request.previewId,
      team_id: request.teamId,
      environment: request.environment,
      resource_type: draft.resource.type,
      resource_id: draft.resource.id,
      api_key_id: request.apiKeyId,
      account_id: accountId,
      status: "SCHEDULED",
      recipients,
      credits_reserved: recipients,
      cap_limit: cap.limit,
      cap_used_today: cap.usedToday,
      send_at: sendAt,
    })
    .execute();
  await db
    .updateTable("newsletters")
    .set({ status: "SCHEDULED", send_id: request.previewId, send_at: sendAt })
    .where("id", "=", draft.resource.id)
    .execute();
  await emit(em, request, "newsletter.scheduled", newsletterRow(draft.resource.id));
  await db
    .updateTable("send_previews")
    .set({ used_at: sql<string>`clock_timestamp()` })
    .where("id", "=", request.previewId)
    .execute();

  const written = await writeAnswer(em, request.idempotency, {
    status: 202,
    body: JSON.stringify(sendAnswer(request.idempotency.requestId, { ...facts, recipients, sendAt, cap })),
    bodyKind: "plain",
  });
  // Somebody took over this request's key: their attempt decides, ours must leave nothing.
  if (!written) throw new Refusal("confirmation_stale", "used");
}

import { sql } from "kysely";
import { WITHDRAWN } from "../../db/entities/engagement.ts";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../db/orm.ts";
import { ApiError } from "../errors.ts";
import type { MailRef } from "../mail/links.ts";
import { BROADCASTS, readBroadcast } from "../sends/drafts/drafts.ts";
import type { SendResource } from "../sends/resource.ts";
import { recordReport, type SoftBouncePolicy } from "./record.ts";

interface Mailed {
  resource: SendResource;
  /** Normalised. */
  email: string;
}

const notMailed = () =>
  new ApiError("resource_state_invalid", "It was not sent to this address, or its recipients are kept no longer.");

/** @throws {ApiError} `not_found` for the resource; `resource_state_invalid` when it never went to the address */
async function findMail(em: EntityManager, { resource, email }: Mailed): Promise<MailRef> {
  const { sendId } = await readBroadcast(em, BROADCASTS[resource.type], resource.id);
  const mail = await kysely(em)
    .selectFrom("send_recipients")
    .select("seq")
    .where("send_id", "=", sendId ?? null)
    .where("email", "=", email)
    .executeTakeFirst();
  if (!mail || !sendId) throw notMailed();
  return { sendId, seq: mail.seq };
}

/**
 * Records a complaint in the caller's transaction. @returns false when it was recorded before
 * @throws {ApiError} as `findMail`
 */
export async function recordComplaint(
  em: EntityManager,
  tenant: Tenant,
  mailed: Mailed,
  policy: SoftBouncePolicy,
): Promise<boolean> {
  const mail = await findMail(em, mailed);
  const outcome = await recordReport(em, { ...mail, kind: "complaint" }, policy, { tenant });
  if (outcome === "recorded" || outcome === "known") return outcome === "recorded";
  throw notMailed();
}

/**
 * Takes a complaint out of the rate and the figures of its days; the same one does not count again. The suppression stays.
 * @returns its mail; undefined when it was withdrawn before
 * @throws {ApiError} as `findMail`; `resource_state_invalid` when none of the address counts
 */
export async function withdrawComplaint(
  em: EntityManager,
  tenant: Tenant,
  mailed: Mailed,
  reason: string,
): Promise<MailRef | undefined> {
  const mail = await findMail(em, mailed);
  const { rows } = await sql<{ isNew: boolean }>`
    with counted as (
      select * from mail_reports
      where send_id = ${mail.sendId} and seq = ${mail.seq} and kind = 'complaint' and ${ofTenant(tenant)}
    ), withdrawn as (
      insert into mail_reports (send_id, seq, kind, team_id, environment, reason)
      select send_id, seq, ${WITHDRAWN}, team_id, environment, ${reason} from counted
      on conflict do nothing
      returning seq
    )
    select exists (select from withdrawn) as "isNew" from counted`.execute(kysely(em));
  const [counted] = rows;
  if (!counted) throw new ApiError("resource_state_invalid", "No complaint of this address counts.");
  return counted.isNew ? mail : undefined;
}

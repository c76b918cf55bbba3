import { sql } from "kysely";
import { WITHDRAWN } from "../../db/entities/engagement.ts";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../db/orm.ts";
import { ApiError } from "../errors.ts";
import type { MailRef } from "../mail/links.ts";
import { BROADCASTS, readBroadcast } from "../sends/drafts.ts";
import type { SendResource } from "../sends/resource.ts";
import { recordReport, type SoftBouncePolicy } from "./record.ts";

/** A recipient of a newsletter or a campaign. */
interface Mailed {
  resource: SendResource;
  /** Normalised. */
  email: string;
}

const notMailed = () =>
  new ApiError("resource_state_invalid", "It was not sent to this address, or its recipients are kept no longer.");

/**
 * The mail of a newsletter or a campaign to an address.
 * @throws {ApiError} `not_found` for the resource; `resource_state_invalid` when it never went to the address
 */
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
 * Records that a recipient reported a newsletter or a campaign as spam, see `recordReports`. Runs in the caller's
 * transaction.
 * @returns false when this complaint was recorded before
 * @throws {ApiError} those of `findMail`
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
 * Takes a complaint out of the complaint rate and the figures, on the days on which it counts; the same complaint does not
 * count again. The suppression of its address stays.
 * @returns its mail; undefined when the complaint was withdrawn before
 * @throws {ApiError} those of `findMail`; `resource_state_invalid` when no complaint of the address counts
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

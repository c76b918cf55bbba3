import { sql } from "kysely";
import { type EntityManager, kysely, type Tenant } from "../db/orm.ts";
import { shownAddress } from "./address.ts";
import { BROADCASTS, readBroadcast } from "./drafts.ts";
import { ApiError } from "./errors.ts";
import type { SendResource } from "./sends/resource.ts";
import { suppress } from "./suppressions.ts";
import { emit } from "./webhooks/emit.ts";
import { emailRecord } from "./webhooks/records.ts";

/** Marks the ledger row whose recipient complained, so that a complaint counts once per address and mailing. */
const COMPLAINED = "complaint";

/**
 * Records that a recipient reported a newsletter or a campaign as spam: it counts towards today's complaint rate (UTC), and the
 * address is suppressed. Runs in the caller's transaction.
 * @param email normalised address
 * @returns false when this complaint was recorded before
 * @throws {ApiError} `not_found` for the resource; `resource_state_invalid` when it never went to the address
 */
export async function recordComplaint(
  em: EntityManager,
  tenant: Tenant,
  resource: SendResource,
  email: string,
): Promise<boolean> {
  const { sendId } = await readBroadcast(em, BROADCASTS[resource.type], resource.id);
  const { rows } = await sql<{ seq: number; reason: string | null; emailSpelling: string | null }>`
    select seq, reason, email_spelling as "emailSpelling" from send_recipients
    where send_id = ${sendId ?? null} and email = ${email} and state in ('SENT', 'UNKNOWN')
    for update`.execute(kysely(em));
  const [row] = rows;
  if (!row) throw new ApiError("resource_state_invalid", "It was not sent to this address.");
  if (row.reason === COMPLAINED) return false;
  await sql`update send_recipients set reason = ${COMPLAINED} where send_id = ${sendId ?? null} and seq = ${row.seq}`.execute(
    kysely(em),
  );
  await sql`
    insert into delivery_days as d (team_id, environment, day, complaints)
    values (${tenant.teamId}, ${tenant.environment}, (now() at time zone 'UTC')::date, 1)
    on conflict (team_id, environment, day) do update set complaints = d.complaints + 1`.execute(kysely(em));
  await emit(em, tenant, "email.complained", {
    record: emailRecord("r", { sendId: sendId ?? "", resource }, sql`'COMPLAINED'`),
    from: sql`send_recipients r where r.send_id = ${sendId ?? null} and r.seq = ${row.seq}`,
  });
  await suppress(em, tenant, [shownAddress({ email, emailSpelling: row.emailSpelling })], "bounce:complaint");
  return true;
}

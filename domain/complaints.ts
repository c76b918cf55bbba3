import { sql } from "kysely";
import { type EntityManager, kysely, type Tenant } from "../db/orm.ts";
import { shownAddress } from "./address.ts";
import { ApiError } from "./errors.ts";
import { readNewsletter } from "./newsletters.ts";
import { suppress } from "./suppressions.ts";
import { emit } from "./webhooks/emit.ts";
import { emailRecord } from "./webhooks/records.ts";

/**
 * Records that a recipient reported a newsletter as spam: it counts towards today's complaint rate (UTC), and the
 * address is suppressed. Runs in the caller's transaction.
 * @param email normalised address
 * @returns false when this complaint was recorded before
 * @throws {ApiError} `not_found` for the newsletter; `resource_state_invalid` when it never went to the address
 */
export async function recordComplaint(
  em: EntityManager,
  tenant: Tenant,
  newsletterId: string,
  email: string,
): Promise<boolean> {
  const { sendId } = await readNewsletter(em, newsletterId);
  const { rows } = await sql<{ seq: number; emailSpelling: string | null }>`
    select seq, email_spelling as "emailSpelling" from send_recipients
    where send_id = ${sendId ?? null} and email = ${email} and state in ('SENT', 'UNKNOWN')
    for update`.execute(kysely(em));
  const [row] = rows;
  if (!row) throw new ApiError("resource_state_invalid", "The newsletter was not sent to this address.");
  const { numAffectedRows } = await sql`
    insert into mail_reports (send_id, seq, kind, team_id, environment)
    values (${sendId ?? null}, ${row.seq}, 'complaint', ${tenant.teamId}, ${tenant.environment})
    on conflict (send_id, seq, kind) do nothing`.execute(kysely(em));
  if (!numAffectedRows) return false;
  await emit(em, tenant, "email.complained", {
    record: emailRecord(
      "r",
      { sendId: sendId ?? "", resource: { type: "newsletter", id: newsletterId } },
      sql`'COMPLAINED'`,
    ),
    from: sql`send_recipients r where r.send_id = ${sendId ?? null} and r.seq = ${row.seq}`,
  });
  await suppress(em, tenant, [shownAddress({ email, emailSpelling: row.emailSpelling })], "bounce:complaint");
  return true;
}

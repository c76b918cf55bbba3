import { type EntityManager, kysely, type Tenant } from "../db/orm.ts";
import { ApiError } from "./errors.ts";
import { readNewsletter } from "./newsletters.ts";
import { recordReport, type SoftBouncePolicy } from "./reports/record.ts";

/**
 * Records that a recipient reported a newsletter as spam, see `recordReports`. Runs in the caller's transaction.
 * @param email normalised address
 * @returns false when this complaint was recorded before
 * @throws {ApiError} `not_found` for the newsletter; `resource_state_invalid` when it never went to the address
 */
export async function recordComplaint(
  em: EntityManager,
  tenant: Tenant,
  { newsletterId, email }: { newsletterId: string; email: string },
  policy: SoftBouncePolicy,
): Promise<boolean> {
  const { sendId } = await readNewsletter(em, newsletterId);
  const mail = await kysely(em)
    .selectFrom("send_recipients")
    .select("seq")
    .where("send_id", "=", sendId ?? null)
    .where("email", "=", email)
    .executeTakeFirst();
  const report = mail && sendId ? { sendId, seq: mail.seq, kind: "complaint" as const } : undefined;
  const outcome = report ? await recordReport(em, report, policy, tenant) : "not_mailed";
  if (outcome === "recorded" || outcome === "known") return outcome === "recorded";
  throw new ApiError("resource_state_invalid", "The newsletter was not sent to this address.");
}

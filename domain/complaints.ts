import { type EntityManager, kysely, type Tenant } from "../db/orm.ts";
import { BROADCASTS, readBroadcast } from "./drafts.ts";
import { ApiError } from "./errors.ts";
import { recordReport, type SoftBouncePolicy } from "./reports/record.ts";
import type { SendResource } from "./sends/resource.ts";

/**
 * Records that a recipient reported a newsletter or a campaign as spam, see `recordReports`. Runs in the caller's
 * transaction.
 * @param email normalised address
 * @returns false when this complaint was recorded before
 * @throws {ApiError} `not_found` for the resource; `resource_state_invalid` when it never went to the address
 */
export async function recordComplaint(
  em: EntityManager,
  tenant: Tenant,
  { resource, email }: { resource: SendResource; email: string },
  policy: SoftBouncePolicy,
): Promise<boolean> {
  const { sendId } = await readBroadcast(em, BROADCASTS[resource.type], resource.id);
  const mail = await kysely(em)
    .selectFrom("send_recipients")
    .select("seq")
    .where("send_id", "=", sendId ?? null)
    .where("email", "=", email)
    .executeTakeFirst();
  const report = mail && sendId ? { sendId, seq: mail.seq, kind: "complaint" as const } : undefined;
  const outcome = report ? await recordReport(em, report, policy, { tenant }) : "not_mailed";
  if (outcome === "recorded" || outcome === "known") return outcome === "recorded";
  throw new ApiError(
    "resource_state_invalid",
    "It was not sent to this address, or its recipients are kept no longer.",
  );
}

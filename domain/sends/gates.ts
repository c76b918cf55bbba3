import { sql } from "kysely";
import type { AccountStatus } from "../../db/entities/account.ts";
import type { Environment } from "../../db/entities/shared.ts";
import { type EntityManager, kysely, type Tenant } from "../../db/orm.ts";
import { creditBalance } from "../credits.ts";
import { checkContent } from "../mail/template.ts";
import type { PlanCounts } from "./plan.ts";
import { Refusal } from "./refusal.ts";

/** Complaints over delivered mail at which the API stops sending. Source: the contract's gates. */
export const COMPLAINT_THRESHOLD = 0.002;
export const COMPLAINT_WINDOW_DAYS = 30;

/** What a key brings to a send. */
export interface SendingKey {
  id: string;
  environment: Environment;
  requiresApproval: boolean;
  sendDomains: readonly string[];
  dailySendCap: number;
  lineageId: string;
}

/** Where a lineage stands against its daily cap. Mails, per UTC day. */
export interface SendCap {
  limit: number;
  usedToday: number;
  remaining: number;
}

/** The first thing asked of a send, before anything is looked up, so that a test key learns nothing of any id. */
export function assertKeyMaySend(key: Pick<SendingKey, "environment" | "requiresApproval">): void {
  if (key.environment === "TEST") throw new Refusal("send_not_permitted", "test_key");
  if (key.requiresApproval) throw new Refusal("send_not_permitted", "requires_approval");
}

/** What the gates read of a draft. */
export interface GateDraft {
  subject: string | null;
  body: string | null;
  fromEmail: string | null;
  listIds: readonly string[];
  account: { status: AccountStatus } | null;
  /** At confirm: the account the preview named is gone. */
  accountGone?: boolean;
}

const quoted = (names: Iterable<string>) => [...new Set(names)].map((name) => `{{ ${name} }}`).join(", ");

/** Draft sendable, as far as it can be told without its recipients. Names every merge tag that is not known. */
export function assertDraftReady(draft: GateDraft): void {
  const notReady = (...args: [reason: ConstructorParameters<typeof Refusal>[1], detail?: string]) =>
    new Refusal("campaign_not_ready", args[0], args[1] === undefined ? {} : { detail: args[1] });
  if (!draft.subject?.trim()) throw notReady("no_subject");
  if (!draft.body?.trim()) throw notReady("no_body");
  if (!draft.fromEmail) throw notReady("no_from_email");
  const problems = checkContent({ subject: draft.subject, html: draft.body });
  if (problems.length > 0) {
    const unknown = problems.flatMap((problem) => (problem.kind === "unknown_tag" ? [problem.tag] : []));
    throw notReady("content_invalid", unknown.length > 0 ? `Unknown: ${quoted(unknown)}.` : undefined);
  }
  if (draft.listIds.length === 0) throw notReady("no_list");
  if (!draft.account && !draft.accountGone) throw notReady("no_account");
}

/** Draft sendable: somebody is left to mail. */
export function assertRecipients({ eligible }: PlanCounts): void {
  if (eligible === 0) throw new Refusal("campaign_not_ready", "no_recipients");
}

/** Sending account present and ACTIVE, and the key allowed to send from its domain. */
export function assertIdentity(draft: GateDraft, key: SendingKey): void {
  if (!draft.account) throw new Refusal("sending_domain_unverified", "account_gone");
  if (draft.account.status !== "ACTIVE") throw new Refusal("sending_domain_unverified", "account_not_active");
  if (key.sendDomains.length === 0) throw new Refusal("send_domain_not_allowed", "no_send_domains");
  const domain = draft.fromEmail?.slice(draft.fromEmail.lastIndexOf("@") + 1).toLowerCase();
  if (!key.sendDomains.some((allowed) => allowed.toLowerCase() === domain)) {
    throw new Refusal("send_domain_not_allowed", "domain_not_allowed");
  }
}

/** Where the key's lineage stands today, by the database's UTC day. */
export async function readSendCap(em: EntityManager, key: SendingKey): Promise<SendCap & { secondsToReset: number }> {
  const { rows } = await sql<{ used: number; secondsToReset: number }>`
    select coalesce((select used from daily_send_usage
        where lineage_id = ${key.lineageId} and day = (clock_timestamp() at time zone 'UTC')::date), 0)::int as used,
      ceil(extract(epoch from ((clock_timestamp() at time zone 'UTC')::date + 1)
        - (clock_timestamp() at time zone 'UTC')))::int as "secondsToReset"`.execute(kysely(em));
  const { used = 0, secondsToReset = 1 } = rows[0] ?? {};
  return {
    limit: key.dailySendCap,
    usedToday: used,
    remaining: Math.max(0, key.dailySendCap - used),
    secondsToReset: Math.max(1, secondsToReset),
  };
}

export function capExceeded(secondsToReset: number): Refusal {
  return new Refusal("send_cap_exceeded", "cap_exceeded", { retryAfterSeconds: secondsToReset });
}

/** Complaints as a fraction of the mail delivered in the window; 0 when nothing was delivered. No minimum volume. */
export async function readComplaintRate(em: EntityManager, tenant: Tenant): Promise<number> {
  const { rows } = await sql<{ delivered: number; complaints: number }>`
    select coalesce(sum(delivered), 0)::int as delivered, coalesce(sum(complaints), 0)::int as complaints
    from delivery_days
    where team_id = ${tenant.teamId} and environment = ${tenant.environment}
      and day > (clock_timestamp() at time zone 'UTC')::date - ${COMPLAINT_WINDOW_DAYS}::int`.execute(kysely(em));
  const { delivered = 0, complaints = 0 } = rows[0] ?? {};
  if (complaints === 0) return 0;
  return complaints / Math.max(delivered, complaints);
}

export function assertComplaintRate(rate: number): void {
  if (rate >= COMPLAINT_THRESHOLD) throw new Refusal("complaint_rate_exceeded", "complaints");
}

/**
 * The gates after "draft ready", in the contract's order: recipients, account, domains, cap, complaints, credits.
 * Returns what they read, for the answer.
 */
export async function checkGates(
  em: EntityManager,
  tenant: Tenant,
  key: SendingKey,
  draft: GateDraft,
  counts: PlanCounts,
): Promise<{ cap: SendCap; complaintRate: number }> {
  assertRecipients(counts);
  assertIdentity(draft, key);
  const { secondsToReset, ...cap } = await readSendCap(em, key);
  if (counts.eligible > cap.remaining) throw capExceeded(secondsToReset);
  const complaintRate = await readComplaintRate(em, tenant);
  assertComplaintRate(complaintRate);
  const { available } = await creditBalance(em, tenant);
  if (available < counts.eligible) throw new Refusal("quota_exceeded", "credits");
  return { cap, complaintRate };
}

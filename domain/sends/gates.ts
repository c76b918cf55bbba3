import { sql } from "kysely";
import type { Environment } from "../../db/entities/shared.ts";
import { type EntityManager, kysely, type Tenant } from "../../db/orm.ts";
import { addressDomain, lookupAddress } from "../address.ts";
import { assertComposable, examineContent } from "../mail/examination.ts";
import { UnsendableError } from "../mail/header.ts";
import { describeProblem, shownTags, TemplateError } from "../mail/template-problem.ts";
import { readCreditBalance } from "../teams/credits.ts";
import { COMPLAINT_THRESHOLD, complaintRate, readComplaintFigures } from "./complaint-rate.ts";
import type { Draft } from "./draft.ts";
import type { PlanCounts } from "./plan.ts";
import { Refusal } from "./refusal.ts";

export interface SendingKey {
  id: string;
  environment: Environment;
  requiresApproval: boolean;
  sendDomains: readonly string[];
  dailySendCap: number;
  lineageId: string;
}

/** Mails, per UTC day. */
export interface SendCap {
  limit: number;
  usedToday: number;
  remaining: number;
}

/** Comes before any look-up, so that a test key learns nothing of any id. */
export function assertKeyMaySend(key: Pick<SendingKey, "environment" | "requiresApproval">): void {
  if (key.environment === "TEST") throw new Refusal("send_not_permitted", "test_key");
  if (key.requiresApproval) throw new Refusal("send_not_permitted", "requires_approval");
}

/** @throws {Refusal} `resource_state_invalid` */
export function assertDraft({ status, isDrip }: Pick<Draft, "status" | "isDrip">): void {
  if (isDrip) throw new Refusal("resource_state_invalid", "drip_sequence");
  if (status !== "DRAFT") throw new Refusal("resource_state_invalid", "not_draft");
}

const quoted = (names: Iterable<string>) => [...new Set(names)].map((name) => `{{ ${name} }}`).join(", ");

/**
 * The draft is complete, and messages can be composed from it.
 * @throws {Refusal} `campaign_not_ready`; the message names every merge tag that is not known, or the first problem
 */
export async function assertContent(draft: Draft): Promise<void> {
  const { teamId, subject, body, fromAddresses, fromName, fieldNames, missing } = draft;
  if (!subject?.trim()) throw new Refusal("campaign_not_ready", "no_subject");
  if (!body?.trim()) throw new Refusal("campaign_not_ready", "no_body");
  if (missing.sender) throw new Refusal("campaign_not_ready", missing.sender);
  const problems = await examineContent(teamId, { subject, html: body }, fieldNames);
  const unusable = problems.find(({ kind }) => kind !== "unknown_tag");
  if (unusable) throw notComposable(describeProblem(unusable));
  if (problems.length > 0) {
    const unknown = shownTags(problems).slice(0, MAX_SHOWN_TAGS);
    const detail = unknown.length > 0 ? { detail: `Unknown: ${quoted(unknown)}.` } : {};
    throw new Refusal("campaign_not_ready", "content_invalid", detail);
  }
  // None is left when all accounts of a campaign are gone, which the gates refuse.
  const [fromEmail] = fromAddresses;
  try {
    if (fromEmail !== undefined) await assertComposable(teamId, { subject, html: body, fromEmail, fromName });
  } catch (error) {
    if (error instanceof TemplateError) throw notComposable(error.message);
    if (error instanceof UnsendableError) throw notComposable("the sender's address or name fits in no header");
    throw error;
  }
  if (missing.targets) throw new Refusal("campaign_not_ready", missing.targets);
}

const MAX_SHOWN_TAGS = 20;

const notComposable = (problem: string) =>
  new Refusal("campaign_not_ready", "content_not_composable", { detail: `The problem: ${problem}.` });

type SenderFacts = Pick<Draft, "accounts" | "isAccountGone" | "fromAddresses">;

/** The gates of a sender, in their order. @throws {Refusal} `sending_domain_unverified`, `send_domain_not_allowed` */
export function assertSender({ accounts, fromAddresses, isAccountGone }: SenderFacts, key: SendingKey): void {
  // A draft without an account was refused before its preview: here one that it had is gone.
  if (isAccountGone || accounts.length === 0) throw new Refusal("sending_domain_unverified", "account_gone");
  if (accounts.some(({ status }) => status !== "ACTIVE")) {
    throw new Refusal("sending_domain_unverified", "account_not_active");
  }
  if (key.sendDomains.length === 0) throw new Refusal("send_domain_not_allowed", "no_send_domains");
  const allowed = new Set(key.sendDomains.map((domain) => domain.toLowerCase()));
  if (!fromAddresses.every((address) => allowed.has(addressDomain(lookupAddress(address))))) {
    throw new Refusal("send_domain_not_allowed", "domain_not_allowed");
  }
}

/** By the database's UTC day. */
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

/** @throws {Refusal} `complaint_rate_exceeded`, with the figures */
export async function readComplaintRate(em: EntityManager, tenant: Tenant): Promise<number> {
  const { rate } = await kysely(em).selectNoFrom(complaintRate(tenant).as("rate")).executeTakeFirstOrThrow();
  if (rate < COMPLAINT_THRESHOLD) return rate;
  throw new Refusal("complaint_rate_exceeded", "complaints", { complaints: await readComplaintFigures(em, tenant) });
}

export interface PassedGates {
  cap: SendCap;
  complaintRate: number;
}

/** The end of both orders of refusals, of a preview's and of a confirm's. @throws {Refusal} the first that applies */
export async function checkGates(
  em: EntityManager,
  tenant: Tenant,
  key: SendingKey,
  draft: Draft,
  { eligible }: PlanCounts,
): Promise<PassedGates> {
  if (eligible === 0) throw new Refusal("campaign_not_ready", "no_recipients");
  assertSender(draft, key);
  const { secondsToReset, ...cap } = await readSendCap(em, key);
  if (eligible > cap.remaining) throw capExceeded(secondsToReset);
  const complaintRate = await readComplaintRate(em, tenant);
  const { available } = await readCreditBalance(em, tenant);
  if (available < eligible) throw new Refusal("quota_exceeded", "credits");
  return { cap, complaintRate };
}

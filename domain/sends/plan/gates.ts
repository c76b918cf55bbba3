import { sql } from "kysely";
import type { Environment } from "../../../db/entities/shared.ts";
import { type EntityManager, kysely, type Tenant } from "../../../db/orm.ts";
import { addressDomain, lookupAddress } from "../../address.ts";
import type { ApiError } from "../../errors.ts";
import { assertComposable, examineContent } from "../../mail/examination.ts";
import { UnsendableError } from "../../mail/header.ts";
import { describeProblem, shownTags, TemplateError } from "../../mail/template-problem.ts";
import { readCreditBalance } from "../../teams/credits.ts";
import { COMPLAINT_THRESHOLD, complaintRate, readComplaintFigures } from "../complaint-rate.ts";
import type { Draft } from "../drafts/draft.ts";
import { Refusal, type RefusalReason } from "../refusal.ts";
import type { PlanCounts } from "./plan.ts";

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

/** The rules that a send must meet. The API refuses by the first one that is not met. */
export type Gate =
  | "permission"
  | "subject"
  | "body"
  | "sender"
  | "content"
  | "targets"
  | "account"
  | "time"
  | "recipients"
  | "domains"
  | "cap"
  | "complaints"
  | "credits";

export interface GateState {
  gate: Gate;
  /** Undefined where the gate is met; null where it cannot be checked before another one is met. */
  refusal: ApiError | null | undefined;
}

/** Gates in their order; it checks the next one when asked for it. One name may come twice: both must be met. */
export type Gates<Found = void> = AsyncGenerator<GateState, Found>;

/** Checks all gates. @returns what they found */
export async function walkGates<Found>(gates: Gates<Found>, note: (state: GateState) => void): Promise<Found> {
  for (;;) {
    const step = await gates.next();
    if (step.done) return step.value;
    note(step.value);
  }
}

/** Checks gates up to the first that is not met. @throws {ApiError} its refusal */
export const passGates = <Found>(gates: Gates<Found>): Promise<Found> =>
  walkGates(gates, ({ refusal }) => {
    if (refusal) throw refusal;
  });

const notReady = ({ resource: { type } }: Pick<Draft, "resource">, reason: RefusalReason, detail?: string) =>
  new Refusal("campaign_not_ready", reason, { type, detail });

/** The key may send at all. */
export function permissionRefusal({
  environment,
  requiresApproval,
}: Pick<SendingKey, "environment" | "requiresApproval">): Refusal | undefined {
  if (environment === "TEST") return new Refusal("send_not_permitted", "test_key");
  return requiresApproval ? new Refusal("send_not_permitted", "requires_approval") : undefined;
}

/** Comes before any look-up, so that a test key learns nothing of any id. */
export function assertKeyMaySend(key: Pick<SendingKey, "environment" | "requiresApproval">): void {
  const refusal = permissionRefusal(key);
  if (refusal) throw refusal;
}

/** @throws {Refusal} `resource_state_invalid` */
export function assertDraft({ status, isDrip }: Pick<Draft, "status" | "isDrip">): void {
  if (isDrip) throw new Refusal("resource_state_invalid", "drip_sequence");
  if (status !== "DRAFT") throw new Refusal("resource_state_invalid", "not_draft");
}

const quoted = (names: Iterable<string>) => [...new Set(names)].map((name) => `{{ ${name} }}`).join(", ");

/** The draft is complete, and messages can be composed from it. */
export async function* contentGates(draft: Draft): Gates {
  const { subject, body, missing } = draft;
  const content = subject?.trim() && body?.trim() ? { subject, html: body } : null;
  yield { gate: "subject", refusal: subject?.trim() ? undefined : notReady(draft, "no_subject") };
  yield { gate: "body", refusal: body?.trim() ? undefined : notReady(draft, "no_body") };
  yield { gate: "sender", refusal: missing.sender ? notReady(draft, missing.sender) : undefined };
  yield { gate: "content", refusal: content && (await contentRefusal(draft, content)) };
  yield { gate: "targets", refusal: missing.targets ? notReady(draft, missing.targets) : undefined };
}

/** Its message names every merge tag that is not known, or the first problem. */
async function contentRefusal(draft: Draft, content: { subject: string; html: string }): Promise<Refusal | undefined> {
  const { teamId, fromAddresses, fromName, fieldNames, footer } = draft;
  const notComposable = (problem: string) => notReady(draft, "content_not_composable", `The problem: ${problem}.`);
  const problems = await examineContent(teamId, content, fieldNames);
  const unusable = problems.find(({ kind }) => kind !== "unknown_tag");
  if (unusable) return notComposable(describeProblem(unusable));
  if (problems.length > 0) {
    const unknown = shownTags(problems).slice(0, MAX_SHOWN_TAGS);
    if (unknown.length === 0) return notReady(draft, "content_invalid");
    const right = unknown.flatMap(({ nearest }) => nearest ?? []);
    const write = right.length > 0 ? ` Write: ${quoted(right)}.` : "";
    return notReady(draft, "content_invalid", `Unknown: ${quoted(unknown.map(({ tag }) => tag))}.${write}`);
  }
  // None is left when all accounts of a campaign are gone, which another gate refuses.
  const [fromEmail] = fromAddresses;
  try {
    if (fromEmail !== undefined) await assertComposable(teamId, { ...content, fromEmail, fromName, footer });
  } catch (error) {
    if (error instanceof TemplateError) return notComposable(error.message);
    if (error instanceof UnsendableError) return notComposable("the sender's address or name fits in no header");
    throw error;
  }
  return undefined;
}

const MAX_SHOWN_TAGS = 20;

type SenderFacts = Pick<Draft, "accounts" | "isAccountGone" | "fromAddresses">;

function accountRefusal({ accounts, isAccountGone }: SenderFacts): Refusal | undefined {
  // A draft without an account was refused before its preview: here one that it had is gone.
  if (isAccountGone || accounts.length === 0) return new Refusal("sending_domain_unverified", "account_gone");
  const isActive = accounts.every(({ status }) => status === "ACTIVE");
  return isActive ? undefined : new Refusal("sending_domain_unverified", "account_not_active");
}

function domainRefusal({ fromAddresses }: SenderFacts, key: SendingKey): Refusal | undefined {
  if (key.sendDomains.length === 0) return new Refusal("send_domain_not_allowed", "no_send_domains");
  const allowed = new Set(key.sendDomains.map((domain) => domain.toLowerCase()));
  const areAllowed = fromAddresses.every((address) => allowed.has(addressDomain(lookupAddress(address))));
  return areAllowed ? undefined : new Refusal("send_domain_not_allowed", "domain_not_allowed");
}

/** The gates of a sender, in their order. @throws {Refusal} `sending_domain_unverified`, `send_domain_not_allowed` */
export function assertSender(sender: SenderFacts, key: SendingKey): void {
  const refusal = accountRefusal(sender) ?? domainRefusal(sender, key);
  if (refusal) throw refusal;
}

/** By the UTC day in which the transaction began: one that takes from the cap after midnight takes from the cap that it has read. */
export async function readSendCap(em: EntityManager, key: SendingKey): Promise<SendCap & { secondsToReset: number }> {
  const { rows } = await sql<{ used: number; secondsToReset: number }>`
    select coalesce((select used from daily_send_usage
        where lineage_id = ${key.lineageId} and day = (now() at time zone 'UTC')::date), 0)::int as used,
      ceil(extract(epoch from ((now() at time zone 'UTC')::date + 1)
        - (now() at time zone 'UTC')))::int as "secondsToReset"`.execute(kysely(em));
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

const complaintRateOf = async (em: EntityManager, tenant: Tenant): Promise<number> =>
  (await kysely(em).selectNoFrom(complaintRate(tenant).as("rate")).executeTakeFirstOrThrow()).rate;

/** With the figures. */
async function complaintRefusal(em: EntityManager, tenant: Tenant, rate: number): Promise<Refusal | undefined> {
  if (rate < COMPLAINT_THRESHOLD) return undefined;
  return new Refusal("complaint_rate_exceeded", "complaints", { complaints: await readComplaintFigures(em, tenant) });
}

/** @throws {Refusal} `complaint_rate_exceeded` */
export async function assertFewComplaints(em: EntityManager, tenant: Tenant): Promise<void> {
  const refusal = await complaintRefusal(em, tenant, await complaintRateOf(em, tenant));
  if (refusal) throw refusal;
}

/** The gates of the key that sends. @param counts null where the recipients are not known */
export async function* keyGates(
  em: EntityManager,
  key: SendingKey,
  draft: Draft,
  counts: PlanCounts | null,
): Gates<SendCap> {
  yield { gate: "domains", refusal: draft.fromAddresses.length > 0 ? domainRefusal(draft, key) : null };
  const { secondsToReset, ...cap } = await readSendCap(em, key);
  const fits = counts && counts.eligible <= cap.remaining;
  yield { gate: "cap", refusal: fits === null ? null : fits ? undefined : capExceeded(secondsToReset) };
  return cap;
}

export interface PassedGates<Cap = SendCap> {
  cap: Cap;
  complaintRate: number;
  /** Credits of the team. */
  available: number;
}

/** The last gates of a preview and of a confirm. @param ofKey as `keyGates` @param counts null where they are not known */
export async function* sendGates<Cap>(
  em: EntityManager,
  tenant: Tenant,
  draft: Draft,
  counts: PlanCounts | null,
  ofKey: Gates<Cap>,
): Gates<PassedGates<Cap>> {
  yield { gate: "time", refusal: draft.hasTimePassed ? notReady(draft, "time_passed") : undefined };
  yield { gate: "recipients", refusal: counts && (counts.eligible > 0 ? undefined : notReady(draft, "no_recipients")) };
  yield { gate: "account", refusal: accountRefusal(draft) };
  const cap = yield* ofKey;
  const rate = await complaintRateOf(em, tenant);
  yield { gate: "complaints", refusal: await complaintRefusal(em, tenant, rate) };
  const { available } = await readCreditBalance(em, tenant);
  const isPaid = counts && counts.eligible <= available;
  yield {
    gate: "credits",
    refusal: isPaid === null ? null : isPaid ? undefined : new Refusal("quota_exceeded", "credits"),
  };
  return { cap, complaintRate: rate, available };
}

/** The end of both orders of refusals, of a preview's and of a confirm's. @throws {Refusal} the first that applies */
export const checkGates = (
  em: EntityManager,
  tenant: Tenant,
  key: SendingKey,
  draft: Draft,
  counts: PlanCounts,
): Promise<PassedGates> => passGates(sendGates(em, tenant, draft, counts, keyGates(em, key, draft, counts)));

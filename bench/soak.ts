/**
 * `npm run soak -- --minutes 10 --seed 7` sends newsletters at random over HTTP, with webhooks that report them, and runs a
 * sequence, while processes are killed, Postgres fails over to its standby and the SMTP server misbehaves, and checks the
 * ledger, credits, accounts, mail, webhooks and the people of the sequence. The seed decides the actions, not their timing. Exit code 1 when a check failed.
 */
import { readFileSync } from "node:fs";
import { setTimeout as delay } from "node:timers/promises";
import { Command } from "commander";
import { sql } from "kysely";
import { wholeNumber } from "../app/options.ts";
import { kysely } from "../db/orm.ts";
import { STALLED_SECONDS } from "../domain/access/idempotency.ts";
import { isAccountFailure } from "../domain/accounts/accounts.ts";
import { unsubscribeUrl } from "../domain/mail/links.ts";
import { confirmationToken } from "../domain/sends/plan/token.ts";
import type { StackFile } from "../stack/state.ts";
import { sendWorkflowId } from "../temporal/ids.ts";
import { leaveUndocumented } from "../test/support/api.ts";
import { app } from "../test/support/command.ts";
import { withStack } from "../test/support/own-stack.ts";
import {
  anotherNewsletter,
  confirm,
  type FaultRule,
  freshKey,
  makeSender,
  preview,
  type Sender,
  setFaults,
  setLogin,
} from "../test/support/sending.ts";
import { SETTINGS } from "../test/support/soak-settings.ts";
import { stack } from "../test/support/stack.ts";
import { temporalClient } from "../test/support/temporal.ts";
import { currentPids, pick, type Random, random } from "./soak-chance.ts";
import { PostgresPair } from "./soak-postgres.ts";
import { SoakSequence } from "./soak-sequence.ts";
import { Watch } from "./soak-watch.ts";
import { Webhooks } from "./soak-webhooks.ts";

/** Teams that send at the same time. */
const ACTORS = 4;
/**
 * For how long a client repeats a request that gets no answer or one that asks to retry: until three attempts in a row have
 * been presumed dead, because the API was killed, or Postgres was away when it would have given the key back.
 */
const PATIENCE_MS = 3 * 1_000 * STALLED_SECONDS + 30_000;
/** How long an operator may leave an account to its checks. */
const UNTIL_CHECKED_MS = 100_000;
/** How long a send may take before it is left to the end of the soak, when no fault is left. */
const INTERFERE_MS = 120_000;
/**
 * How long it may take, once nothing is broken any more, until every send has ended: a send whose account or steps failed
 * seven times in a row waits for five minutes.
 */
const END_WITHIN_MS = 480_000;
/** An answer that takes longer is printed with its reasons. */
const SLOW_ANSWER_MS = 1_000 * STALLED_SECONDS;
const CHECK_EVERY_MS = 3_000;
const TELL_EVERY_MS = 10_000;
const UPDATE_DEADLINE_MS = 30_000;

/** The processes that may be killed, and the signals; the supervisor starts them again. */
const KILLED: readonly (readonly [string, NodeJS.Signals])[] = [
  ["dispatch", "SIGKILL"],
  ["dispatch", "SIGKILL"],
  ["dispatch", "SIGTERM"],
  ["sends", "SIGKILL"],
  ["sends", "SIGTERM"],
  ["webhooks", "SIGKILL"],
  ["webhooks", "SIGKILL"],
  ["webhooks", "SIGTERM"],
  ["api", "SIGKILL"],
  ["temporal", "SIGKILL"],
  // An immediate shutdown: connections are cut and nothing is checkpointed.
  ["postgres", "SIGQUIT"],
];
/** Seconds between the failovers of Postgres, from the moment that a new standby is in sync. */
const FAILOVERS_AFTER_S = [15, 45] as const;

/** Faults of the SMTP server; `digit` ends the local part of those it strikes. */
const FAULTS: readonly ((digit: number) => FaultRule)[] = [
  (digit) => ({ stage: "rcpt", match: `${digit}@`, code: 450, message: "4.2.0 later", times: 40 }),
  (digit) => ({ stage: "rcpt", match: `${digit}${digit}@`, code: 550, message: "5.1.1 no such user", times: 10 }),
  (digit) => ({ stage: "data", match: `${digit}@`, code: 451, message: "4.3.0 later", times: 20 }),
  (digit) => ({ stage: "data", match: `${digit}@`, drop: true, times: 3 }),
  (digit) => ({ stage: "rcpt", match: `${digit}@`, drop: true, times: 3 }),
  () => ({ stage: "connect", drop: true, times: 3 }),
  () => ({ stage: "connect", code: 421, message: "4.3.2 busy", times: 3 }),
  () => ({ stage: "data", code: 554, message: "5.7.1 blocked", times: 25 }),
];
/** Slow enough that there is time to interfere. */
const SLOW: FaultRule = { stage: "data", delayMs: 40 };

/** The SMTP server refuses the logins of accounts whose address fits `match`, and ends connections that they have. */
const refuseLogins = (match: string, code: number, message: string): readonly FaultRule[] => [
  { stage: "auth", match, code, message },
  { stage: "mail", match, code: 421, message: "4.3.2 restarting", times: 20 },
];
/** Refusals of some accounts, by the end of their domain, or of all. */
const REFUSED_LOGINS = [
  refuseLogins("[0-7]\\.example$", 535, "5.7.8 no"),
  refuseLogins("[89a-f]\\.example$", 535, "5.7.8 no"),
  refuseLogins("", 535, "5.7.8 no"),
  refuseLogins("[4-9]\\.example$", 454, "4.7.0 later"),
];

/** A send under way. */
interface Underway {
  sender: Sender;
  sendId: string;
  /** Addresses that must not be mailed any more, because the API confirmed it. */
  ineligible: Set<string>;
}

interface Soak {
  watch: Watch;
  webhooks: Webhooks;
  over: () => boolean;
  counts: Map<string, number>;
  update: (sendId: string, name: "pause" | "resume" | "cancel" | "retry") => Promise<string | undefined>;
  /** Reads a send as an operator sees it: its details, and its activities that are under way. */
  look: (sendId: string) => Promise<string>;
}

const count = ({ counts }: Soak, what: string): void => void counts.set(what, (counts.get(what) ?? 0) + 1);

/** Does it until it succeeds, as a patient client does; undefined when it never did. */
async function patiently<T>(soak: Soak, what: string, work: () => Promise<T | undefined>): Promise<T | undefined> {
  const startedAt = Date.now();
  /** Why it did not succeed, each reason with the time from which on it was so. */
  const reasons: string[] = [];
  let last: string | undefined;
  const seconds = () => Math.round((Date.now() - startedAt) / 1_000);
  const timeline = () => ` after ${seconds()} s (${reasons.join("; ")})`;
  for (; Date.now() < startedAt + PATIENCE_MS; await delay(250)) {
    let reason = "not yet";
    try {
      const result = await work();
      if (result !== undefined) {
        if (Date.now() > startedAt + SLOW_ANSWER_MS) console.log(`slow: ${what}${timeline()}`);
        return result;
      }
    } catch (error) {
      reason = error instanceof Error ? error.message : String(error);
      if (!(error instanceof PassingAnswer)) count(soak, "tried again");
    }
    if (reason !== last) reasons.push(`${seconds()} s: ${reason}`);
    last = reason;
  }
  soak.watch.violated(`${what}: no answer${timeline()}`);
  return undefined;
}

/** An answer to try again after: no fault of the request. The first try may still be running when its answer was lost. */
class PassingAnswer extends Error {}

/** @throws {PassingAnswer} when the request is to be tried again */
function final<T extends { status: number; body: { error?: { code?: string } } | null }>(answer: T): T {
  const { status, body } = answer;
  if (status < 500 && status !== 429 && body?.error?.code !== "request_in_flight") return answer;
  throw new PassingAnswer(`${status} ${body?.error?.code}`);
}

/** One team after the other, each with a few newsletters to the same list. */
async function act(soak: Soak, chance: Random): Promise<void> {
  while (!soak.over()) {
    const options = {
      recipients: chance.between(10, 500),
      credits: 100_000,
      dailySendCap: 100_000,
      account: { maxConnections: chance.between(1, 20) },
    };
    const sender = await makeSender(options).catch(() => undefined);
    if (!sender) {
      count(soak, "teams that could not be made");
      await delay(500);
      continue;
    }
    await soak.watch.addTeam(sender.team.id);
    if (!chance.oneIn(4)) await patiently(soak, "a login", () => setLogin(sender, "a password").then(() => true));
    // Its endpoints would miss the events before them; Postgres may be away.
    if (!(await patiently(soak, "endpoints", () => soak.webhooks.addTeam(sender).then(() => true)))) continue;
    const ineligible = new Set<string>();
    for (let issue = chance.between(1, 3); issue > 0 && !soak.over(); issue--) {
      const sendId = await arm(soak, chance, sender, ineligible);
      if (sendId === undefined) break;
      await interfere(soak, chance, { sender, sendId, ineligible });
      const next = await patiently(soak, "a draft", () => anotherNewsletter(sender));
      if (!next) break;
      sender.newsletterId = next.newsletterId;
    }
  }
}

/** From a draft to a confirmed send, with detours. @returns undefined when no recipient is left */
async function arm(soak: Soak, chance: Random, sender: Sender, ineligible: Set<string>): Promise<string | undefined> {
  for (;;) {
    const key = freshKey();
    const previewed = await patiently(soak, "a preview", async () => final(await preview(sender, key)));
    if (!previewed) return undefined;
    if (previewed.body?.error?.code === "sending_domain_unverified") {
      await repairAccount(soak, sender.accountId, { waitsForCheck: chance.oneIn(3) });
      if (soak.over()) return undefined;
      continue;
    }
    if (previewed.status !== 200) {
      if (previewed.body?.error?.code !== "campaign_not_ready") soak.watch.violated(`a preview: ${previewed.text}`);
      return undefined;
    }
    count(soak, "previews");
    const sendId: string = previewed.body.data.id;
    const token: string = previewed.body.data.confirmation.token;
    if (chance.oneIn(6)) {
      await useExpired(soak, sender, sendId);
      continue;
    }
    if (chance.oneIn(12)) {
      await soak.update(sendId, "cancel");
      continue;
    }
    if (chance.oneIn(8)) {
      await sender.client
        .patch(`/newsletters/${sender.newsletterId}`, { subject: `Edited ${key}` })
        .catch(() => undefined);
    }

    // One key, one key twice, several keys, several keys twice: all at once.
    const keys = Array.from({ length: pick(chance, [1, 1, 2, 4]) }, freshKey);
    const requests = chance.oneIn(2) ? keys : [...keys, ...keys];
    const expected = new Set(ineligible);
    soak.watch.forbid(sendId, expected);
    const answers = await Promise.all(
      requests.map((own) =>
        patiently(soak, "a confirm", async () => ({ ...final(await confirm(sender, token, own)), own })),
      ),
    );
    count(soak, "confirms");
    const won = new Set(answers.filter((answer) => answer?.status === 202).map((answer) => answer?.own));
    const texts = new Set(answers.filter((answer) => answer?.status === 202).map((answer) => answer?.text));
    const armed = await patiently(soak, "the send's row", async () => {
      const row = await kysely(sender.em).selectFrom("sends").select("id").where("id", "=", sendId).executeTakeFirst();
      return { exists: row !== undefined };
    });
    const told = [...new Set(answers.map((answer) => `${answer?.status} ${answer?.body?.error?.code ?? ""}`))].join(
      ", ",
    );
    if (won.size > 1 || texts.size > 1)
      soak.watch.violated(`${sendId}: ${won.size} keys armed it, ${texts.size} answers`);
    if (armed && armed.exists !== (won.size === 1)) {
      soak.watch.violated(`${sendId}: armed ${armed.exists}, but its confirms were answered ${told}`);
    }
    if (armed?.exists) {
      await soak.watch.addSend(sendId);
      count(soak, "sends");
      return sendId;
    }
    if (soak.over()) return undefined;
  }
}

/** A token at its end. Its expiry is moved rather than waited for, so the token is made anew. */
async function useExpired(soak: Soak, sender: Sender, sendId: string): Promise<void> {
  const answer = await patiently(soak, "an expired confirm", async () => {
    const { rows } = await sql<{ plan_digest: string; expires_at: string }>`
      update send_previews set expires_at = date_trunc('milliseconds', now()) where id = ${sendId} and used_at is null
      returning plan_digest, expires_at`.execute(kysely(sender.em));
    const [row] = rows;
    if (!row) return undefined;
    const expiresAt = new Date(row.expires_at);
    const facts = { previewId: sendId, apiKeyId: sender.liveKey.record.id, planDigest: row.plan_digest, expiresAt };
    return final(await confirm(sender, confirmationToken(sender.vault, facts)));
  });
  count(soak, "expired previews");
  if (answer && answer.body?.error?.code !== "confirmation_stale") {
    soak.watch.violated(`${sendId}: an expired token was answered ${answer.text}`);
  }
}

/** Does what operators and readers may do at random, until the send has ended. */
async function interfere(soak: Soak, chance: Random, underway: Underway): Promise<void> {
  const { sender, sendId } = underway;
  const db = kysely(sender.em);
  for (const deadline = Date.now() + INTERFERE_MS; !soak.over(); await delay(chance.between(50, 600))) {
    try {
      const send = await db
        .selectFrom("sends")
        .select(["status", "pause_reason", "settled_at"])
        .where("id", "=", sendId)
        .executeTakeFirstOrThrow();
      if (send.settled_at !== null) return;
      if (send.status === "PAUSED") {
        // Resumed at once, the send itself tries the login.
        if (isAccountFailure(send.pause_reason ?? "") && !chance.oneIn(3))
          await repairAccount(soak, sender.accountId, { waitsForCheck: chance.oneIn(3) });
        count(soak, "resumes");
        await soak.update(sendId, "resume");
        continue;
      }
      if (Date.now() > deadline) return;
      const roll = chance.between(1, 20);
      if (roll <= 4) await pause(soak, underway);
      else if (roll === 5 && chance.oneIn(3)) {
        count(soak, "cancels");
        await soak.update(sendId, "cancel");
      } else if (roll <= 7) await unsubscribe(soak, chance, underway);
      else if (roll <= 9) await suppress(soak, underway, [`person${chance.between(0, 499)}@${sender.audience}`]);
      else if (roll <= 10) await soak.update(sendId, "retry");
      else if (roll <= 12) await move(soak, chance, sender);
      else if (roll <= 14) {
        const done = await soak.webhooks.meddle(sender, chance);
        if (done !== undefined) count(soak, done);
      }
    } catch {
      count(soak, "tried again");
    }
  }
}

/** Acts as an operator until the account is ACTIVE, which a check of the account may make it first. */
async function repairAccount(
  soak: Soak,
  accountId: string,
  { waitsForCheck = false }: { waitsForCheck?: boolean } = {},
): Promise<void> {
  const resumesFrom = Date.now() + (waitsForCheck ? UNTIL_CHECKED_MS : 0);
  await patiently(soak, `account ${accountId} ACTIVE`, async () => {
    if (!(await soak.watch.failedAccounts()).includes(accountId)) return true;
    if (Date.now() < resumesFrom && !soak.over()) return undefined;
    if ((await app("account:resume", "--account", accountId)).code === 0) count(soak, "accounts resumed");
    return undefined;
  });
}

/** Pauses the send; while no mail is in flight, suppresses addresses that are still queued. */
async function pause(soak: Soak, underway: Underway): Promise<void> {
  const { sender, sendId } = underway;
  const answer = await soak.update(sendId, "pause");
  if (answer !== "PAUSED") return;
  count(soak, "pauses");
  const rows = await kysely(sender.em)
    .selectFrom("send_recipients")
    .select(["email", "state"])
    .where("send_id", "=", sendId)
    .where("state", "in", ["SENDING", "QUEUED"])
    .orderBy("seq", "desc")
    .execute();
  const sending = rows.filter(({ state }) => state === "SENDING").length;
  if (sending > 0) soak.watch.violated(`${sendId}: ${sending} rows SENDING after its pause was acknowledged`);
  const queued = rows
    .filter(({ state }) => state === "QUEUED")
    .slice(0, 2)
    .map(({ email }) => email);
  if (queued.length > 0 && (await suppress(soak, underway, queued))) soak.watch.forbid(sendId, new Set(queued));
}

async function suppress(soak: Soak, { sender, ineligible }: Underway, emails: string[]): Promise<boolean> {
  const answer = await sender.client.post("/suppressions", { emails });
  if (answer.status !== 200) return false;
  for (const email of emails) ineligible.add(email);
  count(soak, "suppressions");
  return true;
}

async function unsubscribe(soak: Soak, chance: Random, { sender, sendId, ineligible }: Underway): Promise<void> {
  const rows = await kysely(sender.em)
    .selectFrom("send_recipients")
    .select(["seq", "email"])
    .where("send_id", "=", sendId)
    .where("state", "=", "SENT")
    .execute();
  if (rows.length === 0) return;
  const { seq, email } = pick(chance, rows);
  const url = unsubscribeUrl(sender.vault, (await stack()).origin, { sendId, seq });
  const body = new URLSearchParams({ "List-Unsubscribe": "One-Click" });
  if ((await fetch(url, { method: "POST", body })).status !== 200) return;
  ineligible.add(email);
  count(soak, "unsubscribes");
}

async function move(soak: Soak, chance: Random, { em, team, client, audience }: Sender): Promise<void> {
  const rows = await kysely(em).selectFrom("subscribers").select("id").where("team_id", "=", team.id).execute();
  if (rows.length === 0) return;
  const email = `moved${chance.between(0, 1e9)}@${audience}`;
  const answer = await client.patch(`/subscribers/${pick(chance, rows).id}`, { email });
  if (answer.status === 200) count(soak, "changed addresses");
}

async function kill(soak: Soak, postgres: PostgresPair, chance: Random): Promise<void> {
  // The last one of each, and not all: the system gives the ID of an ended process to another one.
  const killed = new Map<string, number>();
  while (!soak.over()) {
    await delay(chance.between(2_000, 8_000));
    const [name, signal] = pick(chance, KILLED);
    const pid = name === "postgres" ? postgres.primaryPid : currentPids()[name];
    if (soak.over() || pid === undefined || killed.get(name) === pid) continue;
    killed.set(name, pid);
    try {
      process.kill(pid, signal);
      count(soak, `kills of ${name}`);
    } catch {
      // It is being started again.
    }
  }
}

/** Has the standby of Postgres take over again and again. */
async function failOver(soak: Soak, postgres: PostgresPair, chance: Random): Promise<void> {
  for (;;) {
    const nextAt = Date.now() + 1_000 * chance.between(...FAILOVERS_AFTER_S);
    while (Date.now() < nextAt && !soak.over()) await delay(500);
    if (soak.over()) return;
    await postgres.failOver();
    count(soak, "failovers of postgres");
  }
}

/** Runs a sequence until the end of the soak. */
async function runSequence(soak: Soak, chance: Random, sequence: SoakSequence): Promise<void> {
  await soak.watch.addTeam(sequence.sender.team.id);
  for (; !soak.over(); await delay(chance.between(200, 1_000))) {
    try {
      count(soak, await sequence.meddle(chance));
      for (const { id, status } of await sequence.waves()) {
        await soak.watch.addSend(id);
        if (status === "SENDING" && chance.oneIn(100)) await soak.update(id, "cancel");
      }
      if (chance.oneIn(5)) await operateSequence(soak, sequence);
    } catch {
      count(soak, "tried again");
    }
  }
}

/** Resumes the sequence and its waves, and repairs its account. */
async function operateSequence(soak: Soak, sequence: SoakSequence): Promise<void> {
  for (const { id, status } of await sequence.waves()) {
    await soak.watch.addSend(id);
    if (status === "PAUSED") await soak.update(id, "resume");
  }
  const reason = await sequence.resume();
  if (reason === undefined) return;
  count(soak, `resumes of the sequence after ${reason}`);
  if (reason === "account_not_active") await repairAccount(soak, sequence.sender.accountId);
}

/** Waits until no person waits in the sequence. */
async function untilSequenceDone(soak: Soak, sequence: SoakSequence): Promise<void> {
  for (const deadline = Date.now() + END_WITHIN_MS; Date.now() < deadline; await delay(1_000)) {
    await operateSequence(soak, sequence).catch(() => count(soak, "tried again"));
    if (await sequence.isDone().catch(() => false)) return;
  }
}

/** Has the SMTP server misbehave, and at last behave. */
async function disturbMail(soak: Soak, chance: Random): Promise<void> {
  let refusal: readonly FaultRule[] = [];
  let turns = 0;
  while (!soak.over()) {
    if (turns-- === 0) {
      refusal = refusal.length === 0 && chance.oneIn(2) ? pick(chance, REFUSED_LOGINS) : [];
      turns = chance.between(0, 3);
      if (refusal.length > 0) count(soak, "refusals of logins");
    }
    const digit = chance.between(0, 9);
    const faults = Array.from({ length: chance.between(0, 2) }, () => pick(chance, FAULTS)(digit));
    await setFaults([...refusal, ...faults, ...(chance.oneIn(2) ? [SLOW] : [])]);
    count(soak, "SMTP faults");
    await delay(chance.between(1_000, 5_000));
  }
  await setFaults([]);
}

/** Waits until no delivery is on its way any more. */
async function untilDelivered(soak: Soak): Promise<void> {
  soak.webhooks.repair();
  for (const deadline = Date.now() + END_WITHIN_MS; ; await delay(500)) {
    const left = await soak.webhooks.underWay().catch(() => "what, Postgres does not say");
    if (left === undefined) return;
    if (Date.now() > deadline) return soak.watch.violated(`webhooks are under way at the end: ${left}`);
  }
}

/** Once nothing fails any more: waits for every send to end, and repairs the accounts. */
async function bringHome(soak: Soak, sequence: SoakSequence): Promise<void> {
  await untilSequenceDone(soak, sequence);
  await untilEnded(soak);
  const failed = await patiently(soak, "the accounts", () => soak.watch.failedAccounts());
  for (const id of failed ?? []) await repairAccount(soak, id);
}

async function untilEnded(soak: Soak): Promise<void> {
  for (const deadline = Date.now() + END_WITHIN_MS; ; await delay(500)) {
    const open = await soak.watch.openSends().catch(() => undefined);
    if (open?.length === 0) return;
    if (Date.now() > deadline) {
      for (const { id, status, refusal } of open ?? []) {
        const seen = await soak.look(id).catch((error) => `no details: ${error}`);
        soak.watch.violated(`${id} is still ${status} at the end: ${seen} Refusal: ${JSON.stringify(refusal)}`);
      }
      return;
    }
    await Promise.all((open ?? []).map(({ id, status }) => status === "PAUSED" && soak.update(id, "resume")));
  }
}

/** @param postgres undefined where another process runs the stack: then nothing is killed */
async function run(seed: number, receiverPort: number, postgres?: PostgresPair): Promise<boolean> {
  const startedAt = Date.now();
  const temporal = await temporalClient();
  const watch = await Watch.open();
  const webhooks = await Webhooks.open(receiverPort, seed);
  const sequence = await SoakSequence.make();
  const soak: Soak = {
    watch,
    webhooks,
    over: () => isToldToEnd || Date.now() > startedAt + minutes * 60_000,
    counts: new Map(),
    update: async (sendId, name) => {
      const handle = temporal.client.workflow.getHandle(sendWorkflowId(sendId));
      try {
        return await temporal.client.withDeadline(Date.now() + UPDATE_DEADLINE_MS, () =>
          handle.executeUpdate<string, []>(name),
        );
      } catch {
        count(soak, "updates without an answer");
        return undefined;
      }
    },
    look: (sendId) =>
      temporal.client.withDeadline(Date.now() + UPDATE_DEADLINE_MS, async () => {
        const handle = temporal.client.workflow.getHandle(sendWorkflowId(sendId));
        const { status, historyLength, raw } = await handle.describe();
        const { currentDetails } = await handle.query<{ currentDetails: string }>("__temporal_workflow_metadata");
        const pending = (raw.pendingActivities ?? []).map(
          ({ activityType, attempt, state, lastWorkerIdentity }) =>
            `${activityType?.name}, attempt ${attempt}, state ${state}, ${lastWorkerIdentity}`,
        );
        return `${status.name} after ${historyLength} events, "${currentDetails}", [${pending.join("; ")}]`;
      }),
  };
  const line = () => {
    const seconds = Math.round((Date.now() - startedAt) / 1_000);
    const counts = [...soak.counts].map(([what, times]) => `${what} ${times}`).sort();
    return `${seconds} s: mails ${watch.caught}, webhooks ${webhooks.arrivals}, violations ${watch.violations.size}, ${counts.join(", ")}`;
  };
  const telling = setInterval(() => console.log(line()), TELL_EVERY_MS);
  const ended = new AbortController();
  const checking = (async () => {
    while (!ended.signal.aborted) {
      // While Postgres is away nothing can be checked.
      await watch.check().catch(() => count(soak, "checks put off"));
      await delay(CHECK_EVERY_MS);
    }
  })();
  try {
    const actors = Array.from({ length: ACTORS }, (_, i) => act(soak, random(seed, `actor ${i}`)));
    await Promise.all([
      ...actors,
      ...(postgres
        ? [kill(soak, postgres, random(seed, "kills")), failOver(soak, postgres, random(seed, "failovers"))]
        : []),
      disturbMail(soak, random(seed, "mail")),
      runSequence(soak, random(seed, "sequence"), sequence),
    ]);
    await bringHome(soak, sequence);
    ended.abort();
    await checking;
    await patiently(soak, "the last check", () => watch.checkAtEnd().then(() => true));
    await untilDelivered(soak);
    await patiently(soak, "the last check of webhooks", () =>
      webhooks.check((what) => watch.violated(what)).then(() => true),
    );
    const people = await patiently(soak, "the people of the sequence", () =>
      sequence.check((what) => watch.violated(what)),
    );
    Object.assign(watch.summary, people, await webhooks.summary());
  } catch (error) {
    // Work that is under way may end the process before the error reaches its caller.
    console.error(error);
    throw error;
  } finally {
    clearInterval(telling);
    ended.abort();
    await watch.close();
    await webhooks.close();
    await temporal.close();
  }
  console.log(`\nseed ${seed}\n${line()}\nends: ${JSON.stringify(watch.summary)}`);
  for (const violation of watch.violations) console.log(`VIOLATED: ${violation}`);
  if (watch.violations.size === 0) console.log("everything held");
  return watch.violations.size === 0;
}

const program = new Command("soak")
  .description("Sends at random while processes die and SMTP fails, and checks what must always hold.")
  .option("--minutes <n>", "how long", wholeNumber(1), 10)
  .option("--seed <n>", "what is tried", wholeNumber(0), Math.floor(Math.random() * 1e6))
  .option("--stack <file>", "stack.json of a running stack; nothing of it is killed, and SIGTERM ends the soak sooner")
  .parse();
const { minutes, seed, stack: given } = program.opts<{ minutes: number; seed: number; stack?: string }>();
console.log(`soak for ${minutes} min with seed ${seed}`);
let isToldToEnd = false;

async function soakGiven(file: string): Promise<boolean> {
  process.once("SIGTERM", () => {
    isToldToEnd = true;
  });
  const { api, webhooks }: StackFile = JSON.parse(readFileSync(file, "utf8"));
  // Its API may be of a later version, whose answers say more.
  leaveUndocumented(api);
  return withStack({ stack: file }, () => run(seed, Number(new URL(webhooks.receiver ?? "").port)));
}

async function soakOwn(): Promise<boolean> {
  const receiver = await Webhooks.reservePort();
  const postgres = await PostgresPair.start();
  const settings = { ...SETTINGS, ...postgres.settings, WEBHOOK_ALLOWED_HOSTS: `127.0.0.1:${receiver}` };
  try {
    return await withStack({ settings, quiet: true }, () => run(seed, receiver, postgres));
  } finally {
    await postgres.stop();
  }
}

process.exit((await (given === undefined ? soakOwn() : soakGiven(given))) ? 0 : 1);

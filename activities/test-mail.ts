import { Context } from "@temporalio/activity";
import type { MailOutcome } from "../domain/mail/outcome.ts";
import { readDraft } from "../domain/sends/drafts/draft.ts";
import { returnQuota, takeQuota } from "../domain/sends/ledger/account-capacity.ts";
import { composeMails, readContent } from "../domain/sends/ledger/content.ts";
import { readTestRecipients, type TestMail, type TestOutcome } from "../domain/sends/plan/test-mail.ts";
import { elapsedMs } from "../lib/elapsed.ts";
import type { AccountPools } from "./account-pools.ts";
import type { ActivityDeps } from "./deps.ts";

/** Mails a draft once to members who are not suppressed, over its first account, outside of every ledger. */
export async function sendTestMail(deps: ActivityDeps, pools: AccountPools, test: TestMail): Promise<TestOutcome[]> {
  const em = deps.orm.em.fork();
  const outcomes = new Map<string, MailOutcome>();
  const ended = (reason: string) =>
    test.memberIds.map((memberId) => outcomeOf(memberId, outcomes.get(memberId), reason));
  const { accounts, targetIds, tracking } = await readDraft(em, test, test.resource, { lock: false });
  const [account] = accounts;
  if (!account) return ended("account_gone");
  const lane = { ...test, sendId: test.testId, accountId: account.id, tracking };
  const content = await readContent(em, lane);
  const fill = await composeMails(deps, lane, { ...content, subject: `[Test] ${content.subject}` });
  const members = await readTestRecipients(em, test, test.memberIds);
  const recipients = members
    .filter(({ suppressed }) => !suppressed)
    .map(({ id, email, name }, index) => {
      const [firstName = null, ...last] = name.split(" ");
      const lastName = last.join(" ") || null;
      return {
        ...{ memberId: id, seq: index + 1, email, firstName, lastName, fields: null, tracked: false },
        ...{ listId: targetIds[0] ?? null, stagedAt: elapsedMs(), wasDeferred: false },
      };
    });
  const quota = await takeQuota(em, account.id, content.limits, recipients.length);
  const allowed = recipients.slice(0, quota.granted);
  const held = await pools.acquire(lane, {});
  if (!("pool" in held)) {
    await returnQuota(em, account.id, quota, quota.granted);
    return ended(held.refusal?.reason ?? "account_busy");
  }
  try {
    const batches = async function* () {
      yield allowed;
    };
    const signal = AbortSignal.any([Context.current().cancellationSignal, deps.stopping]);
    for await (const mailed of held.pool.drain(batches(), { fill, signal })) {
      for (const { item, outcome } of mailed) outcomes.set(item.memberId, outcome);
    }
  } finally {
    pools.release(account.id, held);
  }
  return ended(allowed.length < recipients.length ? "account_full" : "suppressed");
}

function outcomeOf(memberId: string, mailed: MailOutcome | undefined, without: string): TestOutcome {
  if (!mailed) return { memberId, outcome: "not_sent", reason: without };
  const { outcome, reason } = mailed;
  return { memberId, outcome: outcome === "sent" || outcome === "unknown" ? outcome : "not_sent", reason };
}

import assert from "node:assert/strict";
import { sql } from "kysely";
import type { AccountProvider } from "../../db/entities/account.ts";
import { kysely } from "../../db/orm.ts";
import { readAccountFacts } from "../../domain/sends/operators/account-inspection.ts";
import { textsIn } from "../histories/files.ts";
import { useSendWorkflows } from "../support/send-workflows.ts";
import {
  beginToday,
  caughtMails,
  confirm,
  credits,
  ledgerStates,
  makeSender,
  readMail,
  type Sender,
  sendAndWait,
  setFaults,
  slowAfter,
  startSend,
  startTomorrow,
  tokenOf,
  untilSent,
  untilStatus,
} from "../support/sending.ts";

const addressesOf = async (sender: Sender) => (await caughtMails(sender)).flatMap(({ to }) => to).sort();

const at = (sender: Sender, ...numbers: number[]) => numbers.map((n) => `person${n}@${sender.audience}`).sort();

const sumOf = (states: Partial<Record<string, number>>) =>
  Object.values(states).reduce<number>((a, b) => a + (b ?? 0), 0);

describe("Dispatch", () => {
  const temporal = useSendWorkflows();
  afterEach(() => setFaults([]));

  it("names the mail in a header to a provider that gives it back in its reports, and to no other provider", async () => {
    const sent = async (provider: AccountProvider) => {
      const sender = await makeSender({ recipients: 1, account: { provider } });
      await sendAndWait(sender);
      const [caught] = await caughtMails(sender);
      assert.ok(caught);
      const { headers, messageId } = await readMail(caught.id);
      const id = /^<(.+)@/.exec(messageId ?? "")?.[1] ?? assert.fail("no Message-ID");
      const naming = headers.filter(({ key, value }) => key.startsWith("x-") && value.includes(id));
      return { id, named: naming.map(({ key, value }) => [key, value]) };
    };
    const [sendGrid, mailjet, other] = await Promise.all(
      (["SMTP_SENDGRID", "SMTP_MAILJET", "SMTP_OTHER"] as const).map(sent),
    );
    const value = JSON.stringify({ unique_args: { mailkeel_mail: sendGrid?.id } });
    assert.deepEqual(sendGrid?.named, [["x-smtpapi", value]]);
    assert.deepEqual(mailjet?.named, [["x-mj-customid", mailjet?.id]]);
    assert.deepEqual(other?.named, []);
  });

  it("leaves out recipients that are suppressed, opt out or are deleted between confirm and dispatch", async () => {
    const sender = await makeSender({ recipients: 5 });
    const { data } = await startTomorrow(sender);
    const idOf = async (n: number): Promise<string> =>
      (await sender.client.get("/subscribers", { query: { email: `person${n}@${sender.audience}` } })).body.data[0].id;
    await sender.client.post("/suppressions", { emails: [`person0@${sender.audience}`] });
    await sender.client.patch(`/lists/${sender.listId}/subscribers/${await idOf(1)}`, { status: "UNSUBSCRIBED" });
    await sender.client.patch(`/subscribers/${await idOf(2)}`, { email: `moved@${sender.audience}` });
    assert.equal((await sender.client.delete(`/subscribers/${await idOf(4)}`)).status, 200);
    await beginToday(sender, data.id);
    await untilStatus(sender, ["SENT"]);
    assert.deepEqual(await addressesOf(sender), at(sender, 3));
    assert.deepEqual(await ledgerStates(sender), { SENT: 1, SUPPRESSED: 4 });
    assert.deepEqual(await credits(sender), { available: 999_999, reserved: 0, mismatch: false });
  });

  it("pauses when the account's server is within this network, and connects to it no more", async () => {
    const sender = await makeSender({ recipients: 2, account: { host: "10.0.0.1", port: 25 } });
    const { data } = await startSend(sender);
    await untilStatus(sender, ["PAUSED"]);
    const { rows } = await sql<{ reason: string; error: string | null }>`
    select s.pause_reason as reason, a.last_error as error
    from sends s join send_lanes l on l.send_id = s.id join email_accounts a on a.id = l.account_id
    where s.id = ${data.id}`.execute(kysely(sender.em));
    assert.deepEqual(rows, [{ reason: "server_forbidden", error: "server_forbidden" }]);
    assert.deepEqual(await ledgerStates(sender), { QUEUED: 2 });
  });

  it("blames no account for twenty refusals of one domain in a row", async () => {
    const sender = await makeSender({ recipients: 20, account: { maxConnections: 1 } });
    await setFaults([{ stage: "data", match: sender.audience, code: 554, message: "5.7.1 blocked" }]);
    await startSend(sender);
    await untilStatus(sender, ["PAUSED"]);
    await setFaults([]);
    assert.deepEqual(await ledgerStates(sender), { QUEUED: 20 });
    assert.equal((await readAccountFacts(sender.em.fork(), sender.accountId)).status, "ACTIVE");
  });

  it("treats a cancel in the UI like the cancel update", async () => {
    const recipients = 60;
    const sender = await makeSender({ recipients, credits: recipients, account: { maxConnections: 1 } });
    await slowAfter(10, sender);
    const { data } = await startSend(sender);
    await untilSent(sender, 3);
    const handle = temporal.workflowOf(data.id);
    await handle.cancel();
    assert.equal(((await handle.result()) as { outcome: string }).outcome, "CANCELLED");
    const states = await ledgerStates(sender);
    assert.deepEqual(Object.keys(states).sort(), ["CANCELLED", "SENT"]);
    assert.equal(sumOf(states), recipients);
    assert.deepEqual(await credits(sender), {
      available: recipients - (states["SENT"] ?? 0),
      reserved: 0,
      mismatch: false,
    });
  });

  it("voids the token of a preview that an operator cancels", async () => {
    const sender = await makeSender();
    const token = await tokenOf(sender);
    await temporal.command(token.split(".")[0] ?? "", "cancel");
    const answer = await confirm(sender, token);
    assert.equal(answer.body.error?.code, "confirmation_stale", answer.text);
    assert.match(answer.body.error.message, /operator cancelled/, "it says what made the token void");
  });

  it("writes no address, name, subject or token into a workflow's history", async () => {
    const sender = await makeSender({ recipients: 2, subject: "Secret subject" });
    const { data } = await startSend(sender);
    await untilStatus(sender, ["SENT"]);
    const handle = temporal.workflowOf(data.id);
    await handle.result();
    const history = await handle.fetchHistory();
    const text = textsIn(history).join("\n");
    assert.ok(text.includes(sender.newsletterId), "the decoding works");
    for (const secret of [sender.audience, sender.domain, "First0", "Secret subject", sender.keys.live]) {
      assert.ok(!text.includes(secret), `${secret} is in the history`);
    }
  });
});

import assert from "node:assert/strict";
import { sql } from "kysely";
import { kysely } from "../../db/orm.ts";
import { recountFigures } from "../../domain/analytics/recount.ts";
import { recordReports } from "../../domain/reports/record.ts";
import { textsIn } from "../histories/files.ts";
import { live, mailed, reasonOf } from "../reports/mails.ts";
import { eventually } from "../support/eventually.ts";
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
import { stack } from "../support/stack.ts";

const addressesOf = async (sender: Sender) => (await caughtMails(sender)).flatMap(({ to }) => to).sort();

const at = (sender: Sender, ...numbers: number[]) => numbers.map((n) => `person${n}@${sender.audience}`).sort();

const sumOf = (states: Partial<Record<string, number>>) =>
  Object.values(states).reduce<number>((a, b) => a + (b ?? 0), 0);

describe("Dispatch", () => {
  const temporal = useSendWorkflows();
  afterEach(() => setFaults([]));

  it("names the mail in a header to SendGrid, which gives it back in its reports, and to no other provider", async () => {
    for (const provider of ["SMTP_SENDGRID", "SMTP_OTHER"] as const) {
      const sender = await makeSender({ recipients: 1, account: { provider } });
      await sendAndWait(sender);
      const [caught] = await caughtMails(sender);
      assert.ok(caught);
      const { headers, messageId } = await readMail(caught.id);
      const given = headers.find(({ key }) => key === "x-smtpapi")?.value;
      const id = /^<(.+)@/.exec(messageId ?? "")?.[1];
      const expected = provider === "SMTP_SENDGRID" ? { unique_args: { mailkeel_mail: id } } : undefined;
      assert.deepEqual(given && JSON.parse(given), expected);
    }
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

  it("counts the refusal of a recipient like a soft bounce by mail, unless it is about the sender", async () => {
    const sender = await makeSender({ recipients: 5 });
    const [full = "", blocked = "", overQuota = "", disabled = ""] = at(sender, 0, 1, 2, 3);
    const { env } = await stack();
    for (let bounces = 1; bounces < env.SOFT_BOUNCES_TO_SUPPRESS; bounces++) {
      const { sendId } = await mailed(sender, [full, blocked, overQuota, disabled]);
      const reports = [1, 2, 3, 4].map((seq) => ({ sendId, seq, kind: "bounce:soft" as const }));
      await recordReports(sender.em.fork(), reports, env);
    }
    await setFaults([
      { stage: "rcpt", match: full, code: 552, message: "5.2.2 Mailbox full" },
      { stage: "rcpt", match: blocked, code: 550, message: "5.7.1 Not welcome" },
      { stage: "rcpt", match: overQuota, code: 452, message: "4.2.2 Over quota" },
      { stage: "rcpt", match: disabled, code: 550, message: "5.2.1 Mailbox disabled" },
    ]);
    const { data } = await startSend(sender);
    await eventually(async () => (await ledgerStates(sender)).DEFERRED === 1, { what: "a deferral" });
    assert.equal(await reasonOf(sender, overQuota), undefined, "a deferred recipient may get the mail yet");
    await sql`update send_recipients set first_deferred_at = now() - interval '2 days'
      where send_id = ${data.id} and state = 'DEFERRED'`.execute(kysely(sender.em));
    await untilStatus(sender, ["SENT"]);
    assert.deepEqual(await ledgerStates(sender), { REJECTED: 3, EXPIRED: 1, SENT: 1 });
    const reasons = await Promise.all([full, blocked, overQuota, disabled].map((email) => reasonOf(sender, email)));
    assert.deepEqual(reasons, ["bounce:soft", undefined, "bounce:soft", "bounce:soft"]);
    const { rows } = await sql`select r.state, p.kind, r.responded from mail_reports p
      join send_recipients r on r.send_id = p.send_id and r.seq = p.seq
      where p.send_id = ${data.id} order by r.seq`.execute(kysely(sender.em));
    assert.deepEqual(
      rows,
      ["REJECTED", "EXPIRED", "REJECTED"].map((state) => ({ state, kind: "refusal:soft", responded: false })),
    );
    const query = { resource_id: sender.newsletterId };
    const { totals } = (await sender.client.get("/analytics/overview", { query })).body.data;
    assert.deepEqual([totals.sent, totals.rejected, totals.bounced_soft], [1, 3, 0], "a refusal is no bounce");
    const differing = await recountFigures(sender.em.fork(), live(sender), { repair: false });
    assert.deepEqual(
      differing.filter(({ resourceId }) => resourceId === sender.newsletterId),
      [],
    );
  });

  it("fails the send, and keeps no credit, when nothing could be sent", async () => {
    const sender = await makeSender({ recipients: 2, credits: 5 });
    await setFaults([{ stage: "rcpt", match: sender.audience, code: 550, message: "5.1.1 no" }]);
    assert.equal((await sendAndWait(sender)).status, "FAILED");
    assert.deepEqual(await credits(sender), { available: 5, reserved: 0, mismatch: false });
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

  it("pauses after twenty policy refusals in a row, and after twenty more when it is resumed", async () => {
    const sender = await makeSender({ recipients: 60, account: { maxConnections: 1 } });
    await setFaults([{ stage: "data", match: sender.audience, code: 554, message: "5.7.1 blocked" }]);
    const { data } = await startSend(sender);
    await untilStatus(sender, ["PAUSED"]);
    assert.deepEqual(await ledgerStates(sender), { REJECTED: 20, QUEUED: 40 });
    await temporal.command(data.id, "resume");
    await untilStatus(sender, ["PAUSED"]);
    assert.deepEqual(await ledgerStates(sender), { REJECTED: 40, QUEUED: 20 });
    await setFaults([]);
    await temporal.command(data.id, "resume");
    await untilStatus(sender, ["SENT"]);
    assert.deepEqual(await ledgerStates(sender), { REJECTED: 40, SENT: 20 });
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

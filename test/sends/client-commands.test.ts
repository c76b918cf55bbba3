import assert from "node:assert/strict";
import { sql } from "kysely";
import { appRouter } from "../../api/router.ts";
import type { BroadcastStatus } from "../../db/entities/send.ts";
import { kysely } from "../../db/orm.ts";
import { type ClientCommand, commandRefusal } from "../../domain/sends/client-commands.ts";
import { overviewSends } from "../../domain/sends/operators/overview.ts";
import { RECONCILER_ID } from "../../temporal/ids.ts";
import { DETAILS } from "../../workflows/send-messages.ts";
import { type ApiAnswer, api, codeOf, tally } from "../support/api.ts";
import { serveRoutes } from "../support/app.ts";
import { eventually } from "../support/eventually.ts";
import { useSendWorkflows } from "../support/send-workflows.ts";
import {
  type AnySender,
  caughtMails,
  credits,
  ledgerStates,
  makeCampaignSender,
  makeSender,
  pathOf,
  setFaults,
  slowAfter,
  startSend,
  startTomorrow,
  tableOf,
  untilSent,
  untilStatus,
} from "../support/sending.ts";
import { together } from "../support/together.ts";

const give = (sender: AnySender, command: ClientCommand, options = {}): Promise<ApiAnswer> =>
  sender.client.post(`${pathOf(sender)}/${command}`, undefined, options);

const outcomeOf = (answer: ApiAnswer): string =>
  answer.status === 200 ? `${answer.body.data.status} ${answer.body.data.status_reason}` : codeOf(answer);

describe("A client's command is refused", () => {
  const refusals = (command: ClientCommand, reason: string | null = null) =>
    (["DRAFT", "SCHEDULED", "SENDING", "PAUSED", "SENT", "CANCELLED", "FAILED"] as BroadcastStatus[]).filter(
      (status) => commandRefusal(command, status, reason) !== undefined,
    );

  it("in every status but those that it leaves", () => {
    assert.deepEqual(refusals("pause"), ["DRAFT", "PAUSED", "SENT", "CANCELLED", "FAILED"]);
    assert.deepEqual(refusals("cancel"), ["DRAFT", "SENT", "CANCELLED", "FAILED"]);
    assert.deepEqual(refusals("resume", "paused_by_client"), [
      ...["DRAFT", "SCHEDULED", "SENDING", "SENT", "CANCELLED", "FAILED"],
    ]);
  });

  for (const [reason, code] of [
    ["paused_by_client", undefined],
    ["login_refused", undefined],
    ["acct_1 login_refused, acct_2 account_not_active", undefined],
    ["complaint_rate_exceeded", "complaint_rate_exceeded"],
    [null, "resource_state_invalid"],
    ["database_restored", "resource_state_invalid"],
    ["workflow_ended", "resource_state_invalid"],
  ] as const) {
    it(`or not, as a resume of what ${reason ?? "an operator"} paused: ${code ?? "it continues"}`, () => {
      assert.equal(commandRefusal("resume", "PAUSED", reason)?.code, code);
    });
  }
});

describe("A client that stops what it started", () => {
  const it = together();
  const temporal = useSendWorkflows();
  const { command, statusShown, untilDetails, workflowOf } = temporal;
  after(() => setFaults([]));

  const untilShown = (sendId: string, status: string) =>
    eventually(async () => (await statusShown(sendId)) === status, { what: `${status} in the UI` });

  it("pauses and resumes a send under way: only mails in flight leave, and no recipient gets it twice", async () => {
    const sender = await makeSender({ recipients: 12, account: { maxConnections: 1 } });
    await slowAfter(2, sender);
    const sendId: string = (await startSend(sender)).data.id;
    await untilSent(sender, 1);
    assert.equal(outcomeOf(await give(sender, "pause")), "PAUSED paused_by_client");
    await untilDetails(sendId, DETAILS.pausedByClient);
    const { SENT: sent = 0, QUEUED: queued = 0 } = await ledgerStates(sender);
    assert.equal(sent + queued, 12);
    assert.ok(queued > 0);
    await setFaults([], sender.audience);
    assert.equal(outcomeOf(await give(sender, "resume")), "SENDING null");
    await untilStatus(sender, ["SENT"]);
    const addresses = (await caughtMails(sender)).flatMap(({ to }) => to);
    assert.deepEqual([addresses.length, new Set(addresses).size], [12, 12]);
    assert.equal(outcomeOf(await give(sender, "cancel")), "resource_state_invalid");
  });

  it("cancels a campaign under way, once of eight at a time, and the credits come back once", async () => {
    const sender = await makeCampaignSender({ recipients: 20, credits: 20, account: { maxConnections: 1 } });
    await slowAfter(2, sender);
    const sendId: string = (await startSend(sender)).data.id;
    await untilSent(sender, 1);
    const answers = await Promise.all(Array.from({ length: 8 }, () => give(sender, "cancel")));
    assert.deepEqual(tally(answers.map(outcomeOf)), { "CANCELLED null": 1, resource_state_invalid: 7 });
    assert.equal(((await workflowOf(sendId).result()) as { outcome: string }).outcome, "CANCELLED");
    const { CANCELLED: cancelled = 0, ...others } = await ledgerStates(sender);
    assert.ok(cancelled > 0);
    assert.deepEqual(Object.keys(others), ["SENT"]);
    assert.deepEqual(await credits(sender), { available: cancelled, reserved: 0, mismatch: false });
  });

  it("shares its send with an operator, whose pause it does not lift, under an Idempotency-Key as well", async () => {
    const sender = await makeSender();
    assert.equal(outcomeOf(await give(sender, "cancel")), "resource_state_invalid", "a draft is deleted");
    const sendId: string = (await startTomorrow(sender)).data.id;
    const first = await give(sender, "pause", { idempotencyKey: sendId });
    assert.equal(outcomeOf(first), "PAUSED paused_by_client");
    assert.equal((await give(sender, "pause", { idempotencyKey: sendId })).text, first.text);
    assert.equal(outcomeOf(await give(sender, "pause")), "resource_state_invalid");
    await untilShown(sendId, "PAUSED");
    const { needingOperator } = await overviewSends(sender.em.fork());
    assert.equal(needingOperator["paused_by_client"], undefined);
    assert.equal(await command(sendId, "pause"), "PAUSED");
    assert.equal(outcomeOf(await give(sender, "resume")), "resource_state_invalid");
    assert.equal(await command(sendId, "resume"), "continues");
    assert.equal(outcomeOf(await give(sender, "pause")), "PAUSED paused_by_client");
    await untilShown(sendId, "PAUSED");
    assert.equal(outcomeOf(await give(sender, "resume")), "SCHEDULED null");
    await untilShown(sendId, "SCHEDULED");
    await sql`update ${tableOf(sender)} set status = 'PAUSED', status_reason = 'complaint_rate_exceeded'
      where id = ${sender.newsletterId}`.execute(kysely(sender.em));
    const refused = await give(sender, "resume");
    assert.deepEqual([refused.status, codeOf(refused)], [403, "complaint_rate_exceeded"]);
    assert.equal(outcomeOf(await give(sender, "cancel")), "CANCELLED null");
    const never = await give(sender, "pause", { idempotencyKey: `${sendId}-2` });
    assert.match(never.body.error.message, /^It is CANCELLED: it can be paused while it is SCHEDULED or SENDING\.$/);
    await workflowOf(sendId).result();
    assert.deepEqual(await credits(sender), { available: 1_000_000, reserved: 0, mismatch: false });
  });

  it("needs no Temporal: the workflow follows when the reconciler looks", async () => {
    const app = await serveRoutes(appRouter, { changes: { TEMPORAL_ADDRESS: "127.0.0.1:1" } });
    try {
      const sender = await makeSender();
      const sendId: string = (await startTomorrow(sender)).data.id;
      const away = { ...sender, client: api(sender.keys.live, app.base) };
      const dry = await give(away, "pause", { query: { dry_run: true } });
      assert.deepEqual(dry.body.meta.impact.affected_ids, [sender.newsletterId]);
      assert.equal((await untilStatus(sender, ["SCHEDULED"])).status_reason, null);
      assert.equal(outcomeOf(await give(away, "pause")), "PAUSED paused_by_client");
      assert.equal(await statusShown(sendId), "SCHEDULED");
      await temporal.client.schedule.getHandle(RECONCILER_ID).trigger();
      await untilShown(sendId, "PAUSED");
      await command(sendId, "cancel");
    } finally {
      await app.close();
    }
  });
});

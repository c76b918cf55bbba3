import assert from "node:assert/strict";
import { sql } from "kysely";
import { DateTime } from "luxon";
import { kysely, ofTenant } from "../../db/orm.ts";
import { transaction } from "../../db/transaction.ts";
import { readAccess } from "../../domain/access/key-lookup.ts";
import { rescheduleSend } from "../../domain/sends/client-commands.ts";
import { readDraft } from "../../domain/sends/drafts/draft.ts";
import { checkPlan } from "../../domain/sends/plan/confirm-refusals.ts";
import { resolvePlan } from "../../domain/sends/plan/plan.ts";
import { WAKE_UP } from "../../temporal/ids.ts";
import { codeOf } from "../support/api.ts";
import { clientAs, consoleClient, refusalCodeOf, signIn } from "../support/console.ts";
import { makeMember } from "../support/factories.ts";
import { kindOf } from "../support/kinds.ts";
import { useSendWorkflows } from "../support/send-workflows.ts";
import {
  type AnySender,
  confirm,
  credits,
  idOf,
  ledgerStates,
  makeSender,
  pathOf,
  preview,
  resourceOf,
  startSend,
  tableOf,
  tokenOf,
  untilStatus,
} from "../support/sending.ts";
import { together } from "../support/together.ts";

const ZONE = "Europe/Berlin";
/** Nine o'clock in Berlin. */
function timeIn(days: number) {
  const local = DateTime.now().setZone(ZONE).plus({ days }).set({ hour: 9, minute: 0, second: 0, millisecond: 0 });
  const written = { date: local.toFormat("yyyy-MM-dd"), time: "09:00", zone: ZONE };
  return { written, instant: local.toUTC().toISO() };
}

async function editorOf(sender: AnySender) {
  const { id } = await makeMember(sender.em, sender.team.id, "EDITOR");
  const { change, reschedule, settings } = (await consoleClient(await signIn(id), sender.team.id)).app.content;
  const one = resourceOf(sender);
  return {
    set: (send_time: ReturnType<typeof timeIn>["written"] | null) => change.mutate({ body: { ...one, send_time } }),
    move: (send_time: ReturnType<typeof timeIn>["written"], began?: string) =>
      reschedule.mutate({ body: { ...one, send_time } }, began ? { context: { began: `${one.id} ${began}` } } : {}),
    settings: async () => (await settings.query({ query: one })).data,
  };
}

const shown = async (sender: AnySender) => (await sender.client.get(pathOf(sender))).body.data;

const kind = kindOf();

describe(`The time of a ${kind.type}`, () => {
  it("is part of the draft and of its plan: the preview shows it, and a change makes the token void", async () => {
    const sender = await kind.make();
    const editor = await editorOf(sender);
    const [first, second] = [timeIn(2), timeIn(3)];
    assert.equal((await preview(sender)).body.data.send_at, null);
    const before = await tokenOf(sender);
    await editor.set(first.written);
    assert.equal((await shown(sender)).send_at, first.instant);
    assert.equal((await editor.settings()).send_zone, ZONE);
    assert.equal(codeOf(await confirm(sender, before)), "send_plan_changed");
    const answer = await preview(sender);
    assert.equal(answer.body.data.send_at, first.instant);
    await editor.set(second.written);
    assert.equal(codeOf(await confirm(sender, answer.body.data.confirmation.token)), "send_plan_changed");
    await editor.set(null);
    assert.equal((await shown(sender)).send_at, null);
    assert.equal(await refusalCodeOf(editor.set(timeIn(-1).written)), "validation_failed");
    assert.equal(await refusalCodeOf(editor.move(first.written)), "resource_state_invalid");
  });

  it("refuses a confirm once it has passed, although the plan is as it was", async () => {
    const sender = await kind.make();
    const resource = resourceOf(sender);
    const tenant = { teamId: sender.team.id, environment: "LIVE" as const };
    await (await editorOf(sender)).set(timeIn(2).written);
    const { id: previewId } = (await preview(sender)).body.data;
    // As if the two days had passed.
    const em = sender.em.fork();
    await sql`update ${tableOf(sender)} set send_at = now() - interval '1 s' where id = ${idOf(sender)}`.execute(
      kysely(em),
    );
    const { digest } = await resolvePlan(em, await readDraft(em, tenant, resource, { lock: false }));
    await sql`update send_previews set plan_digest = ${digest} where id = ${previewId}`.execute(kysely(em));
    await transaction(em, async (tx) => {
      const { caller: key } = await readAccess(tx, tenant, sender.liveKey.record.id, `${resource.type}s:send`);
      await assert.rejects(checkPlan(tx, { tenant, resource, key }, previewId), {
        code: "campaign_not_ready",
        message: /^The time of the \w+ has passed; set a later one in the app, or none/,
      });
    });
  });
});

describe("A send that waits for its time", () => {
  const it = together();
  const { untilDetails, workflowOf } = useSendWorkflows();

  async function waiting() {
    const sender = await makeSender({ recipients: 3 });
    const editor = await editorOf(sender);
    const time = timeIn(2);
    await editor.set(time.written);
    const { data } = await startSend(sender);
    assert.deepEqual([data.status, data.send_at], ["SCHEDULED", time.instant]);
    const sendId: string = data.id;
    await untilDetails(sendId, `Its send_at is ${time.instant}`);
    return { sender, editor, sendId };
  }

  it("is moved later and earlier, mails those who may still be mailed, and then stays", async () => {
    const { sender, editor, sendId } = await waiting();
    const later = timeIn(30);
    const { updated_at: seen } = await editor.settings();
    await editor.move(later.written, seen);
    assert.equal(
      await refusalCodeOf(editor.move(later.written, seen)),
      "resource_state_invalid",
      "the version has changed",
    );
    assert.equal((await shown(sender)).send_at, later.instant);
    await untilDetails(sendId, `Its send_at is ${later.instant}`);
    await sender.client.post("/suppressions", { emails: [`person0@${sender.audience}`] });
    // A member says whole minutes.
    const due = new Date(Date.now() + 1_000);
    const tenant = { teamId: sender.team.id, environment: "LIVE" as const };
    const move = await transaction(sender.em.fork(), (em) =>
      rescheduleSend(em, tenant, resourceOf(sender), { due, zone: ZONE }),
    );
    const soon = due.toISOString();
    assert.deepEqual([move?.status, move?.startsAt], ["SCHEDULED", soon]);
    await workflowOf(sendId).signal(WAKE_UP);
    const { started_at, send_at } = await untilStatus(sender, ["SENT"]);
    assert.equal(send_at, soon);
    assert.ok(started_at >= soon, `${started_at} is not before ${soon}`);
    assert.deepEqual(await ledgerStates(sender), { SENT: 2, SUPPRESSED: 1 });
    assert.equal(await refusalCodeOf(editor.move(timeIn(3).written)), "resource_state_invalid");
  });

  it("gives way to a copy of its draft, but not once it has begun: that is refused, and leaves no copy", async () => {
    const { sender, editor, sendId } = await waiting();
    const tenant = { teamId: sender.team.id, environment: "LIVE" as const };
    const body = resourceOf(sender);
    const admin = await clientAs(sender, "ADMIN");
    const edited = await clientAs(sender, "EDITOR");
    const drafts = async () =>
      (await admin.app.content.page.query({ query: { type: body.type } })).data.drafts.map(({ status }) => status);
    assert.equal(await refusalCodeOf(edited.app.content.editCopy.mutate({ body })), "role_insufficient");
    const startedAt = (at: string | null) =>
      sql`update ${tableOf(sender)} set started_at = ${at} where id = ${body.id} and ${ofTenant(tenant)}`.execute(
        kysely(sender.em.fork()),
      );
    await startedAt(new Date().toISOString());
    assert.equal(await refusalCodeOf(admin.app.content.editCopy.mutate({ body })), "resource_state_invalid");
    assert.deepEqual(await drafts(), ["SCHEDULED"]);
    await startedAt(null);

    const { data } = await admin.app.content.editCopy.mutate({ body });
    assert.deepEqual((await drafts()).toSorted(), ["CANCELLED", "DRAFT"]);
    await workflowOf(sendId).result();
    assert.deepEqual(await credits(sender), { available: 1_000_000, reserved: 0, mismatch: false });
    assert.equal((await sender.client.get(`/${body.type}s/${data.id}`)).body.data.status, "DRAFT");
    assert.equal(await refusalCodeOf(editor.move(timeIn(3).written)), "resource_state_invalid");
  });

  it("is paused, moved meanwhile, resumed to its new time, and cancelled: the credits come back", async () => {
    const { sender, editor, sendId } = await waiting();
    await sender.client.post(`${pathOf(sender)}/pause`);
    await untilDetails(sendId, "Paused by a client");
    const later = timeIn(5);
    await editor.move(later.written);
    assert.deepEqual([(await shown(sender)).status, (await shown(sender)).send_at], ["PAUSED", later.instant]);
    const resumed = await sender.client.post(`${pathOf(sender)}/resume`);
    assert.equal(resumed.body.data.status, "SCHEDULED");
    await untilDetails(sendId, `starts at its send_at`);
    await untilDetails(sendId, `Its send_at is ${later.instant}`);
    assert.equal((await sender.client.post(`${pathOf(sender)}/cancel`)).body.data.status, "CANCELLED");
    await workflowOf(sendId).result();
    assert.deepEqual(await credits(sender), { available: 1_000_000, reserved: 0, mismatch: false });
    assert.equal(await refusalCodeOf(editor.move(timeIn(6).written)), "resource_state_invalid");
  });
});

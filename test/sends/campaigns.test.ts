import assert from "node:assert/strict";
import { sql } from "kysely";
import { type EntityManager, kysely } from "../../db/orm.ts";
import { transaction } from "../../db/transaction.ts";
import { deleteField } from "../../domain/audience/contact-fields.ts";
import { deleteSegment, readSegment, readSegments } from "../../domain/audience/segments/segments.ts";
import { attachSegment, createDraft } from "../../domain/sends/drafts/drafts.ts";
import { declareFields } from "../support/contacts.ts";
import { eventually } from "../support/eventually.ts";
import { unique } from "../support/factories.ts";
import { CAMPAIGN } from "../support/kinds.ts";
import {
  addSegment,
  beginToday,
  type CampaignSender,
  caughtMails,
  confirm,
  freshKey,
  idOf,
  ledgerStates,
  makeCampaignSender,
  preview,
  readMail,
  sendAndWait,
  setFaults,
  startSend,
  startTomorrow,
  tokenOf,
  untilStatus,
} from "../support/sending.ts";

const run = ({ em }: CampaignSender, statement: ReturnType<typeof sql>) => statement.execute(kysely(em.fork()));

describe("The preview of a campaign", () => {
  it("counts contacts in one class each, validity before suppression, and names all senders", async () => {
    const audience = `${unique("to")}.example`;
    const sender = await makeCampaignSender({
      dailySendCap: 50,
      recipients: [
        { email: `a@${audience}` },
        { email: `b@${audience}` },
        { email: `c@${audience}`, suppressed: true },
        { email: `d@${audience}`, status: "PENDING" },
        { email: `e@${audience}`, status: "PENDING", suppressed: true },
      ],
      furtherAccounts: [{}],
    });
    const answer = await preview(sender);
    assert.equal(answer.status, 200, answer.text);
    const { confirmation, id, ...data } = answer.body.data;
    const addresses = [sender.fromEmail, `news2@${sender.domain}`];
    assert.deepEqual(data, {
      object: "campaign_send_preview",
      campaign_id: sender.campaignId,
      recipients: { total: 5, invalid: 2, suppressed: 1, eligible: 2, tracked: 0 },
      credits_required: 2,
      send_at: null,
      send_cap: { limit: 50, used_today: 0, remaining: 50 },
      from_addresses: addresses,
      sending_account_address: sender.fromEmail,
      sending_account_addresses: addresses,
      complaint_rate: { rate: 0, threshold: 0.002, window_days: 30 },
    });
    assert.match(id, /^send_/);
    assert.ok(confirmation.token.startsWith(`${id}.`));
  });

  it("takes the team's custom fields as merge tags, and names a field that is none", async () => {
    const sender = await makeCampaignSender({ body: "<p>{{ fields.city }} {{ fields.town }}</p>" });
    await declareFields(sender, { city: "text" });
    const refused = await preview(sender);
    assert.deepEqual([refused.status, refused.body.error?.code], [409, "campaign_not_ready"], refused.text);
    assert.match(refused.body.error.message, /\{\{ fields\.town \}\}/);
    assert.doesNotMatch(refused.body.error.message, /fields\.city/);
    await declareFields(sender, { town: "text" });
    assert.equal((await preview(sender)).status, 200);
  });

  it("is refused for a segment that cannot be evaluated, which it names, and so is the confirm as a changed plan", async () => {
    const sender = await makeCampaignSender({ recipients: 2 });
    await declareFields(sender, { city: "text" });
    const segmentId = await addSegment(sender, { not: { field: "fields.city", op: "eq", value: "Rome" } });
    await transaction(sender.em, (em) => attachSegment(em, sender.campaignId, segmentId));
    const token = await tokenOf(sender);
    await deleteField(sender.em.fork(), { teamId: sender.team.id, environment: "LIVE" }, "city");
    const refused = await preview(sender);
    assert.deepEqual([refused.status, refused.body.error?.code], [400, "filter_unsupported"], refused.text);
    assert.match(refused.body.error.message, /field city/);
    const changed = await confirm(sender, token);
    assert.deepEqual([changed.status, changed.body.error?.code], [409, "send_plan_changed"], changed.text);
  });

  it("resolves the contacts of the segment alone; a contact that leaves it is a changed plan", async () => {
    const audience = `${unique("to")}.example`;
    const city = (name: string, town: string) => ({ email: `${name}@${audience}`, fields: { city: town } });
    const sender = await makeCampaignSender({ recipients: [city("a", "Rome"), city("b", "Rome"), city("c", "Bonn")] });
    await declareFields(sender, { city: "text" });
    const segmentId = await addSegment(sender, { field: "fields.city", op: "eq", value: "Rome" });
    await transaction(sender.em, (em) => attachSegment(em, sender.campaignId, segmentId));
    const first = await preview(sender);
    assert.deepEqual(
      first.body.data?.recipients,
      { total: 2, invalid: 0, suppressed: 0, eligible: 2, tracked: 0 },
      first.text,
    );
    const { body } = await sender.client.get("/contacts", { query: { email: `b@${audience}` } });
    await sender.client.patch(`/contacts/${body.data[0].id}`, { fields: { city: "Bonn" } });
    const changed = await confirm(sender, first.body.data.confirmation.token);
    assert.equal(changed.body.error?.code, "send_plan_changed", changed.text);
    assert.equal((await sendAndWait(sender)).recipients.total, 1);
    assert.deepEqual(
      (await caughtMails({ audience })).flatMap(({ to }) => to),
      [`a@${audience}`],
    );
  });

  it("is refused once its segment is deleted, which a campaign that was confirmed before keeps", async () => {
    const sender = await makeCampaignSender();
    const another = await CAMPAIGN.another(sender);
    const draft = idOf(another);
    await startTomorrow(sender);
    await transaction(sender.em, (em) => deleteSegment(em, sender.segmentId));
    const segmentOf = async (id: string) => (await sender.client.get(`/campaigns/${id}`)).body.data.segment_id;
    assert.deepEqual([await segmentOf(sender.campaignId), await segmentOf(draft)], [sender.segmentId, null]);
    const refused = await preview(another);
    assert.deepEqual([refused.status, refused.body.error?.code], [409, "campaign_not_ready"], refused.text);
    assert.match(refused.body.error.message, /segment/);
    const { name, conditions, deletedAt } = await readSegment(sender.em, sender.segmentId);
    assert.ok(name !== "" && conditions !== null && deletedAt, "it can still be read");
    assert.deepEqual(await readSegments(sender.em), []);
    const uses: ((em: EntityManager) => Promise<unknown>)[] = [
      (em) => attachSegment(em, draft, sender.segmentId),
      (em) => deleteSegment(em, sender.segmentId),
    ];
    for (const use of uses) await assert.rejects(transaction(sender.em, use), { code: "not_found" });
  });

  it("is refused for a drip sequence", async () => {
    const sender = await makeCampaignSender();
    const tenant = { teamId: sender.team.id, environment: "LIVE" as const };
    const fields = { name: "Drip", subject: "Hi", fromName: null, body: "<p>Hi</p>", isDrip: true };
    const { id } = await transaction(sender.em.fork(), (em) => createDraft(em, tenant, "campaign", fields, 100));
    const drip = { ...sender, campaignId: id };
    const answer = await preview(drip);
    assert.deepEqual([answer.status, answer.body.error?.code], [409, "resource_state_invalid"], answer.text);
    assert.match(answer.body.error.message, /drip/);
    assert.equal((await sender.client.get(`/campaigns/${id}`)).body.data.status, "DRAFT");
  });
});

describe("A campaign", () => {
  afterEach(() => setFaults([]));

  it("refuses what only the app sets by name, on creating and on changing", async () => {
    const { client, campaignId } = await makeCampaignSender();
    const values = {
      status: "SCHEDULED",
      send_at: "2030-01-01T00:00:00Z",
      send_days: [1],
      is_drip: true,
      drip_steps: [],
      segment_id: "seg_x",
      account_ids: [],
      from_email: "a@example.com",
    };
    for (const [field, value] of Object.entries(values)) {
      for (const answer of [
        await client.post("/campaigns", { name: "n", [field]: value }),
        await client.patch(`/campaigns/${campaignId}`, { [field]: value }),
      ]) {
        assert.deepEqual([answer.status, answer.body.error?.code], [400, "validation_failed"], answer.text);
        assert.equal(answer.body.error.param, field);
      }
    }
  });

  it("shows every field, and its recipients by state after the send", async () => {
    const sender = await makeCampaignSender({ furtherAccounts: [{}], recipients: 3 });
    const path = `/campaigns/${sender.campaignId}`;
    const { id, created_at, updated_at, ...draft } = (await sender.client.get(path)).body.data;
    assert.match(id, /^cmp_/);
    assert.deepEqual(draft, {
      object: "campaign",
      name: "Campaign one",
      subject: "Hello {{ first_name }}",
      from_name: null,
      body: "<html><body><p>Dear {{ first_name }}, welcome.</p></body></html>",
      status: "DRAFT",
      is_drip: false,
      drip_steps: [],
      status_reason: null,
      segment_id: sender.segmentId,
      account_ids: sender.accountIds,
      send_id: null,
      send_days: [],
      send_at: null,
      started_at: null,
      completed_at: null,
      recipients: null,
    });
    const { data } = await startSend(sender);
    const done = await untilStatus(sender, ["SENT"]);
    assert.equal(done.send_id, data.id);
    assert.equal(done.recipients.total, 3);
    assert.equal(done.recipients.sent, 3);
    assert.ok(done.completed_at >= done.started_at);
    const { data: listed } = (await sender.client.get("/campaigns", { query: { status: "SENT" } })).body;
    assert.deepEqual(
      listed.map(({ id: found }: { id: string }) => found),
      [sender.campaignId],
    );
  });

  it("mails each contact once, with custom fields, under the account's own identity", async () => {
    const audience = `${unique("to")}.example`;
    const sender = await makeCampaignSender({
      recipients: [
        { email: `ann@${audience}`, firstName: "Ann", fields: { city: "Köln", orders: 3, vip: true } },
        { email: `bob@${audience}`, firstName: "Bob", fields: { city: "Rom <b>" } },
        { email: `cem@${audience}`, firstName: "Cem" },
      ],
      account: { displayName: "The account's name" },
      subject: "{{ first_name }} of {{ fields.city }}",
      body: "<p>{{ fields.orders }}{% if fields.vip %} vip{% endif %} {{ fields.city }}.</p>",
    });
    await declareFields(sender, { city: "text", orders: "number", vip: "boolean" });
    assert.equal((await sendAndWait(sender)).status, "SENT");
    const mails = await caughtMails({ audience });
    assert.equal(mails.length, 3);
    const shown = await Promise.all(
      mails.map(async ({ id, to }) => {
        const { subject, text = "", from, headers } = await readMail(id);
        assert.deepEqual([from?.address, from?.name], [sender.fromEmail, "The account's name"]);
        assert.ok(headers.some(({ key }) => key === "list-unsubscribe-post"));
        return [to[0]?.split("@")[0], subject, text.trim().split("\n")[0]?.trim()];
      }),
    );
    assert.deepEqual(shown.sort(), [
      ["ann", "Ann of Köln", "3 vip Köln."],
      ["bob", "Bob of Rom <b>", "Rom <b>."],
      ["cem", "Cem of", "."],
    ]);
    const { rows } = await run(
      sender,
      sql`select count(*)::int as count from send_recipients r join sends s on s.id = r.send_id
        where s.resource_id = ${sender.campaignId} and r.fields is null`,
    );
    assert.deepEqual(rows, [{ count: 1 }], "a contact without custom fields has none in the ledger");
  });

  it("goes out over all of its accounts, each under its own identity, and every contact gets one mail", async () => {
    const sender = await makeCampaignSender({
      recipients: 300,
      account: { displayName: "First", maxConnections: 2 },
      furtherAccounts: [{ displayName: "Second" }],
    });
    await setFaults([{ stage: "data", match: sender.audience, delayMs: 10 }]);
    assert.equal((await sendAndWait(sender)).recipients.sent, 300);
    const mails = await caughtMails(sender);
    assert.equal(mails.length, 300);
    assert.equal(new Set(mails.flatMap(({ to }) => to)).size, 300);
    const byAccount = Map.groupBy(mails, ({ from }) => from);
    const names = await Promise.all(
      [...byAccount].map(async ([envelope, [mail]]) => {
        const { from, messageId = "" } = await readMail(mail?.id ?? 0);
        assert.equal(from?.address, envelope);
        assert.ok(messageId.endsWith(`@${sender.domain}>`));
        return [envelope, from?.name];
      }),
    );
    assert.deepEqual(names.sort(), [
      [`news2@${sender.domain}`, "Second"],
      [sender.fromEmail, "First"],
    ]);
  });

  it("leaves out contacts that became ineligible between confirm and dispatch, with a reason each", async () => {
    const sender = await makeCampaignSender({ recipients: 6 });
    const { data } = await startTomorrow(sender);
    const of = (i: number) => sql`team_id = ${sender.team.id} and email = ${`person${i}@${sender.audience}`}`;
    await run(sender, sql`delete from contacts where ${of(0)}`);
    await run(sender, sql`update contacts set email = ${`moved@${sender.audience}`} where ${of(1)}`);
    await run(sender, sql`update contacts set email_status = 'INVALID' where ${of(2)}`);
    await sender.client.post("/suppressions", { emails: [`person3@${sender.audience}`] });
    // The segment is evaluated at the confirm alone.
    await run(sender, sql`update campaigns set segment_id = null where id = ${sender.campaignId}`);
    await beginToday(sender, data.id);
    await untilStatus(sender, ["SENT"]);
    assert.deepEqual(await ledgerStates(sender), { SENT: 2, SUPPRESSED: 4 });
    const { rows } = await run(
      sender,
      sql`select email, reason from send_recipients where send_id = ${data.id} and state = 'SUPPRESSED' order by email`,
    );
    assert.deepEqual(
      rows.map((row) => (row as { reason: string }).reason),
      ["contact_deleted", "address_changed", "address_invalid", "suppressed"],
    );
  });

  it("mails under its own from_name, and suppresses an address that its server does not know: it is INVALID then", async () => {
    const sender = await makeCampaignSender({ recipients: 2, account: { displayName: "The account's name" } });
    await sender.client.patch(`/campaigns/${sender.campaignId}`, { from_name: "The campaign" });
    await setFaults([{ stage: "rcpt", match: `person1@${sender.audience}`, code: 550, message: "5.1.1 unknown" }]);
    await sendAndWait(sender);
    assert.deepEqual(await ledgerStates(sender), { SENT: 1, REJECTED: 1 });
    const [mail] = await caughtMails(sender);
    assert.equal((await readMail(mail?.id ?? 0)).from?.name, "The campaign");
    await eventually(
      async () => {
        const { body } = await sender.client.get("/contacts", { query: { email: `person1@${sender.audience}` } });
        return body.data[0]?.email_status === "INVALID";
      },
      { what: "the contact's status" },
    );
  });

  it("does not take the token of a newsletter of the same team, nor the other way round", async () => {
    const sender = await makeCampaignSender();
    const token = await tokenOf(sender);
    const letter = await sender.client.post("/newsletters", { name: "Letter", subject: "S", body: "<p>x</p>" });
    const answer = await sender.client.post(
      `/newsletters/${letter.body.data.id}/send`,
      { confirmation_token: token },
      { idempotencyKey: freshKey() },
    );
    assert.equal(answer.body.error?.code, "confirmation_invalid", answer.text);
  });
});

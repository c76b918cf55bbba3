import assert from "node:assert/strict";
import { sql } from "kysely";
import { kysely } from "../../db/orm.ts";
import { transaction } from "../../db/transaction.ts";
import { readEntries } from "../../domain/audit/read.ts";
import { newId } from "../../domain/ids.ts";
import { readDraft } from "../../domain/sends/drafts/draft.ts";
import { attachList } from "../../domain/sends/drafts/drafts.ts";
import { resolvePlan } from "../../domain/sends/plan/plan.ts";
import { confirmationToken } from "../../domain/sends/plan/token.ts";
import { live } from "../reports/mails.ts";
import { api } from "../support/api.ts";
import { tenantOf, unique, uniqueEmail } from "../support/factories.ts";
import { kindOf } from "../support/kinds.ts";
import { useSendWorkflows } from "../support/send-workflows.ts";
import {
  type AnySender,
  addSubscribers,
  anotherNewsletter,
  beginToday,
  caughtMails,
  confirm,
  credits,
  freshKey,
  idOf,
  ledgerStates,
  makeSender,
  naming,
  pathOf,
  people,
  preview,
  readMail,
  resourceOf,
  type Sender,
  sendAndWait,
  setTomorrow,
  startSend,
  startTomorrow,
  tableOf,
  tokenOf,
  untilBlocked,
  untilStatus,
} from "../support/sending.ts";

const kind = kindOf();

const refused = (answer: Awaited<ReturnType<typeof confirm>>, status: number, code: string) => {
  assert.equal(answer.body?.error?.code, code, answer.text);
  assert.equal(answer.status, status);
};

/** Keeps a confirm from its draft while `work` runs: the API has authenticated it, its transaction has begun. */
async function whileDraftIsLocked(sender: AnySender, work: () => Promise<void>): Promise<void> {
  await sender.em.fork().transactional(async (tx) => {
    await sql`select id from ${tableOf(sender)} where id = ${idOf(sender)} for update`.execute(kysely(tx));
    await work();
  });
}

/** By its beginning: Postgres shows 1,024 bytes of a statement. */
const untilItWaits = (sender: AnySender) => untilBlocked(sender, "%select d.status, d.from_name as%");

describe(`A confirm of a ${kind.type} whose key stops working while it waits`, () => {
  const { workflowOf } = useSendWorkflows();
  const ofKey = ({ liveKey }: AnySender, change: string) =>
    sql`update api_keys set ${sql.raw(change)} where id = ${liveKey.record.id}`;

  for (const [what, change, status, code] of [
    // One change of each row that decides: of the key, its member and its team.
    ["was revoked", (of: AnySender) => ofKey(of, "revoked_at = now()"), 401, "api_key_revoked"],
    [
      "belongs to an editor now",
      ({ owner }: AnySender) => sql`update members set role = 'EDITOR' where id = ${owner.id}`,
      403,
      "role_insufficient",
    ],
    [
      "is of a team without the plan",
      ({ team }: AnySender) => sql`update teams set plan = 'FREE' where id = ${team.id}`,
      402,
      "plan_upgrade_required",
    ],
  ] as const) {
    it(`arms nothing when the key ${what}`, async () => {
      const sender = await kind.make({ recipients: 2, credits: 2 });
      const token = await tokenOf(sender);
      let answer: ReturnType<typeof confirm> | undefined;
      await whileDraftIsLocked(sender, async () => {
        answer = confirm(sender, token);
        await untilItWaits(sender);
        await change(sender).execute(kysely(sender.em.fork()));
      });
      assert.ok(answer);
      refused(await answer, status, code);
      assert.deepEqual(await credits(sender), { available: 2, reserved: 0, mismatch: false });
      assert.deepEqual(await ledgerStates(sender), {});
    });
  }

  it("stays armed when the confirm is tried again after its key was revoked", async () => {
    const sender = await kind.make({ recipients: 2, credits: 2 });
    await setTomorrow(sender);
    const { data } = await startSend(sender);
    await ofKey(sender, "revoked_at = now()").execute(kysely(sender.em));
    const claim = await kysely(sender.em)
      .selectFrom("idempotency_records")
      .select(["key_hash as keyHash", "attempt", "request_id as requestId"])
      .where("team_id", "=", sender.team.id)
      .where("status", "=", 202)
      .executeTakeFirstOrThrow();
    const idempotency = { ...claim, teamId: sender.team.id, environment: "LIVE" };
    const handle = workflowOf(data.id);
    await handle.executeUpdate("confirm", { args: [{ apiKeyId: sender.liveKey.record.id, idempotency }] });
    await handle.executeUpdate("cancel");
    assert.deepEqual(await credits(sender), { available: 2, reserved: 0, mismatch: false });
  });
});

describe(`A confirm of a ${kind.type}`, () => {
  it("schedules it, reserves one credit per recipient and answers with every documented field", async () => {
    const sender = await kind.make({ recipients: 4, credits: 10, dailySendCap: 100 });
    const answer = await confirm(sender, await tokenOf(sender));
    assert.equal(answer.status, 202, answer.text);
    const { send_at, id, ...data } = answer.body.data;
    assert.deepEqual(data, {
      object: `${kind.type}_send`,
      [`${kind.type}_id`]: idOf(sender),
      status: "SCHEDULED",
      recipients: 4,
      credits_reserved: 4,
      send_cap: { limit: 100, used_today: 4, remaining: 96 },
    });
    assert.match(id, /^send_/);
    assert.match(send_at, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
    await untilStatus(sender, ["SENT"]);
    assert.deepEqual(await credits(sender), { available: 6, reserved: 0, mismatch: false });
  });

  it("gives twenty racing confirms one 202 and nineteen 409s, and reserves once", async () => {
    const sender = await kind.make({ recipients: 5, credits: 100 });
    const token = await tokenOf(sender);
    const answers = await Promise.all(Array.from({ length: 20 }, () => confirm(sender, token)));
    assert.equal(answers.filter(({ status }) => status === 202).length, 1, answers.map(({ text }) => text).join("\n"));
    const others = answers.filter(({ status }) => status !== 202);
    for (const answer of others) refused(answer, 409, "confirmation_stale");
    await untilStatus(sender, ["SENT"]);
    assert.deepEqual(await credits(sender), { available: 95, reserved: 0, mismatch: false });
    const { rows } = await sql<{ count: number }>`select count(*)::int as count from credit_entries
      where team_id = ${sender.team.id} and kind = 'RESERVE'`.execute(kysely(sender.em));
    assert.equal(rows[0]?.count, 1);
    const acts = await readEntries(sender.em, tenantOf(sender), {}, { after: "", limit: 100 });
    assert.deepEqual(
      acts.filter(({ act }) => act.startsWith("send")).map(({ way, object_id, count }) => [way, object_id, count]),
      [["API_KEY", idOf(sender), 5]],
    );
  });

  it("refuses a token at its expiry, by the database clock", async () => {
    const sender = await kind.make();
    await tokenOf(sender);
    // The expiry is moved instead of waited for. A token signs its expiry, so the test makes a new one.
    const { rows } = await sql<{ id: string; plan_digest: string; expires_at: string }>`
      update send_previews set expires_at = date_trunc('milliseconds', now()) where resource_id = ${idOf(sender)}
      returning id, plan_digest, expires_at`.execute(kysely(sender.em));
    const [row] = rows;
    assert.ok(row);
    const facts = { previewId: row.id, apiKeyId: sender.liveKey.record.id, planDigest: row.plan_digest };
    const token = confirmationToken(sender.vault, { ...facts, expiresAt: new Date(row.expires_at) });
    refused(await confirm(sender, token), 409, "confirmation_stale");
    const later = confirmationToken(sender.vault, { ...facts, expiresAt: new Date(Date.now() + 60_000) });
    refused(await confirm(sender, later), 409, "confirmation_invalid");
  });

  it("refuses altered tokens, another one's and another team's with the same answer", async () => {
    const [sender, other] = await Promise.all([kind.make(), kind.make()]);
    const token = await tokenOf(sender);
    const [id = "", signature = ""] = token.split(".");
    const flipped = `${signature[0] === "A" ? "B" : "A"}${signature.slice(1)}`;
    const foreign = await tokenOf(other);
    for (const wrong of [`${id}.${flipped}`, `${newId("send")}.${signature}`, "nonsense", `${token}x`, foreign]) {
      refused(await confirm(sender, wrong), 409, "confirmation_invalid");
    }
    assert.equal((await confirm(sender, token)).status, 202);
  });

  it("asks for a token, behind the refusals that come first", async () => {
    const sender = await kind.make();
    const send = (to: AnySender, body?: unknown) =>
      to.client.post(`${pathOf(to)}/send`, body, { idempotencyKey: freshKey() });
    const testKey = { ...sender, client: api(sender.keys.test) };
    refused(await send(testKey, {}), 403, "send_not_permitted");
    refused(await send({ ...sender, ...naming(sender, newId(kind.type)) }, {}), 404, "not_found");
    for (const body of [undefined, {}, { confirmation_token: null }, { confirmation_token: "" }]) {
      refused(await send(sender, body), 409, "confirmation_required");
    }
    for (const confirmation_token of [1, true, ["x"], {}]) {
      const answer = await send(sender, { confirmation_token });
      refused(answer, 400, "validation_failed");
      assert.equal(answer.body.error.param, "confirmation_token");
    }
    refused(await send(sender, null), 400, "validation_failed");
    refused(await send(sender, { token: "x" }), 400, "validation_failed");
    refused(await send(sender, { confirmation_token: "x".repeat(10_000) }), 409, "confirmation_invalid");
  });

  it("never overdraws the credits when two are confirmed at once", async () => {
    const sender = await kind.make({ recipients: 6, credits: 10, dailySendCap: 1000 });
    const other = await kind.another(sender);
    const [one, two] = await Promise.all([tokenOf(sender), tokenOf(other)]);
    const answers = await Promise.all([confirm(sender, one), confirm(other, two)]);
    assert.deepEqual(answers.map(({ status }) => status).sort(), [202, 402]);
    assert.equal((await credits(sender)).mismatch, false);
  });

  it("is refused as send_plan_changed when a recipient joins, and succeeds after a new preview", async () => {
    const sender = await kind.make({ recipients: 3, credits: 10 });
    const token = await tokenOf(sender);
    await kind.addRecipients(sender, people(1, unique("new")));
    refused(await confirm(sender, token), 409, "send_plan_changed");
    assert.deepEqual(await credits(sender), { available: 10, reserved: 0, mismatch: false });
    assert.equal((await confirm(sender, await tokenOf(sender))).status, 202);
  });

  it("is refused as send_plan_changed for another key of the team", async () => {
    const sender = await kind.make();
    const token = await tokenOf(sender);
    const other = await sender.mint({ sendDomains: [sender.domain] });
    refused(await confirm({ ...sender, client: api(other.key) }, token), 409, "send_plan_changed");
    refused(await confirm(sender, token), 409, "send_plan_changed");
    assert.equal((await confirm(sender, await tokenOf(sender))).status, 202);
  });

  it("is not refused because another key tried a token that is not one", async () => {
    const sender = await kind.make();
    const token = await tokenOf(sender);
    const other = await sender.mint({ sendDomains: [sender.domain] });
    const forged = `${token.slice(0, -1)}${token.endsWith("a") ? "b" : "a"}`;
    refused(await confirm({ ...sender, client: api(other.key) }, forged), 409, "confirmation_invalid");
    assert.equal((await confirm(sender, token)).status, 202);
  });

  it("is refused, like edits, when it is no longer a draft", async () => {
    const sender = await kind.make();
    const [one, two] = [await tokenOf(sender), await tokenOf(sender)];
    assert.equal((await confirm(sender, one)).status, 202);
    refused(await confirm(sender, two), 409, "resource_state_invalid");
    refused(await preview(sender), 409, "resource_state_invalid");
    refused(await sender.client.patch(pathOf(sender), { subject: "x" }), 409, "resource_state_invalid");
    refused(await sender.client.delete(pathOf(sender)), 409, "resource_state_invalid");
  });

  it("waits for the next allowed day in the team's time zone", async () => {
    const sender = await kind.make({ timeZone: "Pacific/Auckland" });
    const { rows } = await sql<{ today: number }>`
      select extract(isodow from now() at time zone 'Pacific/Auckland')::int as today`.execute(kysely(sender.em));
    const today = rows[0]?.today ?? 1;
    const tomorrow = (today % 7) + 1;
    await sql`update ${tableOf(sender)} set send_days = ${[tomorrow]}::smallint[] where id = ${idOf(sender)}`.execute(
      kysely(sender.em),
    );
    const { data } = await startSend(sender);
    const { rows: local } = await sql<{ day: number; time: string }>`
      select extract(isodow from ${data.send_at}::timestamptz at time zone 'Pacific/Auckland')::int as day,
        to_char(${data.send_at}::timestamptz at time zone 'Pacific/Auckland', 'HH24:MI:SS') as time`.execute(
      kysely(sender.em),
    );
    assert.deepEqual(local, [{ day: tomorrow, time: "00:00:00" }]);
    assert.deepEqual(await ledgerStates(sender), { QUEUED: 3 });
  });
});

/** The plan of the sender's draft as a preview would show it, with the digest to which the token is bound. */
async function planOf(sender: AnySender) {
  const em = sender.em.fork();
  return resolvePlan(em, await readDraft(em, live(sender), resourceOf(sender), { lock: false }));
}

describe(`The plan of a ${kind.type}`, () => {
  const drifts: Record<string, (sender: AnySender) => Promise<unknown>> = {
    "a recipient leaves": kind.removeRecipient,
    "a recipient is suppressed": async ({ client, audience }) => {
      const answer = await client.post("/suppressions", { emails: [`person0@${audience}`] });
      assert.equal(answer.body.data.added.length, 1, answer.text);
    },
    "a recipient may not be mailed any more": (sender) => kind.withdraw(sender, "one"),
    "a recipient changes address": (sender) =>
      sql`update ${sql.table(kind.people)} set email = ${`moved@${sender.audience}`}
        where team_id = ${sender.team.id} and email = ${`person1@${sender.audience}`}`.execute(kysely(sender.em)),
    "the subject is edited": (sender) => sender.client.patch(pathOf(sender), { subject: "Other" }),
  };
  for (const [name, drift] of Object.entries(drifts)) {
    it(`is another one when ${name}`, async () => {
      const sender = await kind.make({ recipients: 3 });
      const { digest } = await planOf(sender);
      await drift(sender);
      assert.notEqual((await planOf(sender)).digest, digest);
    });
  }
});

describe(`The brand's part below the mails of a ${kind.type}`, () => {
  useSendWorkflows();
  const enter = ({ em, team }: AnySender, postalAddress: string) =>
    sql`update teams set postal_address = ${postalAddress} where id = ${team.id}`.execute(kysely(em));

  it("is the one that was previewed, in a send that waits, too", async () => {
    const sender = await kind.make({ recipients: 2, credits: 2 });
    const token = await tokenOf(sender);
    await enter(sender, "1 High Street");
    refused(await confirm(sender, token), 409, "send_plan_changed");
    const { data } = await startTomorrow(sender);
    await enter(sender, "2 Low Street");
    await beginToday(sender, data.id);
    await untilStatus(sender, ["SENT"]);
    const mails = await Promise.all((await caughtMails(sender)).map(({ id }) => readMail(id)));
    assert.equal(mails.length, 2);
    for (const { html = "", text = "" } of mails) {
      assert.ok(html.includes("1 High Street") && text.includes("1 High Street"));
      assert.ok(!html.includes("2 Low Street") && !text.includes("2 Low Street"));
    }
  });
});

describe("The plan of a newsletter to lists", () => {
  /** A newsletter to two lists: person 0 is CONFIRMED on the first, PENDING on the second, and person 1 on none but the first. */
  async function makeSenderToTwoLists(): Promise<Sender & { otherListId: string; subscriberIds: string[] }> {
    const sender = await makeSender({ recipients: [], credits: 10 });
    const subscriberIds = await addSubscribers(sender, sender.listId, [
      ...people(2, sender.audience),
      { email: `pending@${sender.audience}`, status: "PENDING" },
      { email: `gone@${sender.audience}`, status: "UNSUBSCRIBED" },
    ]);
    const other = await sender.client.post("/lists", { name: "Others", optin: "DOUBLE" });
    const otherListId: string = other.body.data.id;
    await transaction(sender.em, (tx) => attachList(tx, sender.newsletterId, otherListId));
    await sender.client.post(`/lists/${otherListId}/subscribers`, { subscriber_ids: subscriberIds.slice(0, 1) });
    return { ...sender, otherListId, subscriberIds };
  }
  const memberships: Record<string, (sender: Awaited<ReturnType<typeof makeSenderToTwoLists>>) => Promise<unknown>> = {
    "a recipient joins another targeted list": ({ client, otherListId, subscriberIds }) =>
      client.post(`/lists/${otherListId}/subscribers`, { subscriber_ids: [subscriberIds[1]] }),
    "a recipient leaves one of two targeted lists": ({ client, otherListId, subscriberIds }) =>
      client.delete(`/lists/${otherListId}/subscribers/${subscriberIds[0]}`),
    "a recipient's subscription to another targeted list is confirmed": ({ em, otherListId }) =>
      sql`update subscriptions set status = 'CONFIRMED' where list_id = ${otherListId}`.execute(kysely(em)),
    "a recipient opts out of another targeted list": ({ em, otherListId }) =>
      sql`update subscriptions set status = 'UNSUBSCRIBED' where list_id = ${otherListId}`.execute(kysely(em)),
    "a recipient's address is changed and changed back": async ({ client, subscriberIds }) => {
      const path = `/subscribers/${subscriberIds[1]}`;
      const { email } = (await client.get(path)).body.data;
      await client.patch(path, { email: uniqueEmail() });
      await client.patch(path, { email });
    },
    "a recipient leaves the list and joins it again": async ({ client, listId, subscriberIds: [, id] }) => {
      await client.delete(`/lists/${listId}/subscribers/${id}`);
      await client.post(`/lists/${listId}/subscribers`, { subscriber_ids: [id] });
    },
    "a subscriber who has not opted in is suppressed": ({ client, audience }) =>
      client.post("/suppressions", { emails: [`pending@${audience}`] }),
    "a subscriber who opted out is suppressed": ({ client, audience }) =>
      client.post("/suppressions", { emails: [`gone@${audience}`] }),
  };
  for (const [name, change] of Object.entries(memberships)) {
    it(`is another one when ${name}, though as many recipients are eligible`, async () => {
      const sender = await makeSenderToTwoLists();
      const before = await planOf(sender);
      await change(sender);
      const after = await planOf(sender);
      assert.notEqual(after.digest, before.digest);
      assert.deepEqual([before.counts.eligible, after.counts.eligible], [2, 2]);
    });
  }

  it("is the same when the lists, people and suppressions around it change", async () => {
    const sender = await makeSenderToTwoLists();
    const { digest } = await planOf(sender);
    const untargeted = await sender.client.post("/lists", { name: "Untargeted" });
    await sender.client.post(`/lists/${untargeted.body.data.id}/subscribers`, { subscriber_ids: sender.subscriberIds });
    await sender.client.post("/suppressions", { emails: [`nobody@${sender.audience}`] });
    await sender.client.patch(`/lists/${sender.listId}`, { name: "Renamed" });
    assert.equal((await planOf(sender)).digest, digest);
  });
});

describe("The recipients of a newsletter's preview", () => {
  it("counts each address once over all lists, in one class, opt-in before suppression", async () => {
    const audience = `${unique("to")}.example`;
    const sender = await makeSender({
      dailySendCap: 50,
      recipients: [
        { email: `a@${audience}` },
        { email: `b@${audience}`, suppressed: true },
        { email: `c@${audience}`, status: "PENDING" },
        { email: `d@${audience}`, status: "PENDING", suppressed: true },
        { email: `e@${audience}`, status: "UNSUBSCRIBED" },
      ],
    });
    const list = await sender.client.post("/lists", { name: "Second" });
    await sql`insert into subscriptions (list_id, subscriber_id, team_id, environment, status)
      select ${list.body.data.id}, id, team_id, environment, 'CONFIRMED' from subscribers
      where team_id = ${sender.team.id} and email = any(${[`a@${audience}`, `e@${audience}`]})`.execute(
      kysely(sender.em),
    );
    await transaction(sender.em, (tx) => attachList(tx, sender.newsletterId, list.body.data.id));

    const answer = await preview(sender);
    assert.equal(answer.status, 200, answer.text);
    const { confirmation, id, ...data } = answer.body.data;
    assert.deepEqual(data, {
      object: "newsletter_send_preview",
      newsletter_id: sender.newsletterId,
      lists: [sender.listId, list.body.data.id],
      recipients: { total: 5, not_opted_in: 2, suppressed: 1, eligible: 2, tracked: 0 },
      credits_required: 2,
      send_at: null,
      send_cap: { limit: 50, used_today: 0, remaining: 50 },
      from_address: sender.fromEmail,
      sending_account_address: sender.fromEmail,
      complaint_rate: { rate: 0, threshold: 0.002, window_days: 30 },
    });
    assert.match(id, /^send_/);
    const lifetimeMs = Date.parse(confirmation.expires_at) - Date.now();
    assert.ok(lifetimeMs > 14 * 60_000 && lifetimeMs <= 15 * 60_000 + 1000, `${lifetimeMs} ms`);
  });
});

describe(`A preview of a ${kind.type}`, () => {
  it("repeats the same token under the same Idempotency-Key without storing it", async () => {
    const sender = await kind.make();
    const key = freshKey();
    const first = await preview(sender, key);
    const again = await preview(sender, key);
    assert.equal(first.status, 200, first.text);
    assert.equal(again.headers.get("idempotent-replayed"), "true");
    assert.equal(again.text, first.text);
    const token: string = first.body.data.confirmation.token;
    const { rows } = await sql<{ stored: string }>`
      select payload as stored from idempotency_records where team_id = ${sender.team.id}`.execute(kysely(sender.em));
    assert.ok(rows.length > 0);
    for (const { stored } of rows) assert.ok(!stored?.includes(token.split(".")[1] ?? ""));
    assert.equal((await confirm(sender, token)).status, 202);
  });
});

describe("The quota of a preview's dry run", () => {
  it("is the team's credits: what was granted, and of it what is reserved, consumed and left", async () => {
    const sender = await makeSender({ recipients: 3, credits: 10, dailySendCap: 500 });
    const second = await anotherNewsletter(sender);
    const third = await anotherNewsletter(sender);
    await sendAndWait(sender);
    await startTomorrow(second);
    const answer = await third.client.post(`/newsletters/${third.newsletterId}/send-preview`, undefined, {
      idempotencyKey: freshKey(),
      query: { dry_run: true },
    });
    const quota = { kind: "email_credits", amount: 3, used: 6, limit: 10, remaining: 4 };
    assert.deepEqual([answer.status, answer.body.data, answer.body.meta.dry_run], [200, null, true], answer.text);
    assert.deepEqual(answer.body.meta.impact, {
      ...answer.body.meta.impact,
      affected_ids: [third.newsletterId],
      quota,
    });
    const { rows } = await sql`select 1 from send_previews where resource_id = ${third.newsletterId}`.execute(
      kysely(sender.em),
    );
    assert.equal(rows.length, 0, "no token is made");
  });
});

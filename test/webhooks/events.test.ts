import assert from "node:assert/strict";
import { once } from "node:events";
import { Readable } from "node:stream";
import { sql } from "kysely";
import pg from "pg";
import { examplePayload } from "../../api/openapi/event-examples.ts";
import { EVENT_OBJECTS } from "../../api/openapi/event-objects.ts";
import { kysely, type Tenant } from "../../db/orm.ts";
import { transaction } from "../../db/transaction.ts";
import { resumeAccount, suspendAccount } from "../../domain/accounts/accounts.ts";
import { importSubscribers } from "../../domain/import/import.ts";
import { confirmUrl, unsubscribeUrl } from "../../domain/mail/links.ts";
import { settleOutcomes } from "../../domain/sends/ledger/moves.ts";
import { EVENT_NAMES, EVENTS, type EventName } from "../../domain/webhooks/catalogue.ts";
import { emit, OUTBOX_CHANNEL } from "../../domain/webhooks/emit.ts";
import type { EventObjects } from "../../domain/webhooks/objects.ts";
import { sendWorkflowId } from "../../temporal/ids.ts";
import { mailLetter } from "../public/ledger.ts";
import { type ApiClient, api, type Json } from "../support/api.ts";
import { app } from "../support/command.ts";
import { eventually } from "../support/eventually.ts";
import { makeTeam, type TestTeam, uniqueEmail } from "../support/factories.ts";
import { KINDS } from "../support/kinds.ts";
import { testsOf } from "../support/long.ts";
import { SOFT_BOUNCE_POLICY } from "../support/reports.ts";
import {
  type AnySender,
  idOf,
  ledgerStates,
  makeCampaignSender,
  makeSender,
  pathOf,
  people,
  sendAndWait,
  setFaults,
  slowAfter,
  startSend,
  tableOf,
  untilStatus,
} from "../support/sending.ts";
import { stack } from "../support/stack.ts";
import { temporalClient } from "../support/temporal.ts";
import { recordsOf } from "../support/webhooks.ts";
import { type EmittedEvent, emitted, emittedEvents, listen } from "./outbox.ts";

const { it, longIt } = testsOf();

const live = ({ team }: Pick<TestTeam, "team">): Tenant => ({ teamId: team.id, environment: "LIVE" });

const typesOf = (events: EmittedEvent[]): string[] => events.map(({ type }) => type);
const objectsOf = (events: EmittedEvent[], type: EventName): Json[] =>
  events.filter((event) => event.type === type).map(({ object }) => object);
const emailsOf = (events: EmittedEvent[], type: EventName): string[] =>
  objectsOf(events, type)
    .map(({ email }) => email)
    .sort();

async function made(client: ApiClient, path: string, body: Json): Promise<Json> {
  const answer = await client.post(path, body);
  assert.ok(answer.status < 300, answer.text);
  return answer.body.data;
}

describe("The catalogue of events", () => {
  it("has an example for every type, of its kind of record", () => {
    for (const type of EVENT_NAMES) {
      const { data, ...around } = examplePayload(type);
      assert.deepEqual([around.object, around.type], ["event", type]);
      assert.equal(data.object.object, EVENTS[type].objectType);
      EVENT_OBJECTS[EVENTS[type].objectType].parse(data.object);
    }
  });
});

describe("Events of the audience", () => {
  let team: TestTeam;
  let client: ApiClient;
  let since: () => Promise<EmittedEvent[]>;
  beforeEach(async () => {
    team = await makeTeam();
    client = api(team.keys.live);
    since = emitted(team);
    await listen(team);
  });

  const addPerson = async (): Promise<Json> => made(client, "/subscribers", { email: uniqueEmail() });
  const addList = async (optin = "SINGLE"): Promise<string> =>
    (await made(client, "/lists", { name: "Readers", optin })).id;
  const subscribe = (listId: string, ...ids: string[]) =>
    made(client, `/lists/${listId}/subscribers`, { subscriber_ids: ids });
  const recordOn = async (listId: string, subscriberId: string): Promise<Json> => {
    const { body } = await client.get(`/lists/${listId}/subscribers`);
    const { id, first_name, last_name, ...rest } = body.data.find((row: Json) => row.id === subscriberId);
    return { ...rest, object: "subscription", subscriber_id: id };
  };

  it("report a subscriber that is added or changed, with the API's record", async () => {
    const person = await addPerson();
    assert.deepEqual(await since(), [{ type: "subscriber.created", object: person }]);

    assert.equal((await client.post("/subscribers", { email: person.email })).status, 409);
    const same = await client.patch(`/subscribers/${person.id}`, { email: person.email, last_name: null });
    assert.equal(same.status, 200);
    await client.patch(`/subscribers/${person.id}`, {});
    assert.deepEqual(await since(), [], "nothing changed");

    const changed = await client.patch(`/subscribers/${person.id}`, { first_name: "Zoë" });
    assert.deepEqual(await since(), [{ type: "subscriber.updated", object: changed.body.data }]);
    assert.notEqual(changed.body.data.updated_at, person.updated_at);
  });

  it("report each subscription that is made or removed, once", async () => {
    const [one, two] = [await addPerson(), await addPerson()];
    const listId = await addList();
    await since();
    await subscribe(listId, one.id, two.id);
    const created = await since();
    assert.deepEqual(typesOf(created), ["subscription.created", "subscription.created"]);
    assert.deepEqual(
      objectsOf(created, "subscription.created").find(({ email }) => email === one.email),
      await recordOn(listId, one.id),
    );
    await subscribe(listId, one.id, two.id);
    assert.deepEqual(await since(), [], "both are on it");

    const before = await recordOn(listId, one.id);
    assert.equal((await client.delete(`/lists/${listId}/subscribers/${one.id}`)).status, 200);
    assert.equal((await client.delete(`/lists/${listId}/subscribers/${one.id}`)).status, 404);
    assert.deepEqual(await since(), [{ type: "subscription.removed", object: before }]);
  });

  it("report every subscription of a deleted list, in rows of 500 at most", async () => {
    const listId = await addList();
    const count = 1_203;
    await sql`with p as (
        insert into subscribers (id, team_id, environment, email)
        select 'sub_' || ${listId} || n, ${team.team.id}, 'LIVE', n || '@' || ${listId} || '.example'
        from generate_series(1, ${count}) n returning id)
      insert into subscriptions (list_id, subscriber_id, team_id, environment, status)
      select ${listId}, id, ${team.team.id}, 'LIVE', case when row_number() over () <= 3 then 'UNSUBSCRIBED' else 'CONFIRMED' end
      from p`.execute(kysely(team.em));
    assert.equal((await client.delete(`/lists/${listId}`)).status, 200);
    const events = await since();
    assert.equal(events.length, count - 3, "a subscriber that opted out was taken off then");
    assert.deepEqual([...new Set(typesOf(events))], ["subscription.removed"]);
    assert.equal(
      new Set(objectsOf(events, "subscription.removed").map(({ subscriber_id }) => subscriber_id)).size,
      1_200,
    );
  });

  it("report a double opt-in at the click that confirms it, and at no later click", async () => {
    const person = await addPerson();
    const listId = await addList("DOUBLE");
    await since();
    await subscribe(listId, person.id);
    const created = await since();
    const mailed = await eventually(
      async () => {
        const record = await recordOn(listId, person.id);
        return record.confirmation_sent_at === null ? undefined : record;
      },
      { what: "the confirmation mail" },
    );
    // The mail changed it after its event.
    const asCreated = { ...mailed, confirmation_sent_at: null, updated_at: mailed.created_at };
    assert.deepEqual(created, [{ type: "subscription.created", object: asCreated }]);
    const { origin } = await stack();
    const url = confirmUrl(team.vault, origin, { listId, subscriberId: person.id, email: person.email });
    assert.equal((await fetch(url)).status, 200);
    assert.deepEqual(await since(), []);
    for (let click = 0; click < 2; click++) assert.equal((await fetch(url, { method: "POST" })).status, 200);
    const record = await recordOn(listId, person.id);
    assert.equal(record.status, "CONFIRMED");
    assert.deepEqual(await since(), [{ type: "subscription.confirmed", object: record }]);
  });

  it("report a subscriber that is deleted, and each list that they had not left before", async () => {
    const person = await addPerson();
    const [stays, left] = [await addList(), await addList()];
    await subscribe(stays, person.id);
    await subscribe(left, person.id);
    await since();
    await client.patch(`/lists/${left}/subscribers/${person.id}`, { status: "UNSUBSCRIBED" });
    const [record, before] = [await recordOn(left, person.id), await recordOn(stays, person.id)];
    assert.deepEqual(await since(), [{ type: "subscription.removed", object: record }]);
    assert.equal((await client.delete(`/subscribers/${person.id}`)).status, 200);
    assert.deepEqual(await since(), [
      { type: "subscription.removed", object: before },
      { type: "subscriber.deleted", object: person },
    ]);
  });

  it("report a suppression that is lifted, and none that was added through the API", async () => {
    const email = uniqueEmail();
    await made(client, "/suppressions", { emails: [email] });
    assert.deepEqual(await since(), []);
    const record = (await client.get(`/suppressions/${email}`)).body.data;
    const cleanup = api(team.keys.cleanup);
    assert.equal((await cleanup.delete(`/suppressions/${record.id}`)).status, 200);
    assert.equal((await cleanup.delete(`/suppressions/${record.id}`)).status, 404);
    assert.deepEqual(await since(), [{ type: "suppression.removed", object: record }]);
  });

  it("report an unsubscribe once, with each list that it ends and the suppression", async () => {
    const mail = await mailLetter(team);
    await since();
    const url = unsubscribeUrl(team.vault, (await stack()).origin, mail);
    for (let click = 0; click < 2; click++) assert.equal((await fetch(url, { method: "POST" })).status, 200);
    const events = await since();
    assert.deepEqual(typesOf(events).sort(), [
      "subscription.removed",
      "subscription.removed",
      "suppression.added",
      "unsubscribe.created",
    ]);
    assert.deepEqual(
      objectsOf(events, "subscription.removed")
        .map(({ list_id, status }) => [list_id, status])
        .sort(),
      mail.listIds.toSorted().map((id) => [id, "UNSUBSCRIBED"]),
    );
    const suppression = (await client.get(`/suppressions/${mail.email}`)).body.data;
    assert.deepEqual(objectsOf(events, "suppression.added"), [suppression]);
    const [unsubscribe] = (await client.get("/unsubscribes", { query: { email: mail.email } })).body.data;
    assert.deepEqual(objectsOf(events, "unsubscribe.created"), [unsubscribe]);
  });

  it("report only the unsubscribe when the address is suppressed already and has left the list", async () => {
    const mail = await mailLetter(team);
    await made(client, "/suppressions", { emails: [mail.email] });
    for (const id of mail.listIds) await client.delete(`/lists/${id}/subscribers/${mail.subscriberId}`);
    await since();
    const url = unsubscribeUrl(team.vault, (await stack()).origin, mail);
    assert.equal((await fetch(url, { method: "POST" })).status, 200);
    assert.deepEqual(typesOf(await since()), ["unsubscribe.created"]);
  });

  it("report a complaint once, and the suppression that it causes", async () => {
    const mail = await mailLetter(team);
    await since();
    const record = () => app("complaint:record", "--newsletter", mail.newsletterId, "--email", mail.email, "--json");
    for (let i = 0; i < 2; i++) assert.equal((await record()).code, 0);
    const events = await since();
    assert.deepEqual(typesOf(events), ["email.complained", "suppression.added"]);
    const [email] = objectsOf(events, "email.complained");
    assert.deepEqual(
      [email.id, email.newsletter_id, email.email, email.status, email.subscriber_id],
      [`${mail.seq}.${mail.sendId}`, mail.newsletterId, mail.email, "COMPLAINED", mail.subscriberId],
    );
    assert.equal(objectsOf(events, "suppression.added")[0].reason, "bounce:complaint");
  });

  describe("from an import", () => {
    const load = (csv: string, options: { listId?: string; confirmed?: boolean; asks?: boolean } = {}) =>
      importSubscribers(team.em, team.vault, live(team), Readable.from([csv]), { onRefused: () => {}, ...options });

    it("report each subscriber and subscription that was made or changed, and nothing else", async () => {
      const count = 620;
      const listId = await addList("DOUBLE");
      const csv = (first: string) =>
        `email,first_name\n${Array.from({ length: count }, (_, i) => `p${i}@${listId.replace("_", "-")}.example,${i < 10 ? first : "A"}`).join("\n")}`;
      await load(csv("A"), { listId, asks: true });
      const created = await since();
      assert.equal(objectsOf(created, "subscriber.created").length, count);
      assert.equal(objectsOf(created, "subscription.created").length, count);
      assert.equal(created.length, 2 * count);
      assert.equal(new Set(emailsOf(created, "subscriber.created")).size, count);
      const [subscribed, made] = (["subscription.created", "subscriber.created"] as const).map((type) =>
        emailsOf(created, type).toSorted(),
      );
      assert.deepEqual(subscribed, made);
      const { rows } = await sql<{ most: number }>`select coalesce(max(json_array_length(objects::json)), 0) as most
        from webhook_outbox where team_id = ${team.team.id}`.execute(kysely(team.em));
      assert.ok((rows[0]?.most ?? 0) <= 500);
      const [person] = objectsOf(created, "subscriber.created");
      const { subscriptions, ...record } = (await client.get(`/subscribers/${person.id}`)).body.data;
      assert.deepEqual(person, record);
      const subscription = objectsOf(created, "subscription.created").find(({ email }) => email === person.email);
      const [{ updated_at, confirmation_sent_at: _, ...now }] = subscriptions;
      // The confirmation mail may have left since: that changes the record.
      assert.ok(subscription.updated_at <= updated_at);
      assert.deepEqual(subscription, {
        ...now,
        updated_at: subscription.updated_at,
        confirmation_sent_at: null,
        object: "subscription",
        subscriber_id: person.id,
        email: person.email,
      });

      await load(csv("A"), { listId, asks: true });
      assert.deepEqual(await since(), [], "the same file again");
      await load(csv("B"), { listId, confirmed: true });
      const changed = await since();
      assert.deepEqual(
        objectsOf(changed, "subscriber.updated").map(({ first_name }) => first_name),
        Array.from({ length: 10 }, () => "B"),
      );
      assert.equal(objectsOf(changed, "subscription.confirmed").length, count);
      assert.equal(changed.length, 10 + count);
    });
  });
});

describe("An event", () => {
  const rowsOf = async ({ em, team }: TestTeam): Promise<number> => {
    const { rows } = await sql<{ count: number }>`
      select (select count(*)::int from webhook_outbox where team_id = ${team.id})
        + (select count(*)::int from webhook_events where team_id = ${team.id}) as count`.execute(kysely(em.fork()));
    return rows[0]?.count ?? -1;
  };
  /** A bit of everything that an API key can change. */
  const bustle = async (team: TestTeam): Promise<void> => {
    const client = api(team.keys.live);
    const mail = await mailLetter(team);
    await client.patch(`/subscribers/${mail.subscriberId}`, { first_name: "Zoë" });
    await client.delete(`/lists/${mail.listIds[0]}/subscribers/${mail.subscriberId}`);
    await fetch(unsubscribeUrl(team.vault, (await stack()).origin, mail), { method: "POST" });
    await client.delete(`/lists/${mail.listIds[1]}`);
  };

  it("is not written without an endpoint, nor for one stopped by hand or of another team", async () => {
    const [without, stopped, listening] = [await makeTeam(), await makeTeam(), await makeTeam()];
    await listen(stopped, { disabled: "manual" });
    await listen(listening);
    for (const team of [without, stopped]) await bustle(team);
    assert.deepEqual([await rowsOf(without), await rowsOf(stopped), await rowsOf(listening)], [0, 0, 0]);
  });

  it("is written only for types that an endpoint subscribed to", async () => {
    const team = await makeTeam();
    await listen(team, { events: ["unsubscribe.created"] });
    await listen(team, { events: ["subscriber.updated", "unsubscribe.created"] });
    await bustle(team);
    assert.deepEqual(typesOf(await emittedEvents(team)), ["subscriber.updated", "unsubscribe.created"], "once each");
  });

  it("does not leave its environment", async () => {
    const team = await makeTeam();
    await listen(team);
    await made(api(team.keys.test), "/subscribers", { email: uniqueEmail() });
    assert.equal(await rowsOf(team), 0);
    await listen(team, { environment: "TEST" });
    await made(api(team.keys.test), "/subscribers", { email: uniqueEmail() });
    const { rows } = await sql<{ environment: string }>`
      select environment from webhook_outbox where team_id = ${team.team.id}
      union all select environment from webhook_events where team_id = ${team.team.id}`.execute(kysely(team.em));
    assert.deepEqual(rows, [{ environment: "TEST" }]);
  });

  it("is not written, and notifies no relay, when its transaction is rolled back", async () => {
    const team = await makeTeam();
    await listen(team);
    const { env } = await stack();
    const heard: string[] = [];
    const ear = new pg.Client(env.DATABASE_URL);
    await ear.connect();
    try {
      await ear.query(`listen ${OUTBOX_CHANNEL}`);
      ear.on("notification", ({ payload }) => heard.push(payload ?? ""));
      const object: EventObjects["contact.deleted"] = {
        object: "contact",
        id: "con_x",
        email: uniqueEmail(),
        first_name: null,
        last_name: null,
        fields: {},
        email_status: "ACTIVE",
        tracking_consent: null,
        created_at: "2026-08-15T10:00:00.000Z",
        updated_at: "2026-08-15T10:00:00.000Z",
      };
      const note = (fail: boolean) =>
        transaction(team.em, async (tx) => {
          await emit(tx, live(team), "contact.deleted", recordsOf([object]));
          if (fail) throw new Error("no");
        });
      await assert.rejects(note(true), /no/);
      // Listening first: it may arrive before the statement's answer.
      const mark = once(ear, "notification");
      await sql`select pg_notify(${OUTBOX_CHANNEL}, 'mark')`.execute(kysely(team.em));
      await mark;
      assert.deepEqual(heard, ["mark"]);
      assert.equal(await rowsOf(team), 0);
      await note(false);
      await eventually(() => heard.length > 1, { what: "the notification" });
      assert.deepEqual(await emittedEvents(team), [{ type: "contact.deleted", object }]);
    } finally {
      await ear.end();
    }
  });
});

describe("Events of a send", () => {
  let workflowOf: (sendId: string) => { executeUpdate(name: string): Promise<unknown> };
  let close: () => Promise<void>;
  before(async () => {
    const temporal = await temporalClient();
    workflowOf = (sendId) => temporal.client.workflow.getHandle(sendWorkflowId(sendId));
    close = temporal.close;
  });
  after(() => close());
  afterEach(() => setFaults([]));

  /** The newsletter or campaign as its events have it: as the API shows it, without its body, and counts of an ended send alone. */
  const shownBy = async (sender: AnySender): Promise<Json> => {
    const { body, recipients, is_drip, drip_steps, ...shown } = (await sender.client.get(pathOf(sender))).body.data;
    return { ...shown, recipients: shown.status === "SENT" ? recipients : null };
  };
  const never = (sender: AnySender) =>
    sql`update ${tableOf(sender)} set send_days = array[(extract(isodow from now() at time zone 'UTC')::int % 7 + 1)]
      where id = ${idOf(sender)}`.execute(kysely(sender.em));

  it("report each mail once: sent, rejected, and a hard bounce", async () => {
    const sender = await makeSender({ recipients: 0 });
    const { audience } = sender;
    const since = emitted(sender);
    await listen(sender);
    const csv = people(60, audience).map(({ email, firstName }) => `${email},${firstName}`);
    const file = Readable.from([`email,first_name\n${csv.join("\n")}`]);
    const options = { listId: sender.listId, onRefused: () => {} };
    await importSubscribers(sender.em, sender.vault, live(sender), file, options);
    await since();
    await setFaults([
      { stage: "rcpt", match: `person1\\d@${audience}`, code: 550, message: "5.1.1 No such user" },
      { stage: "rcpt", match: `person2\\d@${audience}`, code: 552, message: "5.2.2 Mailbox full" },
      { stage: "rcpt", match: `person3\\d@${audience}`, code: 450, message: "4.2.0 Later", times: 10 },
      { stage: "data", match: `person40@${audience}`, drop: true },
    ]);
    assert.equal((await sendAndWait(sender)).status, "SENT");
    assert.deepEqual(await ledgerStates(sender), { SENT: 39, REJECTED: 20, UNKNOWN: 1 });
    const events = await since();
    assert.deepEqual(
      typesOf(events).filter((type) => type.startsWith("newsletter.")),
      ["newsletter.scheduled", "newsletter.started", "newsletter.completed"],
    );
    assert.deepEqual(objectsOf(events, "newsletter.completed"), [await shownBy(sender)]);
    assert.equal(events.length, 3 + 39 + 20 + 10);

    const { rows } = await sql<Json>`
      select r.seq, r.send_id, r.member_id as subscriber_id, r.email, r.state, r.reason, r.attempts::int as attempts
      from send_recipients r join newsletters n on n.send_id = r.send_id where n.id = ${sender.newsletterId}
      order by r.email`.execute(kysely(sender.em));
    for (const [type, state] of [
      ["email.sent", "SENT"],
      ["email.rejected", "REJECTED"],
    ] as const) {
      assert.deepEqual(
        objectsOf(events, type)
          .map(({ updated_at, ...email }) => email)
          .sort((a, b) => (a.email < b.email ? -1 : 1)),
        rows
          .filter((row) => row.state === state)
          .sort((a, b) => (a.email < b.email ? -1 : 1))
          .map(({ seq, send_id, subscriber_id, email, reason, attempts }) => ({
            object: "email",
            id: `${seq}.${send_id}`,
            newsletter_id: sender.newsletterId,
            campaign_id: null,
            subscriber_id,
            contact_id: null,
            email,
            status: state,
            reason,
            attempts,
          })),
      );
    }
    const suppressed = objectsOf(events, "suppression.added");
    assert.equal(suppressed.length, 10);
    const [one] = suppressed;
    assert.deepEqual(one, (await sender.client.get(`/suppressions/${one.email}`)).body.data);
    assert.equal(one.reason, "bounce:hard");
  });

  for (const eventsWanted of [true, false]) {
    const when = eventsWanted ? "before its slice began" : "since its slice began";
    it(`report a mail whose outcome came late, once, to an endpoint that subscribed ${when}`, async () => {
      const team = await makeTeam();
      const mail = await mailLetter(team);
      const since = emitted(team);
      await listen(team);
      await sql`update send_recipients set state = 'UNKNOWN', reason = 'worker_lost', epoch = 1, account_id = 'acct_x'
        where send_id = ${mail.sendId}`.execute(kysely(team.em));
      const settle = () =>
        settleOutcomes(
          team.em.fork(),
          {
            ...live(team),
            sendId: mail.sendId,
            accountId: "acct_x",
            resource: { type: "newsletter", id: mail.newsletterId },
            epoch: 1,
            shared: false,
            eventsWanted,
          },
          [{ item: mail, outcome: { outcome: "sent", reason: "accepted" } }],
          { DEFERRAL_LADDER_SECONDS: [1], DEFERRAL_WINDOW_SECONDS: 1, ...SOFT_BOUNCE_POLICY },
        );
      assert.deepEqual(await settle(), { SENT: 1 });
      assert.deepEqual(
        (await since()).map(({ type, object }) => [type, object.email]),
        [["email.sent", mail.email]],
      );
      assert.deepEqual(await settle(), {});
      assert.deepEqual(await since(), []);
    });
  }

  it("report a mail that is sent again after it was unknown once, and the newsletter's end no second time", async () => {
    const sender = await makeSender({ recipients: 6 });
    await listen(sender);
    await setFaults([{ stage: "data", match: sender.audience, drop: true, times: 2 }]);
    await sendAndWait(sender);
    assert.equal(emailsOf(await emittedEvents(sender), "email.sent").length, 4);
    await setFaults([]);
    await sql`update send_recipients r set updated_at = now() - interval '1 hour' from newsletters n
      where n.id = ${sender.newsletterId} and r.send_id = n.send_id and r.state = 'UNKNOWN'`.execute(kysely(sender.em));
    const { rows } = await sql<{
      send_id: string;
    }>`select send_id from newsletters where id = ${sender.newsletterId}`.execute(kysely(sender.em));
    await workflowOf(rows[0]?.send_id ?? "").executeUpdate("resendUnknown");
    await eventually(async () => (await ledgerStates(sender))["SENT"] === 6, { what: "the rest" });
    await eventually(
      async () => {
        const { rows } =
          await sql`select 1 from sends where resource_id = ${sender.newsletterId} and status = 'SENT'`.execute(
            kysely(sender.em.fork()),
          );
        return rows.length > 0;
      },
      { what: "the end" },
    );
    const events = await emittedEvents(sender);
    assert.deepEqual(
      emailsOf(events, "email.sent"),
      people(6, sender.audience).map(({ email }) => email),
    );
    assert.equal(objectsOf(events, "newsletter.completed").length, 1);
  });

  for (const { type, make } of KINDS) {
    (type === "newsletter" ? it : longIt)(`report each pause of a ${type}, the start once, and a cancel`, async () => {
      const sender = await make({ recipients: 60, account: { maxConnections: 2 } });
      await listen(sender, { events: EVENT_NAMES.filter((name) => !name.startsWith("email.")) });
      const since = emitted(sender);
      await slowAfter(10, sender);
      await never(sender);
      const { data } = await startSend(sender);
      const handle = workflowOf(data.id);
      assert.deepEqual(typesOf(await since()), [`${type}.scheduled`]);
      await handle.executeUpdate("pause");
      await handle.executeUpdate("pause");
      const paused = await since();
      assert.deepEqual(typesOf(paused), [`${type}.paused`], "it was paused already");
      assert.deepEqual(objectsOf(paused, `${type}.paused`), [await shownBy(sender)]);
      await handle.executeUpdate("resume");
      assert.deepEqual(typesOf(await since()), [], "it waits for its time again");
      await handle.executeUpdate("pause");
      await sql`update sends set send_at = now() where id = ${data.id}`.execute(kysely(sender.em));
      await handle.executeUpdate("resume");
      await eventually(async () => ((await ledgerStates(sender))["SENT"] ?? 0) > 3, { what: "some mail" });
      assert.deepEqual(typesOf(await since()), [`${type}.paused`, `${type}.started`]);
      await handle.executeUpdate("pause");
      await handle.executeUpdate("resume");
      await handle.executeUpdate("cancel");
      await untilStatus(sender, ["CANCELLED"]);
      const events = await since();
      assert.deepEqual(typesOf(events), [`${type}.paused`, `${type}.cancelled`]);
      assert.deepEqual(objectsOf(events, `${type}.cancelled`), [await shownBy(sender)]);
    });
  }

  it("report the mails of a campaign with its id and their contacts', and no newsletter", async () => {
    const sender = await makeCampaignSender({ recipients: 12 });
    await listen(sender);
    const since = emitted(sender);
    await setFaults([{ stage: "rcpt", match: `person7@${sender.audience}`, code: 550, message: "5.1.1 No such user" }]);
    await sendAndWait(sender);
    const events = await since();
    assert.deepEqual(
      typesOf(events).filter((type) => /^(?:campaign|newsletter)\./.test(type)),
      ["campaign.scheduled", "campaign.started", "campaign.completed"],
    );
    assert.deepEqual(objectsOf(events, "campaign.completed"), [await shownBy(sender)]);
    const contacts = (await sender.client.get("/contacts", { query: { limit: 100 } })).body.data;
    const mails = [...objectsOf(events, "email.sent"), ...objectsOf(events, "email.rejected")];
    assert.deepEqual(
      mails
        .map(({ newsletter_id, campaign_id, subscriber_id, contact_id, email }) => [
          newsletter_id,
          campaign_id,
          subscriber_id,
          contact_id,
          email,
        ])
        .sort((a, b) => (a[4] < b[4] ? -1 : 1)),
      contacts
        .map(({ id, email }: Json) => [null, sender.campaignId, null, id, email])
        .sort((a: Json, b: Json) => (a[4] < b[4] ? -1 : 1)),
    );
    assert.equal(objectsOf(events, "email.rejected").length, 1);
    assert.equal(objectsOf(events, "suppression.added").length, 1);
  });

  it("report once that an account was taken out of service, and once that it was put back", async () => {
    const sender = await makeSender({ recipients: 0 });
    await listen(sender);
    const since = emitted(sender);
    const deps = { vault: sender.vault, verify: async () => ({ ok: true }) as const };
    await resumeAccount(sender.em.fork(), sender.accountId, deps);
    assert.deepEqual(await since(), [], "it was in service");
    for (let i = 0; i < 2; i++) await suspendAccount(sender.em.fork(), sender.accountId);
    assert.deepEqual(
      (await since()).map(({ type, object }) => [type, object.status]),
      [["account.error", "SUSPENDED"]],
    );
    for (let i = 0; i < 2; i++) await resumeAccount(sender.em.fork(), sender.accountId, deps);
    assert.deepEqual(
      (await since()).map(({ type, object }) => [type, object.status]),
      [["account.recovered", "ACTIVE"]],
    );
  });
});

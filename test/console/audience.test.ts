import assert from "node:assert/strict";
import { sql } from "kysely";
import type { Role } from "../../db/entities/team.ts";
import { kysely } from "../../db/orm.ts";
import { suppress } from "../../domain/audience/suppressions.ts";
import { mailed } from "../reports/mails.ts";
import { clientAs, consoleClient, refusalCodeOf, signIn } from "../support/console.ts";
import { makeTeam, type TestTeam, uniqueEmail } from "../support/factories.ts";
import { makeForm } from "../support/forms.ts";
import { addSubscribers, makeSender, people } from "../support/sending.ts";
import { addPerson, makeSequence, untilEnrolled } from "../support/sequences.ts";

const IN_ROME = { field: "fields.city", op: "eq", value: "Rome" };

describe("The audience in the console", () => {
  let team: TestTeam;
  const as = (role: Role, of = team) => clientAs(of, role);
  type Client = Awaited<ReturnType<typeof as>>;
  const addContact = (client: Client, email: string, city: string) =>
    client.api.contacts.create.mutate({ body: { email, fields: { city } } });
  before(async () => {
    team = await makeTeam();
  });

  it("counts the members of the lists, which stand by name, how many more they are than 30 days ago, and those who left", async () => {
    const sender = await makeSender({ recipients: 0 });
    const { em, team: owning, owner, listId } = sender;
    const client = await consoleClient(await signIn(owner.id), owning.id);
    const { id: last } = (await client.api.lists.create.mutate({ body: { name: "zeta", optin: "SINGLE" } })).data;
    const { id: first } = (await client.api.lists.create.mutate({ body: { name: "Alpha", optin: "SINGLE" } })).data;
    await addSubscribers(sender, listId, people(7, sender.audience));
    const days = (number: number) => sql`now() - make_interval(days => ${number})`;
    const set = (n: number, columns: ReturnType<typeof sql>) =>
      sql`update subscriptions set ${columns} where list_id = ${listId} and subscriber_id = (
        select id from subscribers where team_id = ${owning.id} order by id offset ${n} limit 1)`.execute(kysely(em));
    await set(0, sql`confirmed_at = ${days(40)}`);
    await set(1, sql`status = 'UNSUBSCRIBED', confirmed_at = ${days(50)}, unsubscribed_at = ${days(40)}`);
    await set(2, sql`status = 'UNSUBSCRIBED', confirmed_at = ${days(40)}, unsubscribed_at = ${days(3)}`);
    await set(3, sql`status = 'UNSUBSCRIBED', confirmed_at = ${days(5)}, unsubscribed_at = ${days(3)}`);
    await set(4, sql`status = 'PENDING', confirmed_at = null`);
    await set(5, sql`confirmed_at = ${days(29)}`);
    await set(6, sql`confirmed_at = ${days(29)}`);
    const { lists } = (await client.app.audience.lists.query({ query: {} })).data;
    assert.deepEqual(
      lists.map(({ id, members, growth, unsubscribed }) => [id, members, growth, unsubscribed]),
      [
        [first, 0, 0, null],
        [listId, 3, 1, null],
        [last, 0, 0, null],
      ],
    );
    const [one] = (await client.app.audience.lists.query({ query: { list_id: listId } })).data.lists;
    assert.deepEqual([one?.growth, one?.unsubscribed], [1, 3]);
    const read = async (query: object) =>
      (await client.app.audience.lists.query({ query })).data.lists.map(({ id }) => id);
    assert.deepEqual(await read({ cursor: first }), [listId, last]);
    assert.deepEqual(await read({ q: "ALP" }), [first]);
    assert.deepEqual(await read({ list_id: last }), [last]);
  });

  it("lets an EDITOR declare fields and write segments, which a VIEWER reads and counts", async () => {
    const editor = await as("EDITOR");
    const viewer = await as("VIEWER");
    const field = { name: "city", type: "text" } as const;
    assert.equal(await refusalCodeOf(viewer.app.audience.createField.mutate({ body: field })), "role_insufficient");
    await editor.app.audience.createField.mutate({ body: field });
    const email = uniqueEmail();
    await addContact(editor, email, "Rome");

    const body = { name: "Romans", conditions: IN_ROME };
    assert.equal(await refusalCodeOf(viewer.app.audience.createSegment.mutate({ body })), "role_insufficient");
    const { data: made } = await editor.app.audience.createSegment.mutate({ body });
    const counted = await viewer.app.audience.countSegment.mutate({ body: { conditions: IN_ROME } });
    assert.deepEqual(counted.data, { contacts: 1, is_estimate: false, sample: [email] });
    const use = await viewer.app.audience.fieldUse.query({ query: { name: "city" } });
    assert.deepEqual(use.data, { contacts: 1, segments: [{ id: made.id, name: "Romans" }] });

    const params = { segmentId: made.id };
    const others = { name: "Others", conditions: { not: IN_ROME } };
    await editor.app.audience.updateSegment.mutate({ params, body: others });
    const { data: read } = await viewer.app.audience.segment.query({ params });
    assert.deepEqual([read.name, read.conditions, read.used_by], ["Others", { not: IN_ROME }, []]);
    const wrong = { name: "Others", conditions: { ...IN_ROME, op: "near" } };
    assert.equal(
      await refusalCodeOf(editor.app.audience.updateSegment.mutate({ params, body: wrong })),
      "validation_failed",
    );

    for (const name of ["Part 10", "Part 2"]) {
      await editor.app.audience.createSegment.mutate({ body: { name, conditions: IN_ROME } });
      await editor.api.lists.create.mutate({ body: { name } });
    }
    const namesIn = (found: { data: readonly { name: string }[] }) => found.data.map(({ name }) => name);
    assert.deepEqual(namesIn(await viewer.app.audience.allLists.query({})), ["Part 2", "Part 10"]);
    assert.deepEqual(namesIn(await viewer.app.audience.segments.query({})), ["Others", "Part 2", "Part 10"]);

    const draft = await editor.api.campaigns.drafts.create.mutate({ body: { name: "Campaign" } });
    await sql`update campaigns set segment_id = ${made.id} where id = ${(draft.data as { id: string }).id}`.execute(
      kysely(team.em),
    );
    const { data: used } = await viewer.app.audience.segment.query({ params });
    assert.deepEqual(
      used.used_by.map(({ name, status }) => [name, status]),
      [["Campaign", "DRAFT"]],
    );
    await editor.app.audience.deleteSegment.mutate({ params });
    assert.deepEqual(namesIn(await viewer.app.audience.segments.query({})), ["Part 2", "Part 10"]);
    assert.equal((await editor.app.audience.deleteField.mutate({ body: { name: "city" } })).data.contacts, 1);
  });

  it("lets an EDITOR note what a person said about tracking, also in place of a denial", async () => {
    const editor = await as("EDITOR");
    const viewer = await as("VIEWER");
    const email = uniqueEmail();
    const said = { status: "granted", words: "May we count?" } as const;
    await editor.api.subscribers.create.mutate({ body: { email, tracking_consent: { status: "denied" } } });
    const body = { email, tracking_consent: said };
    assert.equal(await refusalCodeOf(viewer.app.audience.noteConsent.mutate({ body })), "role_insufficient");
    await editor.app.audience.noteConsent.mutate({ body });
    const [person] = (await viewer.api.subscribers.page.query({ query: { email } })).data;
    assert.deepEqual({ ...person?.tracking_consent, at: "" }, { ...said, at: "", way: "member" });
  });

  it("finds people by any part of their address or name from three characters, else by the beginning of the address, those of the team alone", async () => {
    const own = await makeTeam();
    const [client, foreign] = [await clientAs(own, "EDITOR"), await as("EDITOR")];
    const create = async (of: Client, email: string, first_name?: string, last_name?: string) =>
      (await of.api.subscribers.create.mutate({ body: { email, first_name, last_name } })).data.id;
    await create(client, "mabel@north.example", "Zoë", "Östlund");
    const ann = await create(client, "ann_b@example.com", "Bo Ann", "Smith");
    await create(client, "anna@example.com");
    await create(foreign, "ann_c@example.com");
    await client.api.contacts.create.mutate({ body: { email: "hanna@example.com", last_name: "Иванова" } });
    const search = async (
      text: string,
      table: "subscribers" | "contacts" | "suppressions" = "subscribers",
      list_id?: string,
    ) =>
      (
        (await client.app.audience.search.query({ query: { in: table, text, list_id } })).data as unknown as {
          email: string;
        }[]
      ).map(({ email }) => email.split("@")[0]);
    const people = async (text: string) =>
      (await client.app.audience.people.query({ query: { text } })).data.people.map(({ email }) => email.split("@")[0]);

    assert.deepEqual(await search(" NN_B@"), ["ann_b"], "_ is no wildcard");
    assert.deepEqual(await search("north.ex"), ["mabel"]);
    assert.deepEqual(await search("ZOË  öst"), ["mabel"], "a full name, in another case and with other spaces");
    assert.deepEqual(await search("stlu"), ["mabel"]);
    await create(client, "puny@xn--bcher-kva.example", "Ju\u0308rgen", "de  la\u00a0Cruz");
    for (const text of ["jürgen", "ju\u0308rgen de la", "la cruz", "@xn--bcher", "@bücher"])
      assert.deepEqual(await search(text), ["puny"], text);
    assert.deepEqual(await search("exampleann"), []);
    assert.deepEqual(await search("ann"), ["ann_b", "anna"]);
    assert.deepEqual(await search("an"), ["ann_b", "anna"]);
    assert.deepEqual([await search("ma"), await search("bo")], [["mabel"], []], "the beginning of an address alone");
    assert.deepEqual(await search("%%%"), []);
    assert.deepEqual(await search("иван", "contacts"), ["hanna"]);
    assert.deepEqual(await people("anna"), ["anna", "hanna"], "subscribers and contacts");
    await client.api.suppressions.create.mutate({ body: { emails: ["ann_b@example.com"] } });
    assert.deepEqual([await search("ann", "suppressions"), await search("nn_b", "suppressions")], [["ann_b"], []]);

    const { data: list } = await client.api.lists.create.mutate({ body: { name: "Readers", optin: "SINGLE" } });
    await client.api.lists.addMembers.mutate({ params: { listId: list.id }, body: { subscriber_ids: [ann] } });
    assert.deepEqual(await search("ann", "subscribers", list.id), ["ann_b"]);
  });

  it("shows each person once, by address, and filters them by list, segment and address status, page by page", async () => {
    const own = await makeSender({ recipients: 0 });
    const client = await consoleClient(await signIn(own.owner.id), own.team.id);
    const { audience, listId } = own;
    await addSubscribers(own, listId, people(60, audience));
    await sql`insert into audience_addresses (team_id, environment, email, holders)
      select team_id, environment, email, 1 from subscribers where team_id = ${own.team.id}`.execute(kysely(own.em));
    const address = (n: number) => people(60, audience)[n]?.email ?? "";
    for (const [email, first_name] of [
      [address(0), "Contact"],
      [`only@${audience}`, "Only"],
    ] as const) {
      await client.api.contacts.create.mutate({ body: { email, first_name } });
    }
    await client.api.suppressions.create.mutate({ body: { emails: [address(1)] } });
    await suppress(own.em, { teamId: own.team.id, environment: "LIVE" }, [address(3)], "UNSUBSCRIBED");
    await sql`update subscriptions set status = 'UNSUBSCRIBED' where list_id = ${listId} and subscriber_id = (
      select id from subscribers where team_id = ${own.team.id} and email = ${address(2)})`.execute(kysely(own.em));
    type Query = Parameters<typeof client.app.audience.people.query>[0]["query"];
    const page = async (query: Query) => (await client.app.audience.people.query({ query })).data;
    const all = async (query: Query) => {
      const first = await page(query);
      if (first.next === null) return first.people;
      assert.equal(first.people.length, 50);
      const second = await page({ ...query, after: first.next });
      assert.equal(second.next, null);
      return [...first.people, ...second.people];
    };
    const found = await all({});
    const emails = found.map(({ email }) => email);
    assert.deepEqual(emails, [...new Set(emails)].sort());
    assert.equal(emails.length, 61);
    const counted = async (query: Query) => {
      const { total, has_more, people } = await page(query);
      return [total, has_more, people.length];
    };
    assert.deepEqual(await counted({}), [61, false, 50]);
    assert.deepEqual(await counted({ list_id: listId }), [59, false, 50]);
    assert.deepEqual(await counted({ text: audience }), [61, false, 26]);
    const shown = (email: string) => {
      const one = found.find((person) => person.email === email) ?? assert.fail(email);
      assert.equal(one.subscriber_id === null, one.lists === null);
      return [one.is_contact, one.lists, one.status];
    };
    assert.deepEqual(shown(address(0)), [true, 1, "ACTIVE"]);
    assert.deepEqual(shown(address(1)), [false, 1, "SUPPRESSED"]);
    assert.deepEqual(shown(address(2)), [false, 0, "UNSUBSCRIBED"]);
    assert.deepEqual(shown(address(3)), [false, 1, "UNSUBSCRIBED"]);
    assert.deepEqual(shown(`only@${audience}`), [true, null, "ACTIVE"]);

    assert.equal((await all({ list_id: listId })).length, 59);
    const conditions = { field: "first_name", op: "exists", value: true };
    const { data: segment } = await client.app.audience.createSegment.mutate({ body: { name: "Named", conditions } });
    const of = async (query: Query) => (await all(query)).map(({ email }) => email);
    assert.deepEqual(await of({ segment_id: segment.id }), [address(0), `only@${audience}`].sort());
    assert.deepEqual(await of({ segment_id: segment.id, list_id: listId }), [address(0)]);
    assert.deepEqual(await of({ status: "SUPPRESSED", list_id: listId }), [address(1)]);
    assert.deepEqual(await of({ status: "UNSUBSCRIBED" }), [address(2), address(3)].sort());
    assert.equal((await of({ status: "ACTIVE" })).length, 61 - 3);
    assert.deepEqual(await of({ status: "UNSUBSCRIBED", text: address(2) }), [address(2)]);
    assert.deepEqual(await of({ status: "UNSUBSCRIBED", list_id: listId }), [address(3)]);
    assert.deepEqual(await of({ status: "INVALID" }), []);
    const text = audience.toUpperCase();
    assert.deepEqual(await of({ text, segment_id: segment.id, list_id: listId }), [address(0)]);
    assert.deepEqual(await of({ text: "only@", segment_id: segment.id }), [`only@${audience}`]);
    assert.deepEqual(await of({ text, status: "SUPPRESSED", list_id: listId }), [address(1)]);

    // More than one page looks at.
    const { data: many } = await client.api.lists.create.mutate({ body: { name: "Many", optin: "SINGLE" } });
    const made = sql`from generate_series(1, 10100) i, (select ${own.team.id}::text as team, ${`@${audience}`}::text as at) t`;
    const email = sql`'a' || lpad(i::text, 5, '0') || at`;
    for (const statement of [
      sql`insert into subscribers (id, team_id, environment, email) select 'sub_' || team || i, team, 'LIVE', ${email} ${made}`,
      sql`insert into audience_addresses (team_id, environment, email, holders) select team, 'LIVE', ${email}, 1 ${made}`,
      sql`insert into subscriptions (list_id, subscriber_id, team_id, environment, status)
        select ${many.id}, 'sub_' || team || i, team, 'LIVE', 'CONFIRMED' ${made}`,
    ])
      await statement.execute(kysely(own.em));
    const listed = await page({ list_id: many.id, after: `a10049@${audience}` });
    assert.deepEqual([listed.people.length, listed.next], [50, `a10099@${audience}`]);
    const none = await page({ status: "SUPPRESSED" });
    assert.deepEqual(none, { people: [], next: `a10000@${audience}`, total: 0, has_more: true });
    assert.deepEqual((await page({ status: "UNSUBSCRIBED" })).people, []);
    assert.deepEqual(await counted({}), [10_000, true, 50]);
    assert.deepEqual(await counted({ list_id: many.id }), [500, true, 50]);
    assert.deepEqual(await of({ status: "SUPPRESSED", after: none.next ?? "" }), [address(1)]);
  });

  it("calls people unsubscribed who get no mail: a contact who left a list alone gets campaigns", async () => {
    const own = await makeTeam();
    const client = await clientAs(own, "EDITOR");
    const { id: listId } = (await client.api.lists.create.mutate({ body: { name: "Readers", optin: "SINGLE" } })).data;
    const [all, list, contact] = ["all@example.com", "list@example.com", "contact@example.com"] as const;
    const add = async (email: string) => (await client.api.subscribers.create.mutate({ body: { email } })).data.id;
    const ids = [await add(all), await add(list), await add(contact)];
    await client.api.lists.addMembers.mutate({ params: { listId }, body: { subscriber_ids: ids } });
    for (const email of [all, contact]) await client.api.contacts.create.mutate({ body: { email } });
    const [first = "", ...others] = ids;
    const viewer = await clientAs(own, "VIEWER");
    const ofFirst = { params: { listId, subscriberId: first } };
    assert.equal(await refusalCodeOf(viewer.app.audience.unsubscribe.mutate(ofFirst)), "role_insufficient");
    await client.app.audience.unsubscribe.mutate(ofFirst);
    for (const subscriberId of others)
      await client.api.lists.updateMember.mutate({
        params: { listId, subscriberId },
        body: { status: "UNSUBSCRIBED" },
      });

    const { data: suppressed } = await client.api.suppressions.page.query({ query: {} });
    assert.deepEqual(
      suppressed.map(({ email, reason }) => [email, reason]),
      [[all, "UNSUBSCRIBED"]],
    );
    const count = async (reason?: string) => (await client.app.audience.suppressed.query({ query: { reason } })).data;
    assert.deepEqual(await count(), { total: 1, has_more: false });
    assert.equal((await count("MANUAL")).total, 0);
    const people = async (status?: "ACTIVE" | "UNSUBSCRIBED") =>
      (await client.app.audience.people.query({ query: { status } })).data.people.map((one) => [
        ...[one.email, one.lists, one.status],
      ]);
    const [left, without, active] = [
      [all, 0, "UNSUBSCRIBED"],
      [list, 0, "UNSUBSCRIBED"],
      [contact, 0, "ACTIVE"],
    ];
    assert.deepEqual(await people(), [left, active, without]);
    assert.deepEqual(await people("UNSUBSCRIBED"), [left, without]);
    assert.deepEqual(await people("ACTIVE"), [active]);
    const conditions = { field: "email", op: "exists", value: true };
    const { data: everyone } = await client.app.audience.createSegment.mutate({ body: { name: "All", conditions } });
    const content = { subject: "Hi", body: "<p>Hi</p>" };
    const draft = await client.api.campaigns.drafts.create.mutate({ body: { name: "Campaign", ...content } });
    const campaign = { type: "campaign", id: draft.data.id } as const;
    await client.app.content.change.mutate({ body: { ...campaign, segment_id: everyone.id } });
    const warnings = async () =>
      (await client.app.content.check.query({ query: campaign })).data.warnings.flatMap(({ kind, message }) =>
        kind === "unsubscribed" ? message : [],
      );
    assert.deepEqual(await warnings(), ["1 of these contacts has unsubscribed from every list they were on."]);
    const { data: other } = await client.api.lists.create.mutate({ body: { name: "Other", optin: "SINGLE" } });
    const body = { subscriber_ids: ids.slice(2) };
    await client.api.lists.addMembers.mutate({ params: { listId: other.id }, body });
    assert.deepEqual(await warnings(), []);
    assert.equal(
      await refusalCodeOf(client.app.audience.unsubscribe.mutate({ params: { listId, subscriberId: "sub_none" } })),
      "not_found",
    );
  });

  it("shows the sequences that a person is or was in, with their step and state", async () => {
    const sender = await makeSender({ recipients: 0 });
    const client = await consoleClient(await signIn(sender.owner.id), sender.team.id);
    const id = await makeSequence(sender);
    const email = uniqueEmail();
    const person = await addPerson(sender, email);
    await untilEnrolled(sender, id, (enrolled) => enrolled.length === 1);
    const read = async (of: Client) =>
      (await of.app.audience.enrolments.query({ query: { email: email.toUpperCase() } })).data;
    const [waiting] = await read(client);
    assert.ok(waiting?.due_at);
    assert.deepEqual([waiting.sequence_id, waiting.name, waiting.state, waiting.step], [id, "Welcome", "ACTIVE", 1]);
    await client.api.subscribers.remove.mutate({ params: { subscriberId: person.id } });
    const [gone] = await read(client);
    assert.deepEqual([gone?.state, gone?.reason, gone?.step, gone?.due_at], ["LEFT", "subscriber_deleted", 1, null]);
    await sql`update sequence_enrolments set state = 'LEFT', reason = 'bounced', due_at = null where campaign_id = ${id}`.execute(
      kysely(sender.em),
    );
    const [left] = await read(client);
    assert.deepEqual([left?.state, left?.reason, left?.step, left?.due_at], ["LEFT", "bounced", 1, null]);
    assert.deepEqual(await read(await as("VIEWER")), []);
  });

  it("shows how and when a person agreed to each list, where it is known", async () => {
    const own = await makeTeam();
    const client = await as("EDITOR", own);
    const form = await makeForm(own);
    const { id: other } = (await client.api.lists.create.mutate({ body: { name: "Other", optin: "SINGLE" } })).data;
    const email = uniqueEmail();
    const { id } = (await client.api.subscribers.create.mutate({ body: { email } })).data;
    for (const listId of [form.listId, other])
      await client.api.lists.addMembers.mutate({ params: { listId }, body: { subscriber_ids: [id] } });
    const at = "2026-01-05T12:00:00.000Z";
    await sql`update subscriptions set form_text_id = ${form.textId}, form_at = ${at}, confirmation_sent_at = ${at}
      where list_id = ${form.listId}`.execute(kysely(own.em));
    const read = async (of: Client) =>
      (await of.app.audience.subscriptionProofs.query({ query: { email: email.toUpperCase() } })).data;
    const time = (text: string | null | undefined) => text && new Date(text).toISOString();
    const proofs = await read(await as("VIEWER", own));
    const proofOf = (listId: string) => {
      const proof = proofs.find(({ list_id }) => list_id === listId) ?? assert.fail(listId);
      assert.ok(proof.confirmed_at);
      return [proof.signed_up_at_a_form_at, proof.confirmation_sent_at].map(time).concat(proof.words_of_the_form);
    };
    assert.deepEqual(proofOf(form.listId), [at, at, "You get our letter."]);
    assert.deepEqual(proofOf(other), [null, null, null]);
    assert.deepEqual(await read(await as("VIEWER")), []);
  });

  it("shows what an address got and did, and nothing of another team's mails", async () => {
    const other = await makeTeam();
    const email = uniqueEmail();
    await mailed(other, [email]);
    const first = await mailed(team, [uniqueEmail(), email]);
    const tenant = [team.team.id, "LIVE"] as const;
    await sql`insert into engagements (send_id, seq, kind, team_id, environment, resource_id, email, count, first_at, last_at)
      values (${first.sendId}, 2, 'clicked', ${sql.join(tenant)}, ${first.newsletterId}, ${email}, 3, now(), now())`.execute(
      kysely(team.em),
    );
    await sql`insert into mail_reports (send_id, seq, kind, team_id, environment, email)
      values (${first.sendId}, 2, 'complaint', ${sql.join(tenant)}, ${email})`.execute(kysely(team.em));
    const viewer = await as("VIEWER");
    const { data } = await viewer.app.audience.history.query({ query: { email: email.toUpperCase() } });
    assert.deepEqual(
      data.mails.map(({ send_id, subject, status, opens, clicks, reports }) => ({
        ...{ send_id, subject, status, opens, clicks },
        reports: reports.map(({ kind }) => kind),
      })),
      [{ send_id: first.sendId, subject: "Letter", status: "SENT", opens: 0, clicks: 3, reports: ["complaint"] }],
    );
    assert.equal(data.next, null);
    const older = await viewer.app.audience.history.query({ query: { email, before: first.sendId } });
    assert.deepEqual(older.data, { mails: [], next: null });

    const later = await mailed(team, [email]);
    const sends = async () =>
      (await viewer.app.audience.history.query({ query: { email } })).data.mails.map(({ send_id }) => send_id);
    assert.deepEqual(await sends(), [later.sendId, first.sendId]);
    await sql`update send_recipients set updated_at = now() where send_id = ${first.sendId}`.execute(kysely(team.em));
    assert.deepEqual(
      await sends(),
      [first.sendId, later.sendId],
      "by when the mail was sent, not by the start of its send",
    );
  });
});

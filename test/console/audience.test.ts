import assert from "node:assert/strict";
import { sql } from "kysely";
import type { Role } from "../../db/entities/team.ts";
import { kysely } from "../../db/orm.ts";
import { mailed } from "../reports/mails.ts";
import { clientAs, consoleClient, refusalCodeOf, signIn } from "../support/console.ts";
import { makeTeam, type TestTeam, unique, uniqueEmail } from "../support/factories.ts";
import { addSubscribers, makeSender, people } from "../support/sending.ts";

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

  it("counts the members of the lists, which stand by name, and how many more they are than 30 days ago", async () => {
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
      lists.map(({ id, members, growth }) => [id, members, growth]),
      [
        [first, 0, 0],
        [listId, 3, 1],
        [last, 0, 0],
      ],
    );
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

  it("finds people by the beginning of their address, those of the team alone", async () => {
    const other = await makeTeam();
    const name = unique("find");
    const editor = await as("EDITOR");
    const foreign = await as("EDITOR", other);
    for (const [client, email] of [
      [editor, `${name}_b@example.com`],
      [editor, `${name}a@example.com`],
      [editor, `x${name}@example.com`],
      [foreign, `${name}c@example.com`],
    ] as const) {
      await client.api.subscribers.create.mutate({ body: { email } });
    }
    const query = { in: "subscribers", starts_with: ` ${name.toUpperCase()}` } as const;
    const { data } = await editor.app.audience.search.query({ query });
    assert.deepEqual(
      (data as unknown as { email: string }[]).map(({ email }) => email),
      [`${name}_b@example.com`, `${name}a@example.com`],
    );

    const { data: list } = await editor.api.lists.create.mutate({ body: { name, optin: "SINGLE" } });
    const [, second] = data as unknown as { id: string }[];
    const body = { subscriber_ids: [second?.id ?? ""] };
    await editor.api.lists.addMembers.mutate({ params: { listId: list.id }, body });
    const found = await editor.app.audience.search.query({ query: { ...query, list_id: list.id } });
    assert.deepEqual(
      (found.data as unknown as { id: string }[]).map(({ id }) => id),
      body.subscriber_ids,
    );
  });

  it("finds contacts by the beginning of their full or last name", async () => {
    const editor = await as("EDITOR");
    const [first, last] = [unique("Zoë"), unique("Östlund")];
    const email = uniqueEmail();
    await editor.api.contacts.create.mutate({ body: { email, first_name: first, last_name: last } });
    await editor.api.contacts.create.mutate({ body: { email: uniqueEmail(), last_name: `x ${last}` } });
    for (const text of [first.toUpperCase(), ` ${first}  ${last.slice(0, -1)}`, last.toLowerCase()]) {
      const { data } = await editor.app.audience.search.query({ query: { in: "contacts", starts_with: text } });
      assert.deepEqual(
        (data as unknown as { email: string }[]).map((found) => found.email),
        [email],
        text,
      );
    }
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
  });
});

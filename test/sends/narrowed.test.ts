import assert from "node:assert/strict";
import { sql } from "kysely";
import { forTenant, kysely } from "../../db/orm.ts";
import { transaction } from "../../db/transaction.ts";
import { deleteSegment } from "../../domain/audience/segments/segments.ts";
import { readDraft } from "../../domain/sends/drafts/draft.ts";
import { attachList } from "../../domain/sends/drafts/drafts.ts";
import { planMembers } from "../../domain/sends/drafts/members.ts";
import { resolvePlan } from "../../domain/sends/plan/plan.ts";
import { clientAs } from "../support/console.ts";
import { declareFields } from "../support/contacts.ts";
import { unique } from "../support/factories.ts";
import {
  addContacts,
  addSegment,
  addSubscribers,
  anotherNewsletter,
  caughtMails,
  confirm,
  makeSender,
  preview,
  readMail,
  type Sender,
  sendAndWait,
  tokenOf,
} from "../support/sending.ts";

const IN_ROME = { field: "fields.city", op: "eq", value: "Rome" };
const BODY = '<p>{{ first_name | default: "you" }} of {{ fields.city | default: "nowhere" }}</p>';
const tenantOf = ({ team }: Sender) => ({ teamId: team.id, environment: "LIVE" as const });

const draftOf = (sender: Sender) =>
  readDraft(
    forTenant(sender.em.fork(), tenantOf(sender)),
    tenantOf(sender),
    { type: "newsletter", id: sender.newsletterId },
    { lock: false },
  );
const planOf = async (sender: Sender) =>
  resolvePlan(forTenant(sender.em.fork(), tenantOf(sender)), await draftOf(sender));

async function narrow(sender: Sender, segmentId: string | null): Promise<void> {
  const editor = await clientAs(sender, "EDITOR");
  const body = { type: "newsletter" as const, id: sender.newsletterId, segment_id: segmentId };
  await editor.app.content.change.mutate({ body });
}

/** A newsletter with the field `city`, to subscribers and contacts of a team of its own. @returns its segment of those in Rome, too */
async function makeNarrowed(audience = `${unique("to")}.example`) {
  const at = (name: string) => `${name}@${audience}`;
  const sender = await makeSender({
    body: BODY,
    recipients: [
      { email: at("rome"), firstName: "Roma" },
      { email: at("pending"), status: "PENDING" },
      { email: at("left"), status: "UNSUBSCRIBED" },
      { email: at("suppressed"), suppressed: true },
      { email: at("bonn") },
      { email: at("bonn-pending"), status: "PENDING" },
      { email: at("bonn-suppressed"), suppressed: true },
      { email: at("unknown") },
    ],
  });
  await declareFields(sender, { city: "text" });
  const city = (town: string) => (name: string) => ({ email: at(name), firstName: "Contact", fields: { city: town } });
  await addContacts(sender, ["rome", "pending", "left", "suppressed", "only-contact"].map(city("Rome")));
  await addContacts(sender, ["bonn", "bonn-pending", "bonn-suppressed"].map(city("Bonn")));
  return { ...sender, audience, at, segmentId: await addSegment(sender, IN_ROME) };
}

describe("A newsletter that a segment narrows", () => {
  it("goes to the confirmed subscribers of its lists whose contacts the segment selects, each once", async () => {
    const sender = await makeNarrowed();
    const second: string = (await sender.client.post("/lists", { name: "Second", optin: "SINGLE" })).body.data.id;
    const permitted = async () => {
      const draft = await draftOf(sender);
      const members = await planMembers(forTenant(sender.em.fork(), tenantOf(sender)), draft);
      const { rows } = await sql<{ email: string; city: string | null }>`
        select email, fields ->> 'city' as city from (${members}) m
        where permitted and not suppressed order by email`.execute(kysely(sender.em.fork()));
      return rows.map(({ email, city }) => [email.replace(/@.*/, ""), city]);
    };
    assert.deepEqual((await planOf(sender)).counts, {
      ...{ total: 8, outside: 0, ineligible: 3, suppressed: 2, eligible: 3, tracked: 0 },
    });
    assert.deepEqual(await permitted(), [
      ["bonn", "Bonn"],
      ["rome", "Rome"],
      ["unknown", null],
    ]);
    await narrow(sender, sender.segmentId);
    assert.deepEqual((await planOf(sender)).counts, {
      ...{ total: 4, outside: 4, ineligible: 2, suppressed: 1, eligible: 1, tracked: 0 },
    });
    assert.deepEqual(await permitted(), [["rome", "Rome"]]);

    await transaction(sender.em, (tx) => attachList(tx, sender.newsletterId, second));
    await sql`
      insert into subscriptions (list_id, subscriber_id, team_id, environment, status)
      select ${second}, id, team_id, environment, 'CONFIRMED' from subscribers
      where team_id = ${sender.team.id} and email = any(${["rome", "left", "bonn"].map(sender.at)}::text[])`.execute(
      kysely(sender.em.fork()),
    );
    assert.deepEqual(await permitted(), [
      ["left", "Rome"],
      ["rome", "Rome"],
    ]);
    const { counts } = await planOf(sender);
    assert.deepEqual([counts.total, counts.outside, counts.eligible], [4, 4, 2]);
  });

  it("has another digest with the segment, with each person who comes into it, and with each who joins its lists", async () => {
    const sender = await makeNarrowed();
    const digests = new Set([(await planOf(sender)).digest]);
    const isNew = async () => digests.size < digests.add((await planOf(sender)).digest).size;
    await narrow(sender, sender.segmentId);
    assert.ok(await isNew());
    assert.ok(!(await isNew()));
    // Of another segment that selects the same people, too.
    await narrow(sender, await addSegment(sender, IN_ROME));
    assert.ok(await isNew());
    const run = (statement: ReturnType<typeof sql>) => statement.execute(kysely(sender.em.fork()));
    await run(sql`update contacts set fields = '{"city": "Rome"}' where email = ${sender.at("bonn")}`);
    assert.ok(await isNew());
    await run(sql`delete from contacts where email = ${sender.at("rome")}`);
    assert.ok(await isNew());
    await addSubscribers(sender, sender.listId, [{ email: sender.at("new") }]);
    assert.ok(await isNew());
    await addContacts(sender, [{ email: sender.at("another-contact"), fields: { city: "Rome" } }]);
    assert.ok(!(await isNew()), "it is no subscriber");
  });

  it("is sent by the API, which does not show the segment, with the fields of contacts", async () => {
    const sender = await makeNarrowed();
    const whole = await anotherNewsletter(sender);
    await sender.client.patch(`/newsletters/${whole.newsletterId}`, { subject: "{{ fields.city }}", body: BODY });
    await narrow(sender, sender.segmentId);
    const shown = await sender.client.get(`/newsletters/${sender.newsletterId}`);
    assert.ok(!shown.text.includes(sender.segmentId), shown.text);
    assert.equal((await sender.client.patch(`/newsletters/${sender.newsletterId}`, { segment_id: null })).status, 400);
    const first = await preview(sender);
    assert.deepEqual(first.body.data.recipients, { total: 4, not_opted_in: 2, suppressed: 1, eligible: 1, tracked: 0 });

    const { body } = await sender.client.get("/contacts", { query: { email: sender.at("bonn") } });
    await sender.client.patch(`/contacts/${body.data[0].id}`, { fields: { city: "Rome" } });
    const changed = await confirm(sender, first.body.data.confirmation.token);
    assert.deepEqual([changed.status, changed.body.error?.code], [409, "send_plan_changed"], changed.text);

    assert.equal((await sendAndWait(sender)).recipients.total, 2);
    const addressees = async () => (await caughtMails(sender)).flatMap(({ to }) => to).sort();
    assert.deepEqual(await addressees(), [sender.at("bonn"), sender.at("rome")]);
    assert.equal((await sendAndWait(whole)).recipients.total, 3);
    const texts = await Promise.all(
      (await caughtMails(sender)).slice(2).map(async ({ id }) => (await readMail(id)).text?.split("\n")[0]),
    );
    assert.deepEqual(texts.sort(), ["Roma of Rome", "you of Rome", "you of nowhere"]);
  });

  it("is refused while its segment is deleted, also when it was duplicated or restored, and sent once it is there again", async () => {
    const sender = await makeNarrowed();
    const editor = await clientAs(sender, "EDITOR");
    await narrow(sender, sender.segmentId);
    const params = { segmentId: sender.segmentId };
    const { used_by: uses } = (await editor.app.audience.segment.query({ params })).data;
    assert.deepEqual(
      uses.map(({ id, is_sequence }) => [id, is_sequence]),
      [[sender.newsletterId, false]],
    );
    const token = await tokenOf(sender);
    await transaction(sender.em.fork(), (tx) => deleteSegment(forTenant(tx, tenantOf(sender)), sender.segmentId));
    const changed = await confirm(sender, token);
    assert.equal(changed.body.error?.code, "send_plan_changed", changed.text);

    const one = { type: "newsletter" as const, id: sender.newsletterId };
    const { data: copy } = await editor.app.content.duplicate.mutate({ body: one });
    await sender.client.delete(`/newsletters/${sender.newsletterId}`);
    const { gone } = (await editor.app.bin.restore.mutate({ params: { recordId: sender.newsletterId } })).data;
    assert.deepEqual(gone, ["segment “Segment”"]);
    for (const newsletterId of [sender.newsletterId, copy.id]) {
      const refused = await preview({ ...sender, newsletterId });
      assert.equal(refused.body.error?.code, "campaign_not_ready", refused.text);
      assert.match(refused.body.error.message, /segment that narrows .* was deleted/);
      const query = { ...one, id: newsletterId };
      assert.equal((await editor.app.content.settings.query({ query })).data.segment_name, "Segment");
      assert.equal((await editor.app.content.preview.query({ query })).data.is_sample, true);
      await editor.app.content.check.query({ query });
    }
    await assert.rejects(narrow(sender, sender.segmentId), /no record/);
    await editor.app.bin.restore.mutate({ params: { recordId: sender.segmentId } });
    assert.equal((await preview(sender)).body.data?.recipients.total, 4);
    await narrow(sender, null);
    assert.equal((await preview(sender)).body.data?.recipients.total, 8);
  });

  it("is refused for a segment that cannot be evaluated, at the confirm as a changed plan", async () => {
    const sender = await makeNarrowed();
    await narrow(sender, sender.segmentId);
    const token = await tokenOf(sender);
    await sql`update segments set conditions = '{"field":"gone","op":"exists","value":true}'
      where id = ${sender.segmentId}`.execute(kysely(sender.em.fork()));
    const refused = await preview(sender);
    assert.deepEqual([refused.status, refused.body.error?.code], [400, "filter_unsupported"], refused.text);
    assert.equal((await confirm(sender, token)).body.error?.code, "send_plan_changed");
  });

  it("is shown for a person of its segment, and says how many people lack a field, of those who get it", async () => {
    const sender = await makeNarrowed();
    const editor = await clientAs(sender, "EDITOR");
    const query = { type: "newsletter" as const, id: sender.newsletterId };
    const text = async (person?: string) =>
      (await editor.app.content.preview.query({ query: { ...query, person } })).data.text.split("\n")[0];
    await narrow(sender, sender.segmentId);
    assert.equal(await text(), "Roma of Rome");
    assert.equal(await text(sender.at("bonn")), "you of Bonn");
    assert.equal(await text(sender.at("unknown")), "you of nowhere");
    assert.ok((await editor.app.content.settings.query({ query })).data.merge_tags.includes("fields.city"));

    await sender.client.patch(`/newsletters/${sender.newsletterId}`, {
      ...{ subject: "News", body: "<p>{{ fields.city }}</p>" },
    });
    const gaps = async () => (await editor.app.content.check.query({ query })).data.warnings.map(({ kind }) => kind);
    assert.ok(!(await gaps()).includes("no_fallback"));
    await narrow(sender, null);
    const { warnings } = (await editor.app.content.check.query({ query })).data;
    assert.match(warnings[0]?.message ?? "", /^1 of 3 people have no value for \{\{ fields\.city \}\}/);
    const gates = (await editor.app.overview.gates.query({ body: { kind: "newsletter", id: sender.newsletterId } }))
      .data;
    assert.equal(gates.recipients?.outside, 0);
  });
});

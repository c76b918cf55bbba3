import assert from "node:assert/strict";
import { domainToASCII } from "node:url";
import { kysely } from "../../db/orm.ts";
import { unsubscribeUrl } from "../../domain/mail/links.ts";
import { type ApiClient, api, type Json } from "../support/api.ts";
import { run } from "../support/command.ts";
import { makeTeam, type TestTeam, unique } from "../support/factories.ts";
import { caughtMails, makeSender, preview, readMail, sendAndWait, setFaults } from "../support/sending.ts";
import { stack } from "../support/stack.ts";
import { emitted, listen } from "../webhooks/outbox.ts";

/** Spellings of one address: how a client may write it, and how it comes back. */
const spellings = (local: string): [written: string, shown: string][] => [
  [` ${local}+Tag@XN--BCHER-KVA.example\n`, `${local}+tag@xn--bcher-kva.example`],
  [`${local.toUpperCase()}+tag@BÜCHER.example`, `${local}+tag@bücher.example`],
  [`${local}+tag@bu\u0308cher.example`, `${local}+tag@bu\u0308cher.example`],
];

describe("An address in several spellings", () => {
  let team: TestTeam;
  let client: ApiClient;
  beforeEach(async () => {
    team = await makeTeam();
    client = api(team.keys.live);
  });
  afterEach(() => setFaults([]));
  const emails = (answer: { body: Json }) => answer.body.data.map(({ email }: Json) => email);

  it("is one suppression, which comes back as it was first sent, trimmed and in lower case", async () => {
    for (const which of spellings("").keys()) {
      const all = spellings(unique("person"));
      const [written, shown] = all[which] ?? ["", ""];
      const added = await client.post("/suppressions", { emails: [written, ...all.map(([other]) => other)] });
      assert.deepEqual(added.body.data, { object: "suppression_batch", added: [shown], already_suppressed: [] });
      for (const [other, otherShown] of all) {
        const { body } = await client.get(`/suppressions/${encodeURIComponent(other.trim())}`);
        assert.equal(body.data.email, shown);
        assert.deepEqual(emails(await client.get("/suppressions", { query: { email: other } })), [shown]);
        const again = await client.post("/suppressions", { emails: [other] });
        assert.deepEqual(again.body.data, {
          object: "suppression_batch",
          added: [],
          already_suppressed: [otherShown],
        });
      }
    }
  });

  it("is one subscriber, and another spelling changes what is shown, not whose consent it is", async () => {
    await listen(team, { events: ["subscriber.created", "subscriber.updated", "subscription.created"] });
    const events = emitted(team);
    const [[written, shown] = ["", ""], ...others] = spellings(unique("reader"));
    const created = await client.post("/subscribers", { email: written });
    assert.deepEqual([created.status, created.body.data.email], [201, shown]);
    const { id } = created.body.data;
    const list = (await client.post("/lists", { name: "Readers", optin: "DOUBLE" })).body.data.id;
    await client.post(`/lists/${list}/subscribers`, { subscriber_ids: [id] });
    await kysely(team.em)
      .updateTable("subscriptions")
      .set({ status: "CONFIRMED" })
      .where("subscriber_id", "=", id)
      .execute();
    assert.deepEqual(emails(await client.get(`/lists/${list}/subscribers`)), [shown]);
    assert.deepEqual(
      (await events()).map(({ object }) => object.email),
      [shown, shown],
    );

    for (const [other, otherShown] of others) {
      const second = await client.post("/subscribers", { email: other });
      assert.equal(second.body.error.code, "resource_already_exists");
      assert.deepEqual(emails(await client.get("/subscribers", { query: { email: other } })).length, 1);
      const patched = await client.patch(`/subscribers/${id}`, { email: other });
      assert.equal(patched.body.data.email, otherShown, patched.text);
      const { data } = (await client.get(`/subscribers/${id}`)).body;
      assert.deepEqual([data.email, data.subscriptions[0].status], [otherShown, "CONFIRMED"]);
      assert.deepEqual(
        (await events()).map(({ type, object }) => [type, object.email]),
        [["subscriber.updated", otherShown]],
      );
      await client.patch(`/subscribers/${id}`, { email: other });
      assert.deepEqual(await events(), []);
    }
  });

  it("stands as the client wrote it in the events of its mail, in the suppressions and in the opt-outs", async () => {
    const sender = await makeSender({ recipients: [] });
    const domain = domainToASCII(`leser-köln.${sender.audience}`);
    const [bounced, complained, left] = ["bounced", "complained", "left"].map((name) => `${unique(name)}@${domain}`);
    assert.ok(bounced && complained && left);
    const ids: string[] = [];
    for (const email of [bounced, complained, left]) {
      ids.push((await sender.client.post("/subscribers", { email: ` ${email.toUpperCase()}` })).body.data.id);
    }
    await sender.client.post(`/lists/${sender.listId}/subscribers`, { subscriber_ids: ids });
    await listen(sender);
    const events = emitted(sender);
    const addressesIn = async (...types: string[]) =>
      (await events()).flatMap(({ type, object }) => (types.includes(type) ? [`${type} ${object.email}`] : [])).sort();

    const [name] = bounced.split("@");
    await setFaults([{ stage: "rcpt", match: name ?? "", code: 550, message: "5.1.1 no such user" }]);
    await sendAndWait(sender);
    assert.deepEqual(await addressesIn("email.sent", "email.rejected", "suppression.added"), [
      `email.rejected ${bounced}`,
      `email.sent ${complained}`,
      `email.sent ${left}`,
      `suppression.added ${bounced}`,
    ]);

    const record = ["complaint:record", "--newsletter", sender.newsletterId, "--email", complained];
    await run(...record);
    const { send_id: sendId, seq } = await kysely(sender.em)
      .selectFrom("send_recipients")
      .where("member_id", "=", ids[2] ?? "")
      .select(["send_id", "seq"])
      .executeTakeFirstOrThrow();
    const link = unsubscribeUrl(sender.vault, (await stack()).origin, { sendId, seq });
    assert.equal((await fetch(link, { method: "POST" })).status, 200);
    assert.deepEqual(
      await addressesIn("email.complained", "suppression.added", "subscription.removed", "unsubscribe.created"),
      [
        `email.complained ${complained}`,
        `subscription.removed ${left}`,
        `suppression.added ${complained}`,
        `suppression.added ${left}`,
        `unsubscribe.created ${left}`,
      ],
    );
    assert.deepEqual(emails(await sender.client.get("/suppressions")).sort(), [bounced, complained, left]);
    assert.deepEqual(emails(await sender.client.get("/unsubscribes")), [left]);
  });

  it("gets no mail when it is suppressed in another one, and a from-address finds its account in any", async () => {
    const domain = `${unique("from")}-bücher.example`;
    const written = `News@${domainToASCII(domain)}`;
    const [suppressed, mailed] = [unique("suppressed"), unique("mailed")];
    const sender = await makeSender({
      recipients: [],
      sendDomains: [domain],
      account: { email: `news@${domain}` },
    });
    const theirs = `leser-köln.${sender.audience}`;
    const people = [suppressed, mailed].map((name) => `${name}@${domainToASCII(theirs)}`);
    const ids: string[] = [];
    for (const email of people) ids.push((await sender.client.post("/subscribers", { email })).body.data.id);
    await sender.client.post(`/lists/${sender.listId}/subscribers`, { subscriber_ids: ids });
    await sender.client.post("/suppressions", { emails: [`${suppressed}@${theirs.toUpperCase()}`] });
    const draft = await sender.client.patch(`/newsletters/${sender.newsletterId}`, { from_email: written });
    assert.equal(draft.body.data.from_email, written.toLowerCase());

    const previewed = await preview(sender);
    assert.equal(previewed.status, 200, previewed.text);
    assert.equal(previewed.body.data.from_address, written.toLowerCase());
    const { recipients } = previewed.body.data;
    assert.deepEqual(recipients, { total: 2, not_opted_in: 0, suppressed: 1, eligible: 1, tracked: 0 });
    assert.equal((await sendAndWait(sender)).status, "SENT");
    // The catcher shows domains in Unicode.
    const mails = await caughtMails({ audience: theirs });
    assert.deepEqual(
      mails.map(({ to }) => to),
      [[`${mailed}@${theirs}`]],
    );
    const [mail] = mails;
    assert.ok(mail);
    assert.equal((await readMail(mail.id)).from?.address, written.toLowerCase());
  });
});

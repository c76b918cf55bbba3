import assert from "node:assert/strict";
import { sql } from "kysely";
import { Newsletter } from "../../db/entities/send.ts";
import { kysely } from "../../db/orm.ts";
import { transaction } from "../../db/transaction.ts";
import { createField } from "../../domain/audience/contact-fields.ts";
import { engage } from "../analytics/ledger.ts";
import { mailed } from "../reports/mails.ts";
import { clientAs, consoleClient, consoleFetch, refusalCodeOf, signIn } from "../support/console.ts";
import { makeMember, makeTeam, unique } from "../support/factories.ts";
import { addSubscribers, caughtMails, makeCampaignSender, makeSender, readMail } from "../support/sending.ts";
import { makeSequence } from "../support/sequences.ts";

const BODY = `<p>Hello {{ first_name }} of {{ list_name }}</p><script>alert(1)</script>
<form action="https://evil.example"><button>Go</button></form><meta http-equiv="refresh" content="0;url=https://evil.example">`;

describe("The console's editor", () => {
  it("shows the mail of a draft as a person would get it, and as a page that runs nothing", async () => {
    const sender = await makeSender({ recipients: 0, body: BODY, subject: "News for {{ first_name }}" });
    const cookies = await signIn(sender.owner.id);
    const client = await consoleClient(cookies, sender.team.id);
    const query = { type: "newsletter", id: sender.newsletterId } as const;
    const sample = await client.app.content.preview.query({ query });
    assert.deepEqual([sample.data.is_sample, sample.data.subject], [true, "News for Jane"]);

    const [grace, ada] = [`grace@${sender.audience}`, `ada@${sender.audience}`];
    const people = [
      { email: grace, firstName: "<b>Grace</b>", status: "UNSUBSCRIBED" as const },
      { email: ada, firstName: "Ada" },
    ];
    await addSubscribers(sender, sender.listId, people);
    const first = await client.app.content.preview.query({ query });
    assert.deepEqual([first.data.is_sample, first.data.to.address], [false, ada]);
    assert.match(first.data.text, /^Hello Ada of /);
    assert.match(first.data.preheader, /^Hello Ada of /);
    assert.equal(first.data.from?.address, sender.fromEmail);
    const choice = "Choose whether opens and clicks are counted [https://tracking.invalid/]";
    assert.ok(!first.data.text.includes(choice));
    await client.app.content.change.mutate({ body: { ...query, tracking: true } });
    const counted = await client.app.content.preview.query({ query });
    assert.ok(counted.data.text.includes(choice), counted.data.text);
    const other = { query: { ...query, person: "nobody@example.com" } };
    assert.equal(await refusalCodeOf(client.app.content.preview.query(other)), "not_found");

    const place = `team=${sender.team.id}&environment=LIVE`;
    const path = `/preview/newsletters/${sender.newsletterId}?${place}&person=${encodeURIComponent(grace.toUpperCase())}`;
    const page = await consoleFetch(cookies, "GET", path);
    const html = await page.text();
    assert.match(html, /Hello &lt;b&gt;Grace&lt;\/b&gt; of .*<script>/s);
    assert.match(html, /href="https:\/\/unsubscribe\.invalid\/"/);
    assert.equal(
      page.headers.get("content-security-policy"),
      "default-src 'none';style-src 'unsafe-inline';base-uri 'none';form-action 'none';sandbox;frame-ancestors 'self';img-src http: https: data:",
    );
    const bare = await consoleFetch(cookies, "GET", `${path}&images=none`);
    assert.doesNotMatch(bare.headers.get("content-security-policy") ?? "img-src", /img-src/);
    assert.equal(page.headers.get("x-frame-options"), "SAMEORIGIN");
    assert.equal(page.headers.get("cache-control"), "no-store");

    const foreign = await makeSender();
    const statuses = [
      consoleFetch(cookies, "GET", `/preview/newsletters/${foreign.newsletterId}?${place}`),
      consoleFetch(cookies, "GET", `/preview/campaigns/${sender.newsletterId}?${place}`),
      consoleFetch(
        cookies,
        "GET",
        `/preview/newsletters/${sender.newsletterId}?team=${foreign.team.id}&environment=LIVE`,
      ),
      consoleFetch({}, "GET", path),
    ].map(async (answer) => (await answer).status);
    assert.deepEqual(await Promise.all(statuses), [404, 404, 401, 401]);
    const ended = await consoleFetch({}, "GET", path);
    assert.deepEqual(
      [ended.headers.get("content-type"), ended.headers.get("x-frame-options")],
      ["text/html; charset=utf-8", "SAMEORIGIN"],
    );
    assert.match(await ended.text(), /<p>Your session has ended. Sign in again/);
  });

  it("is shown as any person of the team, and as an example", async () => {
    const sender = await makeSender({ recipients: 0, subject: "For {{ first_name | default: 'you' }}" });
    const [name, address] = [unique("Grace"), (who: string) => `${who}@${sender.audience}`];
    const person = { email: address("grace") };
    await sender.client.post("/subscribers", { email: person.email, first_name: name });
    const client = await clientAs(sender, "VIEWER");
    const one = { type: "newsletter", id: sender.newsletterId } as const;
    const subjectFor = async (person: string) => {
      const { data } = await client.app.content.preview.query({ query: { ...one, person } });
      return [data.subject, data.is_sample, data.people];
    };
    assert.deepEqual(await subjectFor(address("grace")), [`For ${name}`, false, "subscribers"]);
    assert.deepEqual(await subjectFor("sample"), ["For Jane", true, "subscribers"]);
    assert.deepEqual(await subjectFor("nameless"), ["For you", true, "subscribers"]);
    const foot = async () => {
      const { data } = await client.app.content.preview.query({ query: { ...one, person: person.email } });
      return data.text.split("\n").slice(-2).join(" ");
    };
    const reason = "You receive this email because you are on the list “Readers”. Unsubscribe";
    assert.match(await foot(), new RegExp(`${reason} \\[\\S+\\]$`));
    await sender.em.execute("update lists set has_archive = true where id = ?", [sender.listId]);
    assert.match(await foot(), /View in browser \[https:\/\/web\.invalid\/\]$/);
  });

  it("lists newsletters and campaigns by name, subject and state, of the own team alone, and no sequence", async () => {
    const [sender, other] = [await makeSender({ recipients: 0 }), await makeSender({ recipients: 0 })];
    const client = await consoleClient(await signIn(sender.owner.id), sender.team.id);
    const list = async (type: "newsletter" | "campaign", query: { q?: string; status?: "DRAFT" | "SENT" }) =>
      (await client.app.content.page.query({ query: { type, ...query } })).data.drafts;
    const newsletters = await list("newsletter", {});
    assert.deepEqual(
      newsletters.map(({ id, targets }) => [id, targets]),
      [[sender.newsletterId, ["Readers"]]],
    );
    assert.notEqual(sender.newsletterId, other.newsletterId);
    await makeSequence(sender, { isStarted: false });
    const { data } = await client.api.campaigns.drafts.create.mutate({ body: { name: "Plain", subject: "100% off" } });
    assert.deepEqual(
      (await list("campaign", { q: "100% OFF", status: "DRAFT" })).map(({ id }) => id),
      [(data as { id: string }).id],
    );
    assert.equal((await list("campaign", {})).length, 1);
    assert.deepEqual(await list("campaign", { q: "pl_in" }), []);
    assert.deepEqual(await list("campaign", { status: "SENT" }), []);
  });

  it("finds the recipients of a send by a part of their addresses or names, and shows what they did", async () => {
    const team = await makeTeam();
    const name = unique("find");
    const addresses = [`x${name}@example.com`, `${name}_b@example.com`, `${name}a@example.com`];
    const { sendId, newsletterId: id } = await mailed(team, addresses);
    const tenant = { teamId: team.team.id, environment: "LIVE" as const };
    const ledger = { tenant, sendId, newsletterId: id };
    await engage(team.em, ledger, [3], "opened", 2);
    await engage(team.em, ledger, [2, 3], "clicked", 1);
    await team.em.execute(
      "update engagements set first_at = '2026-01-05Z', last_at = '2026-01-06Z' where send_id = ?",
      [sendId],
    );
    await sql`insert into unsubscribes (id, team_id, environment, email, reason, source, campaign_id)
      select ${unique("unsubscribe")} || n, ${tenant.teamId}, 'LIVE', (${addresses}::text[])[n], 'UNSUBSCRIBED', 'link',
        case n when 1 then ${id} else 'nl_other' end from generate_series(1, 2) n`.execute(kysely(team.em));
    const client = await consoleClient(await signIn(team.owner.id), team.team.id);
    const query = { type: "newsletter", id, text: ` ${name.toUpperCase()}` } as const;
    const { data } = await client.app.content.recipients.query({ query });
    assert.deepEqual(
      data.recipients.map((one) => [one.email, one.status, one.opened_at, one.clicked_at, one.has_unsubscribed]),
      [
        [addresses[0], "SENT", null, null, true],
        [addresses[1], "SENT", null, "2026-01-06T00:00:00.000Z", false],
        [addresses[2], "SENT", "2026-01-05T00:00:00.000Z", "2026-01-06T00:00:00.000Z", false],
      ],
    );
    await team.em.execute(
      "update send_recipients set first_name = 'Ada', last_name = 'O%x' where send_id = ? and seq = 2",
      [sendId],
    );
    const found = await client.app.content.recipients.query({ query: { ...query, text: "ada  o%" } });
    assert.deepEqual(
      found.data.recipients.map((one) => [one.email, one.first_name, one.last_name]),
      [[addresses[1], "Ada", "O%x"]],
    );
    const { text: _text, ...all } = query;
    const page = async (after?: string) =>
      (await client.app.content.recipients.query({ query: { ...all, activity: "opened", after } })).data;
    const { recipients, next_after } = await page();
    assert.deepEqual([recipients.map(({ email }) => email), next_after], [[addresses[2]], null]);
    assert.deepEqual((await page("3")).recipients, []);
  });

  it("shows a campaign with a contact's fields, and what a draft may use", async () => {
    const sender = await makeCampaignSender({
      recipients: [{ email: "ada@example.com", fields: { town: "London" } }],
      body: "<p>{{ fields.town }} {{ fields.nothing }}</p>",
    });
    const tenant = { teamId: sender.team.id, environment: "LIVE" as const };
    await transaction(sender.em, (tx) => createField(tx, tenant, "town", "text"));
    const client = await consoleClient(await signIn(sender.owner.id), sender.team.id);
    const query = { type: "campaign", id: sender.campaignId } as const;
    const { data } = await client.app.content.preview.query({ query });
    assert.match(data.text, /^London/);
    assert.equal(data.people, "contacts");
    assert.deepEqual(data.problems, [{ field: "body", message: "the merge tag {{ fields.nothing }} is unknown" }]);
    const settings = await client.app.content.settings.query({ query });
    const { updated_at: _, ...shown } = settings.data;
    assert.deepEqual(shown, {
      tracking: null,
      send_at: null,
      send_zone: null,
      segment_id: sender.segmentId,
      segment_name: "Segment",
      team_tracking: "OFF",
      web: null,
      merge_tags: [
        ...["email", "first_name", "last_name", "unsubscribe_url", "tracking_url", "web_url", "postal_address"],
        "fields.town",
      ],
    });
  });

  it("lets an editor set targets, days and tracking of the team's drafts, and a viewer none", async () => {
    const own = await makeSender({ detached: true });
    const [editor, viewer] = [await clientAs(own, "EDITOR"), await clientAs(own, "VIEWER")];
    const body = { newsletter_id: own.newsletterId, list_id: own.listId };
    const { attachList, detachList, change } = editor.app.content;
    assert.equal(await refusalCodeOf(viewer.app.content.attachList.mutate({ body })), "role_insufficient");
    await attachList.mutate({ body });
    const read = async () =>
      (await editor.api.newsletters.drafts.retrieve.query({ params: { newsletterId: own.newsletterId } })).data as {
        lists: string[];
        send_days: number[];
      };
    assert.deepEqual((await read()).lists, [own.listId]);
    await detachList.mutate({ body });
    assert.deepEqual((await read()).lists, []);

    const one = { type: "newsletter", id: own.newsletterId } as const;
    await change.mutate({ body: { ...one, send_days: [5, 1, 5] } });
    await change.mutate({ body: { ...one, tracking: false } });
    assert.deepEqual((await read()).send_days, [1, 5]);
    assert.equal((await own.em.findOneOrFail(Newsletter, { id: own.newsletterId })).tracking, false);
    assert.equal(await refusalCodeOf(change.mutate({ body: { ...one, send_days: [8] } })), "validation_failed");
  });

  it("mails a draft to members for a test, once under a key, and to none who is suppressed", async () => {
    const sender = await makeSender({ recipients: 0 });
    const { em, team, owner, newsletterId } = sender;
    const [ada, bob] = [await makeMember(em, team.id, "VIEWER"), await makeMember(em, team.id, "EDITOR")];
    const address = (who: string) => `${unique(who)}@${sender.audience}`;
    Object.assign(ada, { email: address("ada"), name: "Ada Lovelace" });
    Object.assign(bob, { email: address("bob"), name: "Bob" });
    await em.flush();
    const client = await consoleClient(await signIn(owner.id), team.id);
    const send = (members: { id: string }[], key = unique("key")) => {
      const body = { type: "newsletter" as const, id: newsletterId, member_ids: members.map(({ id }) => id) };
      return client.app.content.sendTest.mutate({ body }, { context: { idempotencyKey: key } });
    };
    await client.app.content.change.mutate({ body: { type: "newsletter", id: newsletterId, tracking: true } });
    const key = unique("key");
    const { data } = await send([ada], key);
    assert.deepEqual(data, [{ member_id: ada.id, outcome: "sent", reason: "accepted" }]);
    assert.deepEqual((await send([ada], key)).data, data);
    const [mail, ...others] = await caughtMails(sender);
    assert.deepEqual([mail?.subject, others.length], ["[Test] Hello Ada", 0]);
    const { html = "" } = await readMail(mail?.id ?? 0);
    assert.match(html, /Choose whether opens and clicks are counted/);
    assert.doesNotMatch(html, /<img/);

    await sender.client.post("/suppressions", { emails: [bob.email] });
    assert.equal(await refusalCodeOf(send([ada, bob])), "resource_state_invalid");
    const editor = await consoleClient(await signIn(bob.id), team.id);
    const body = { type: "newsletter" as const, id: newsletterId, member_ids: [ada.id] };
    assert.equal(await refusalCodeOf(editor.app.content.sendTest.mutate({ body })), "role_insufficient");
    const { rows } = await sql<{ used: number }>`select used from daily_send_usage u
      join api_keys k on k.lineage_id = u.lineage_id where k.member_id = ${owner.id} and k.for_sessions`.execute(
      kysely(em),
    );
    assert.deepEqual(rows, [{ used: 1 }]);
  });

  it("attaches a campaign's segment and accounts", async () => {
    const own = await makeCampaignSender({ detached: true });
    const client = await consoleClient(await signIn(own.owner.id), own.team.id);
    const { change, attachAccounts } = client.app.content;
    const { campaignId, segmentId } = own;
    await change.mutate({ body: { type: "campaign", id: campaignId, segment_id: segmentId } });
    const { data } = await attachAccounts.mutate({
      body: { campaign_id: campaignId, account_ids: [own.accountId, own.accountId] },
    });
    assert.deepEqual(data.account_ids, [own.accountId]);
    const shown = await client.api.campaigns.drafts.retrieve.query({ params: { campaignId } });
    assert.equal(shown.data.segment_id, segmentId);
  });
});

import assert from "node:assert/strict";
import { sql } from "kysely";
import { kysely } from "../../db/orm.ts";
import { blockDocument } from "../../domain/mail/blocks/schema.ts";
import { OWN_TEMPLATES } from "../../domain/mail/templates/own.ts";
import { MAX_TEMPLATES } from "../../domain/sends/drafts/templates.ts";
import { button, document, paragraph, tag } from "../support/blocks.ts";
import { type Cookies, clientNamed, consoleClient, consoleFetch, refusalCodeOf, signIn } from "../support/console.ts";
import { makeMember } from "../support/factories.ts";
import { uploadImage } from "../support/images.ts";
import { SAMPLES as IMAGES } from "../support/pictures.ts";
import { addSegment, makeSender, type Sender } from "../support/sending.ts";
import { enrolmentsOf, makeSequence, step } from "../support/sequences.ts";

type Client = Awaited<ReturnType<typeof consoleClient>>;

describe("Templates", () => {
  let sender: Sender;
  let cookies: Cookies;
  let ada: Client;
  let bob: Client;
  before(async () => {
    sender = await makeSender({ recipients: 0 });
    cookies = await signIn((await makeMember(sender.em, sender.team.id, "EDITOR")).id);
    ada = await consoleClient(cookies, sender.team.id);
    bob = await clientNamed(sender, "Bob", "EDITOR");
  });

  const db = () => kysely(sender.em.fork());
  const teamOf = async (client: Client) => (await client.app.templates.list.query({})).data.team;
  const blocks = document(paragraph("Hello ", tag("first_name", "you")), button("Read", "https://example.com/"));
  async function makeDraft(body: string | null = null) {
    const { data } = await ada.api.newsletters.drafts.create.mutate({ body: { name: "Draft", subject: "News", body } });
    return { type: "newsletter", id: data.id } as const;
  }
  async function writeBlocks() {
    const one = await makeDraft();
    await ada.app.content.saveBlocks.mutate({ body: { ...one, blocks, preheader: "In short" } });
    return one;
  }
  const contentOf = async (type: "newsletter" | "campaign", id: string) => {
    const { updated_at: _, ...content } = (await ada.app.content.document.query({ query: { type, id } })).data;
    return content;
  };
  const lookAt = async (id: string, team = sender.team.id, by = cookies) => {
    const answer = await consoleFetch(by, "GET", `/preview/templates/${id}?team=${team}&environment=LIVE`);
    return { status: answer.status, policy: answer.headers.get("content-security-policy"), html: await answer.text() };
  };

  it("keep the content of a draft of blocks or of HTML, from which newsletters and campaigns are made", async () => {
    await sql`update teams set sender_name = 'The Letter' where id = ${sender.team.id}`.execute(kysely(sender.em));
    const one = await writeBlocks();
    const body = `<p>Hello {{ first_name | default: "you" }}</p>`;
    const ofHtml = await makeDraft(body);
    const saved = await Promise.all(
      [one, ofHtml].map(
        async (draft) => (await ada.app.templates.save.mutate({ body: { ...draft, name: "Kept" } })).data,
      ),
    );
    await ada.api.newsletters.drafts.remove.mutate({ params: { newsletterId: ofHtml.id } });
    for (const [i, { id }] of saved.entries()) {
      const type = i === 0 ? "campaign" : "newsletter";
      const draft = { type, name: "Made", template_id: id } as const;
      const { data } = await bob.app.templates.makeDraft.mutate({ body: draft });
      const expected =
        i === 0
          ? await contentOf("newsletter", one.id)
          : { subject: "News", preheader: null, blocks: null, body, is_of_old_brand: false };
      assert.deepEqual(await contentOf(type, data.id), expected);
      const senders = await sql`select from_name from ${sql.table(`${type}s`)} where id = ${data.id}`.execute(
        kysely(sender.em),
      );
      assert.deepEqual(senders.rows, [{ from_name: "The Letter" }]);
      const { status, policy, html } = await lookAt(id);
      assert.equal(status, 200);
      assert.match(policy ?? "", /^default-src 'none'.*;sandbox;/);
      assert.match(html, /Hello Jane/);
    }
    // The HTML of blocks is made anew for each draft.
    const { rows } = await sql<{ body: string | null }>`select body from templates where id = ${saved[0]?.id}`.execute(
      db(),
    );
    assert.deepEqual(rows, [{ body: null }]);
    const viewer = await clientNamed(sender, "Vera", "VIEWER");
    const refused = viewer.app.templates.save.mutate({ body: { ...one, name: "Mine" } });
    assert.equal(await refusalCodeOf(refused), "role_insufficient");
  });

  it("are replaced, renamed and deleted, but by no member who has not seen the last change", async () => {
    const one = await writeBlocks();
    const save = { ...one, name: "First" };
    const { id } = (await ada.app.templates.save.mutate({ body: save })).data;
    const versionOf = async () => (await teamOf(ada)).find((each) => each.id === id)?.updated_at;
    const seen = await versionOf();
    const context = { began: `${id} ${seen}` };
    const other = await makeDraft("<p>Other</p>");
    const replacement = { ...other, name: "Second", template_id: id };
    assert.equal((await bob.app.templates.save.mutate({ body: replacement }, { context })).data.id, id);
    const params = { templateId: id };
    const late = ada.app.templates.rename.mutate({ params, body: { name: "Late" } }, { context });
    assert.equal(await refusalCodeOf(late), "resource_state_invalid");
    const { rows } = await sql`select name, subject, preheader, body, blocks from templates where id = ${id}`.execute(
      db(),
    );
    assert.deepEqual(rows, [{ name: "Second", subject: "News", preheader: null, body: "<p>Other</p>", blocks: null }]);
    await ada.app.templates.rename.mutate(
      { params, body: { name: "Third" } },
      { context: { began: `${id} ${await versionOf()}` } },
    );
    assert.equal((await teamOf(bob)).find((each) => each.id === id)?.name, "Third");
    await bob.app.templates.remove.mutate({ params });
    assert.equal(await refusalCodeOf(bob.app.templates.remove.mutate({ params })), "not_found");
    assert.equal((await lookAt(id)).status, 404);
  });

  it("of the service are listed for each team and begin a draft, compiled for it", async () => {
    const { own } = (await ada.app.templates.list.query({})).data;
    assert.deepEqual(
      own.map(({ id }) => id),
      [...OWN_TEMPLATES.keys()],
    );
    const draft = { type: "newsletter", name: "Made", template_id: "welcome" } as const;
    const { data } = await ada.app.templates.makeDraft.mutate({ body: draft });
    const content = await contentOf("newsletter", data.id);
    assert.equal(content.subject, OWN_TEMPLATES.get("welcome")?.subject);
    assert.match(content.body ?? "", /Hello \{\{ first_name \| default: "there" \}\}/);
    assert.match((await lookAt("articles")).html, /Hello Jane.*Your image/s);
    const announcement = { ...draft, template_id: "announcement" };
    const made = (await ada.app.templates.makeDraft.mutate({ body: announcement })).data;
    assert.doesNotMatch((await contentOf("newsletter", made.id)).body ?? "", /Your image/);
    const unknown = ada.app.templates.makeDraft.mutate({ body: { ...draft, template_id: "other" } });
    assert.equal(await refusalCodeOf(unknown), "not_found");

    const src = "https://logo.example/a.png";
    await sql`update teams set logo_url = ${src}, sender_name = 'Kestrel' where id = ${sender.team.id}`.execute(db());
    const logo = { type: "image", attrs: { src, alt: "Kestrel", width: 120, align: "left" } };
    for (const [template_id, then] of [
      ["blank", "paragraph"],
      ["welcome", "heading"],
    ] as const) {
      const { id } = (await ada.app.templates.makeDraft.mutate({ body: { ...draft, template_id } })).data;
      const { blocks, body } = await contentOf("newsletter", id);
      const [first, second] = blockDocument.parse(blocks).content;
      assert.deepEqual([first, second?.type], [logo, then]);
      assert.match(body ?? "", /<img [^>]*alt="Kestrel"/);
    }
    const params = { sequenceId: await makeSequence(sender, { steps: [step("a")], isStarted: false }) };
    const firstBlocks = async (step_id: string) =>
      (await ada.app.sequences.step.query({ params, query: { step_id } })).data.first_blocks?.content;
    assert.deepEqual(await firstBlocks("new"), [logo, { type: "paragraph", content: [] }]);
    assert.equal(await firstBlocks("a"), undefined);
  });

  it("are shown to no other team, keep their images, and end with their team", async () => {
    const own = await makeSender({ recipients: 0 });
    const ownCookies = await signIn(own.owner.id);
    const client = await consoleClient(ownCookies, own.team.id);
    const image = await uploadImage(ownCookies, own.team.id, IMAGES.png);
    const draft = { type: "newsletter", id: own.newsletterId } as const;
    const shown = document({ type: "image", attrs: { src: image.url, alt: "A cat" } });
    await client.app.content.saveBlocks.mutate({ body: { ...draft, blocks: shown, preheader: null } });
    const { id } = (await client.app.templates.save.mutate({ body: { ...draft, name: "Secret" } })).data;
    assert.ok((await teamOf(ada)).every((each) => each.id !== id));
    assert.equal((await lookAt(id)).status, 404);
    assert.equal((await lookAt(id, own.team.id, ownCookies)).status, 200);
    await client.app.content.saveBlocks.mutate({ body: { ...draft, blocks, preheader: null } });
    const remove = client.app.images.remove.mutate({ params: { imageId: image.id }, body: {} });
    assert.equal(await refusalCodeOf(remove), "resource_state_invalid");
    await sql`delete from teams where id = ${own.team.id}`.execute(db());
    assert.deepEqual((await sql`select from templates where id = ${id}`.execute(db())).rows, []);
  });

  it("are limited", async () => {
    const own = await makeSender({ recipients: 0 });
    const client = await consoleClient(await signIn(own.owner.id), own.team.id);
    await sql`insert into templates (id, team_id, environment, name)
      select ${own.team.id} || n, ${own.team.id}, 'LIVE', 'Template' from generate_series(2, ${MAX_TEMPLATES}::int) n`.execute(
      db(),
    );
    const draft = { type: "newsletter", id: own.newsletterId } as const;
    const { id } = (await client.app.templates.save.mutate({ body: { ...draft, name: "Last" } })).data;
    const beyond = client.app.templates.save.mutate({ body: { ...draft, name: "Beyond" } });
    assert.equal(await refusalCodeOf(beyond), "resource_limit_reached");
    const copy = client.app.content.duplicate.mutate({ body: { type: "template", id } });
    assert.equal(await refusalCodeOf(copy), "resource_limit_reached");
  });
});

describe("A duplicate", () => {
  let sender: Sender;
  let client: Client;
  before(async () => {
    sender = await makeSender({ recipients: 1 });
    client = await consoleClient(await signIn(sender.owner.id), sender.team.id);
  });
  const duplicate = async (type: "sequence" | "segment" | "template", id: string) =>
    (await client.app.content.duplicate.mutate({ body: { type, id } })).data;

  it("of a sequence is a draft with its present steps, and without people", async () => {
    const id = await makeSequence(sender, {
      isStarted: true,
      steps: [
        step("a", { skip_if: { event: "opened" } }),
        step("b"),
        step("c", { time_of_day: "09:30", send_days: [1] }),
      ],
    });
    const params = { sequenceId: id };
    await client.app.sequences.saveStep.mutate({ params, body: { step_id: "b", step: null } });
    const copy = await duplicate("sequence", id);
    const [from, to] = await Promise.all(
      [id, copy.id].map(async (sequenceId) => (await client.app.sequences.show.query({ params: { sequenceId } })).data),
    );
    assert.ok(from && to);
    assert.deepEqual([to.name, to.status, to.people], [`Copy of ${from.name}`, "DRAFT", {}]);
    assert.deepEqual([to.list_id, to.from_email, to.from_name], [from.list_id, from.from_email, from.from_name]);
    assert.deepEqual(
      to.steps.map((each) => each.id),
      ["a", "c"],
    );
    assert.deepEqual(to.steps, from.steps);
    assert.deepEqual(await enrolmentsOf(sender.em, copy.id), []);
    await client.app.sequences.stop.mutate({ params });
  });

  it("of a segment and of a template has their content under another name", async () => {
    const segmentId = await addSegment(sender);
    const segmentOf = async (id: string) =>
      (await client.app.audience.segment.query({ params: { segmentId: id } })).data;
    const segment = await duplicate("segment", segmentId);
    const original = await segmentOf(segmentId);
    assert.deepEqual((await segmentOf(segment.id)).conditions, original.conditions);
    assert.equal(segment.name, `Copy of ${original.name}`);

    const draft = { type: "newsletter", id: sender.newsletterId } as const;
    const { id } = (await client.app.templates.save.mutate({ body: { ...draft, name: "Template" } })).data;
    const template = await duplicate("template", id);
    assert.equal(template.name, "Copy of Template");
    const { rows } =
      await sql`select distinct subject, preheader, body, blocks from templates where id in (${id}, ${template.id})`.execute(
        kysely(sender.em.fork()),
      );
    assert.equal(rows.length, 1);
  });
});

import assert from "node:assert/strict";
import { TRPCClientError } from "@trpc/client";
import { sql } from "kysely";
import { kysely } from "../../db/orm.ts";
import { saveSteps } from "../../domain/sequences/steps.ts";
import { api, codeOf } from "../support/api.ts";
import { button, document, paragraph, tag } from "../support/blocks.ts";
import { clientAs, clientNamed, consoleClient, refusalCodeOf, signIn } from "../support/console.ts";
import { tenantOf } from "../support/factories.ts";
import { prune } from "../support/retention.ts";
import {
  addSubscribers,
  caughtMails,
  confirm,
  makeCampaignSender,
  makeSender,
  preview,
  readMail,
  type Sender,
  sendAndWait,
  tokenOf,
} from "../support/sending.ts";
import { makeSequence, step } from "../support/sequences.ts";

type Client = Awaited<ReturnType<typeof consoleClient>>;

describe("A draft of blocks", () => {
  let sender: Sender;
  let ada: Client;
  let bob: Client;
  before(async () => {
    sender = await makeSender({ recipients: 0 });
    [ada, bob] = [await clientNamed(sender, "Ada", "EDITOR"), await clientNamed(sender, "Bob", "EDITOR")];
  });

  /** A client of the API. */
  const programs = () => api(sender.liveKey.key);
  const makeDraft = async (body: string | null = null) => {
    const answer = await programs().post("/newsletters", { name: "Draft", subject: "News", body });
    return { type: "newsletter", id: String(answer.body.data.id) } as const;
  };
  type One = Awaited<ReturnType<typeof makeDraft>>;

  const save = async (client: Client, one: One, text: string, began?: string) => {
    const body = { ...one, blocks: document(paragraph(text)), preheader: null };
    const context = began === undefined ? {} : { began: `${one.id} ${began}` };
    return (await client.app.content.saveBlocks.mutate({ body }, { context })).data.updated_at;
  };
  const db = () => kysely(sender.em.fork());
  const versionsOf = async (one: One) => (await ada.app.content.versions.query({ query: one })).data;
  const show = async (one: One) => (await ada.app.content.document.query({ query: one })).data;
  const bodyOf = async ({ id }: One) => {
    const { body } = await programs().get(`/newsletters/${id}`);
    return body.data as unknown as { body: string | null; updated_at: string };
  };

  it("is saved with the HTML that it compiles to, which the API shows and a preview mails", async () => {
    const one = await makeDraft();
    const blocks = document(paragraph("Hello ", tag("first_name", "you")), button("Read", "https://example.com/"));
    const body = { ...one, blocks, preheader: "For {{ first_name }}", subject: "New" };
    const { updated_at } = (await ada.app.content.saveBlocks.mutate({ body })).data;
    const shown = await show(one);
    assert.deepEqual([shown.blocks, shown.preheader, shown.subject], [blocks, body.preheader, "New"]);
    assert.equal(shown.updated_at, updated_at);
    assert.match(shown.body ?? "", /<html lang="en">.*Hello \{\{ first_name \| default: "you" \}\}/s);
    const record = await bodyOf(one);
    assert.deepEqual([record.body, record.updated_at], [shown.body, updated_at]);
    assert.ok(!("blocks" in record) && !("preheader" in record));
    const preview = (await ada.app.content.preview.query({ query: one })).data;
    assert.match(preview.text, /^Hello Jane\n\nRead \[https:\/\/example\.com\/\]/);
    assert.deepEqual(preview.problems, []);
  });

  it("is compiled in the brand of the team, and says when that was changed since", async () => {
    const own = await makeSender({ recipients: 0 });
    const { team, content } = (await clientNamed(own, "Ada", "ADMIN")).app;
    const one = { type: "newsletter", id: own.newsletterId } as const;
    const written = { ...one, blocks: document(button("Read", "https://example.com/")), preheader: null };
    const isOld = async () => (await content.document.query({ query: one })).data.is_of_old_brand;
    assert.equal(await isOld(), false, "it has no blocks");
    await content.saveBlocks.mutate({ body: written });
    await team.changeSettings.mutate({ body: { name: "Other" } });
    assert.equal(await isOld(), false);
    await team.changeBrand.mutate({ body: { language: "fr", accent_color: "#ffeb3b" } });
    assert.equal(await isOld(), true);
    assert.equal((await content.saveBlocks.mutate({ body: written })).data.is_of_old_brand, false);
    const { data } = await content.document.query({ query: one });
    assert.equal(data.is_of_old_brand, false);
    assert.match(data.body ?? "", /<html lang="fr">.*bgcolor="#ffeb3b"/s);
  });

  it("becomes HTML by a write of the body through the API, and its blocks stay as a version", async () => {
    const one = await makeDraft();
    await save(ada, one, "By Ada");
    const before = await show(one);
    const path = `/newsletters/${one.id}`;
    assert.equal((await programs().patch(path, { subject: "Other" })).status, 200);
    assert.deepEqual((await show(one)).blocks, before.blocks, "a subject alone ends nothing");
    assert.equal((await programs().patch(path, { body: before.body })).status, 200);
    const after = await show(one);
    assert.deepEqual([after.blocks, after.preheader, after.body], [null, null, before.body]);
    const { rows } = await sql`select from newsletters where id = ${one.id} and blocks is null`.execute(db());
    assert.equal(rows.length, 1);
    const [version, first, ...others] = await versionsOf(one);
    assert.ok(version && first && others.length === 0);
    assert.deepEqual([version.has_blocks, version.subject, version.by], [true, "Other", null]);
    assert.deepEqual([first.has_blocks, first.subject, first.by], [true, "News", "Ada"]);
    const query = { ...one, version_id: first.id };
    assert.deepEqual((await ada.app.content.version.query({ query })).data.blocks, before.blocks);
    const { data } = await bob.app.content.restoreVersion.mutate({ body: query });
    assert.deepEqual([data.blocks, data.subject, data.body], [before.blocks, "News", before.body]);
    assert.deepEqual((await show(one)).blocks, before.blocks);
  });

  it("keeps what members replace: one in ten minutes of a writer's own, and what another or a restore ends", async () => {
    const one = await makeDraft("<p>By a program</p>");
    for (const text of ["A1", "A2", "A3"]) await save(ada, one, text);
    const textsOf = async () =>
      Promise.all(
        (await versionsOf(one)).map(async ({ id }) => {
          const { data } = await ada.app.content.version.query({ query: { ...one, version_id: id } });
          return /<p[^>]*>(.*?)<\/p>/.exec(data.body ?? "")?.[1];
        }),
      );
    assert.deepEqual(await textsOf(), ["By a program"]);
    await sql`update draft_versions set kept_at = now() - interval '11 minutes' where draft_id = ${one.id}`.execute(
      db(),
    );
    for (const text of ["A4", "A5"]) await save(ada, one, text);
    await save(bob, one, "B1");
    await save(ada, one, "A6");
    assert.deepEqual(await textsOf(), ["B1", "A5", "A3", "By a program"]);
    const [{ id = "" } = {}] = await versionsOf(one);
    await ada.app.content.restoreVersion.mutate({ body: { ...one, version_id: id } });
    for (const text of ["A7", "A8"]) await save(ada, one, text);
    assert.deepEqual(await textsOf(), ["A6", "B1", "A5", "A3", "By a program"]);
  });

  it("is sent as it was previewed: a save makes the token void, and the mail has the HTML", async () => {
    const own = await makeSender({ recipients: 1 });
    const client = await consoleClient(await signIn(own.owner.id), own.team.id);
    const token = await tokenOf(own);
    const blocks = document(paragraph("Blocks for ", tag("first_name", "you")));
    const body = { type: "newsletter", id: own.newsletterId, blocks, preheader: null } as const;
    await client.app.content.saveBlocks.mutate({ body });
    assert.equal(codeOf(await confirm(own, token)), "send_plan_changed");
    await sendAndWait(own);
    const [mail] = await caughtMails(own);
    assert.match((await readMail(mail?.id ?? 0)).text ?? "", /^Blocks for /);
    assert.equal(await refusalCodeOf(client.app.content.saveBlocks.mutate({ body })), "resource_state_invalid");
  });

  it("leaves no version of what programs alone have written", async () => {
    const one = await makeDraft("<p>1</p>");
    for (const body of ["<p>2</p>", "<p>3</p>"]) await programs().patch(`/newsletters/${one.id}`, { body });
    assert.deepEqual(await versionsOf(one), []);
  });

  it("has at most 100 versions, for 30 days, which go with it", async () => {
    const one = await makeDraft("<p>0</p>");
    await sql`
      insert into draft_versions (id, team_id, environment, draft_id, body, written_at)
      select 'dftv_0' || lpad(n::text, 4, '0'), ${sender.team.id}, 'LIVE', ${one.id}, n::text, now()
      from generate_series(1, 100) n`.execute(db());
    await save(ada, one, "A1");
    const kept = await versionsOf(one);
    assert.deepEqual([kept.length, kept.at(-1)?.id], [100, "dftv_00002"]);
    await sql`update draft_versions set kept_at = now() - interval '31 days'
      where draft_id = ${one.id} and id < 'dftv_00050'`.execute(db());
    await prune();
    assert.equal((await versionsOf(one)).at(-1)?.id, "dftv_00050");
    assert.equal((await programs().delete(`/newsletters/${one.id}`)).status, 200);
    const { rows } = await sql`select from draft_versions where draft_id = ${one.id}`.execute(db());
    assert.equal(rows.length, 0);
  });

  it("refuses one of two saves that began with the same version, and names the other's member", async () => {
    const one = await makeDraft();
    const began = await save(ada, one, "Before");
    const saves = await Promise.allSettled([save(ada, one, "Ada's", began), save(bob, one, "Bob's", began)]);
    const refused = saves.filter((each) => each.status === "rejected");
    assert.equal(refused.length, 1);
    const winner = saves[0]?.status === "fulfilled" ? "Ada" : "Bob";
    const { reason } = refused[0] ?? {};
    assert.ok(reason instanceof TRPCClientError);
    assert.deepEqual([reason.data.status, reason.data.edited.by], [409, winner]);
    assert.match((await show(one)).body ?? "", new RegExp(`${winner}'s`.replace("'", "&#39;")));
  });

  it("is saved with a merge tag that there is not, which the preview names and a send refuses", async () => {
    const own = await makeSender({ recipients: 1 });
    const { content } = (await clientNamed(own, "Ada", "EDITOR")).app;
    const one = { type: "newsletter", id: own.newsletterId } as const;
    await content.saveBlocks.mutate({ body: { ...one, blocks: document(paragraph(tag("name"))), preheader: null } });
    const { problems } = (await content.preview.query({ query: one })).data;
    assert.deepEqual(
      problems.map(({ message }) => message.match(/\{\{ name \}\}/)?.[0]),
      ["{{ name }}"],
    );
    const refused = await preview(own);
    assert.equal(codeOf(refused), "campaign_not_ready");
    assert.match(refused.text, /\{\{ name \}\}/);
  });

  it("refuses what it cannot be, with the place, and changes nothing", async () => {
    const one = await makeDraft("<p>Before</p>");
    const refusalOf = async (content: object) => {
      const body = { ...one, preheader: null, blocks: document(), ...content };
      const error: unknown = await ada.app.content.saveBlocks.mutate({ body }).catch((thrown) => thrown);
      assert.ok(error instanceof TRPCClientError, String(error));
      return [error.data.code, error.data.param];
    };
    const cases: [object, string][] = [
      [{ blocks: document(paragraph("a"), button("b", "javascript:x")) }, "blocks.content[1].attrs.href"],
      [{ blocks: document({ type: "video" }) }, "blocks.content[0].type"],
      [{ blocks: document(paragraph("x".repeat(99_000)), ...Array(5).fill(paragraph("x".repeat(99_000)))) }, "blocks"],
      [{ blocks: document(...Array(4_999).fill(button("b", "https://example.com"))) }, "blocks"],
      [{ blocks: document({ type: "html", attrs: { html: "{% for x in y %}" } }) }, "body"],
      [{ preheader: "{{ first_name" }, "preheader"],
      [{ preheader: "{{ first_name | nothing }}" }, "preheader"],
      [{ subject: "{{ first_name" }, "subject"],
    ];
    for (const [content, param] of cases) assert.deepEqual(await refusalOf(content), ["validation_failed", param]);
    const sent = await makeDraft();
    await sql`update newsletters set status = 'SENT' where id = ${sent.id}`.execute(db());
    assert.equal(await refusalCodeOf(save(ada, sent, "Late")), "resource_state_invalid");
    const { body, blocks } = await show(one);
    assert.deepEqual([body, blocks], ["<p>Before</p>", null]);
  });

  it("is shown with its weaknesses, and with the people who lack a value at the check", async () => {
    const own = await makeSender({ recipients: 0, subject: "{{ last_name }}", body: "<p>Saved</p>" });
    await addSubscribers(own, own.listId, [
      { email: `a@${own.audience}`, firstName: "Ada", lastName: "L" },
      { email: `b@${own.audience}`, lastName: "B" },
      { email: `c@${own.audience}` },
      { email: `d@${own.audience}`, status: "UNSUBSCRIBED" },
    ]);
    const client = await consoleClient(await signIn(own.owner.id), own.team.id);
    const one = { type: "newsletter", id: own.newsletterId } as const;
    const blocks = document(paragraph("Hi ", tag("first_name"), " ", tag("last_name", "you")), button("Go", ""));
    const body = { ...one, blocks, preheader: null, subject: "For {{ first_name }}" };
    await client.app.team.changeBrand.mutate({ body: { postal_address: "1 High Street" } });
    const show = async (written: typeof body) => {
      await client.app.content.saveBlocks.mutate({ body: written });
      return (await client.app.content.preview.query({ query: { ...one, person: `a@${own.audience}` } })).data;
    };
    const data = await show(body);
    assert.deepEqual([data.subject, data.to.name, data.problems], ["For Ada", "Ada L", []]);
    assert.ok(!("warnings" in data), "those of the check take time");
    assert.match(data.text, /Hi Ada L/);

    const large = { type: "html", attrs: { html: `<a href="example.com">x</a>${" x".repeat(51_000)}` } };
    const image = { type: "image", attrs: { src: "https://example.com/a.png", alt: "" } };
    const none = { type: "image", attrs: { src: "", alt: "" } };
    const columns = { type: "columns", content: [{ type: "column", content: [none] }] };
    const content = document(paragraph("www.example.com"), image, none, columns, large);
    const worse = { ...body, subject: "x".repeat(61), blocks: content };
    await show(worse);
    const { warnings } = (await client.app.content.check.query({ query: one })).data;
    assert.deepEqual(
      warnings.map(({ kind }) => kind),
      ["empty_image", "image_without_text", "relative_link", "bare_address", "long_subject", "large"],
    );
    assert.match(warnings[0]?.message ?? "", /^2 image blocks without an image/);
    await client.app.content.saveBlocks.mutate({ body: { ...one, blocks, preheader: null, subject: "News" } });
    const checked = (await client.app.content.check.query({ query: one })).data;
    assert.deepEqual(checked.warnings, [
      {
        kind: "no_fallback",
        message: "2 of 3 people have no value for {{ first_name }}, and it has no fallback.",
      },
      { kind: "empty_link", message: "One link without an address." },
    ]);
    await client.app.team.changeBrand.mutate({ body: { postal_address: null } });
    const { warnings: further } = (await client.app.content.check.query({ query: one })).data;
    assert.deepEqual(further.map(({ kind }) => kind).slice(2), ["no_postal_address"]);
  });

  it("of a campaign counts the contacts without a field, and goes with its segment into a copy", async () => {
    const own = await makeCampaignSender({
      recipients: [{ email: "ada@example.com", fields: { town: "London" } }, { email: "bob@example.com" }],
    });
    const client = await consoleClient(await signIn(own.owner.id), own.team.id);
    const one = { type: "campaign", id: own.campaignId } as const;
    const blocks = document(paragraph(tag("fields.town"), tag("fields.street", "home")));
    await client.app.content.saveBlocks.mutate({ body: { ...one, blocks, preheader: "In short", subject: "News" } });
    const checked = (await client.app.content.check.query({ query: one })).data;
    assert.match(checked.warnings[0]?.message ?? "", /^1 of 2 people have no value for \{\{ fields\.town \}\}/);
    const { data: copy } = await client.app.content.duplicate.mutate({ body: one });
    const [from, to] = await Promise.all(
      [one.id, copy.id].map(async (campaignId) => {
        const { data } = await client.api.campaigns.drafts.retrieve.query({ params: { campaignId } });
        const { name, subject, body, segment_id, account_ids, status } = data;
        const query = { type: "campaign", id: campaignId } as const;
        const written = (await client.app.content.document.query({ query })).data;
        return { name, subject, body, segment_id, account_ids, status, blocks: written.blocks, pre: written.preheader };
      }),
    );
    assert.ok(from && from.segment_id !== null && from.account_ids.length === 1);
    assert.deepEqual(to, { ...from, name: `Copy of ${from.name}` });
  });

  it("of a newsletter is copied with its lists and its sender, also when it was sent, as a draft without versions", async () => {
    const own = await makeSender({ recipients: 0 });
    const client = await consoleClient(await signIn(own.owner.id), own.team.id);
    const one = { type: "newsletter", id: own.newsletterId } as const;
    await sql`update newsletters set status = 'SENT', name = ${"x".repeat(199)}, send_days = '{1}', tracking = true
      where id = ${one.id}`.execute(kysely(own.em.fork()));
    const { data } = await client.app.content.duplicate.mutate({ body: one });
    assert.equal(data.name, `Copy of ${"x".repeat(192)}`);
    const params = { newsletterId: data.id };
    const copy = (await client.api.newsletters.drafts.retrieve.query({ params })).data;
    assert.deepEqual(
      [copy.status, copy.lists, copy.from_email, copy.send_days, copy.send_id],
      ["DRAFT", [own.listId], own.fromEmail, [1], null],
    );
    const query = { ...one, id: data.id };
    assert.equal((await client.app.content.settings.query({ query })).data.tracking, true);
    assert.deepEqual((await client.app.content.versions.query({ query })).data, []);
    const sequence = { type: "campaign", id: await makeSequence(own, { isStarted: false }) } as const;
    assert.equal(
      await refusalCodeOf(client.app.content.duplicate.mutate({ body: sequence })),
      "resource_state_invalid",
    );
  });
});

describe("A step of blocks", () => {
  let sender: Sender;
  let ada: Client;
  before(async () => {
    sender = await makeSender({ recipients: 1 });
    ada = await clientAs(sender, "OWNER");
  });

  const open = async (isStarted = false) => {
    const params = { sequenceId: await makeSequence(sender, { steps: [step("a"), step("b")], isStarted }) };
    const mail = { type: "campaign", id: params.sequenceId, step_id: "a" } as const;
    const { id, wait_minutes, subject } = step("a");
    /** @param text HTML, or a document */
    const save = (text: string | object, more: object = {}, is_lasting = false) => {
      const given = { wait_minutes, subject, ...(typeof text === "string" && { body: text }), ...more };
      const blocks = typeof text === "string" ? null : { blocks: text as never, preheader: "Read on" };
      return ada.app.sequences.saveStep.mutate({
        params,
        body: { step_id: id, step: given, document: blocks, is_lasting },
      });
    };
    const show = async () =>
      (await ada.app.sequences.step.query({ params, query: { step_id: id } })).data.step ?? assert.fail("no step");
    const versions = async () => (await ada.app.content.versions.query({ query: mail })).data;
    /** By a program. */
    const write = (differences: object) =>
      saveSteps(sender.em.fork(), tenantOf(sender), params.sequenceId, [step("a", differences), step("b")]);
    const stored = async () => {
      const { rows } = await sql`select from sequence_step_versions where campaign_id = ${params.sequenceId}`.execute(
        kysely(sender.em),
      );
      return rows.length;
    };
    return { params, mail, save, show, versions, write, stored };
  };

  it("is mailed as it compiles, becomes HTML by a write of its body, and its blocks stay as a version", async () => {
    const { mail, save, show, versions, write, stored } = await open();
    const blocks = document(paragraph("Dear ", tag("first_name", "you")));
    await save(blocks);
    const compiled = await show();
    assert.deepEqual([compiled.blocks, compiled.preheader], [blocks, "Read on"]);
    assert.match(compiled.body, /Dear \{\{ first_name \| default: "you" \}\}/);
    assert.match((await ada.app.content.preview.query({ query: mail })).data.text, /^Dear /);
    // The writer's own saves of these minutes are no versions beside the HTML, and a DRAFT has one row for each step.
    for (const text of ["1", "2", "3"]) await save(document(paragraph(text)));
    assert.deepEqual([(await versions()).map((each) => each.has_blocks), await stored()], [[false], 2]);

    const { body } = await show();
    await write({ body, wait_minutes: 5 });
    assert.deepEqual([(await show()).blocks, (await show()).wait_minutes], [document(paragraph("3")), 5]);
    await write({ body: "<p>HTML</p>" });
    assert.deepEqual([(await show()).blocks, (await show()).preheader], [null, null]);
    const [last] = await versions();
    assert.equal(last?.has_blocks, true);
    const query = { ...mail, version_id: last?.id ?? "" };
    assert.deepEqual((await ada.app.content.version.query({ query })).data.blocks, document(paragraph("3")));
    const ofOther = ada.app.content.version.query({ query: { ...query, step_id: "b" } });
    assert.equal(await refusalCodeOf(ofOther), "not_found");
  });

  it("keeps the text that a restore replaces", async () => {
    const { mail, save, versions } = await open();
    const saved = (text: string, isLasting = false) => save(document(paragraph(text)), {}, isLasting);
    for (const text of ["A1", "A2", "A3"]) await saved(text);
    await saved("A1", true);
    for (const text of ["A4", "A5"]) await saved(text);
    const texts = (await versions()).map(async ({ id }) => {
      const { data } = await ada.app.content.version.query({ query: { ...mail, version_id: id } });
      return /A\d/.exec(data.body ?? "")?.[0];
    });
    assert.deepEqual(await Promise.all(texts), ["A3", undefined]);
  });

  it("of a running sequence is mailed as saved, also where it is a test, and keeps what waves have mailed", async () => {
    const { params, mail, save, stored } = await open(true);
    await save(document(paragraph("Now")), { stop_if: { not: { event: "clicked" } } });
    assert.equal(await stored(), 3);
    const test = { ...mail, member_ids: [sender.owner.id] };
    const [outcome] = (await ada.app.content.sendTest.mutate({ body: test })).data;
    assert.deepEqual([outcome?.outcome, outcome?.reason], ["sent", "accepted"]);
    const checked = async (query = mail) => (await ada.app.content.check.query({ query })).data.warnings;
    const kinds = async (query = mail) => (await checked(query)).map(({ kind }) => kind);
    assert.deepEqual(await kinds(), ["condition_without_tracking", "no_postal_address"]);
    assert.deepEqual(await kinds({ ...mail, step_id: "b" } as never), ["no_postal_address"]);
    await save("<p>{{ list_name }}</p>", { stop_if: { event: "clicked", resource: params.sequenceId } });
    assert.deepEqual(await kinds(), ["no_postal_address"]);
    const { text } = (await ada.app.content.preview.query({ query: mail })).data;
    assert.match(text, /^Readers/);
    assert.equal(await refusalCodeOf(ada.app.content.preview.query({ query: { ...mail, step_id: "c" } })), "not_found");
  });
});

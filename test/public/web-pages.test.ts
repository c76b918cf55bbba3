import assert from "node:assert/strict";
import { Parser } from "htmlparser2";
import { en } from "../../domain/languages/en.ts";
import { compileBlocks } from "../../domain/mail/blocks/compile.ts";
import { BLANK } from "../../domain/mail/templates/own.ts";
import { newsletterUrl } from "../../domain/sends/web-pages.ts";
import { BRAND } from "../support/blocks.ts";
import { consoleClient, signIn } from "../support/console.ts";
import { execute, makeTeam, type TestTeam } from "../support/factories.ts";
import { makeForm } from "../support/forms.ts";
import { stack } from "../support/stack.ts";
import { type MailedLetter, mailLetter } from "./ledger.ts";

const BODY = `<h1>News</h1><p>Dear {{ first_name | default: "reader" }}{{ email }} of {{ list_name }}</p><script>run()</script>
  <a href="{{ unsubscribe_url }}">Leave</a> <a href="{{ tracking_url }}">Choose</a> <a href="{{ web_url }}">View</a>
  <a href="https://shop.example/">Shop</a>`;

describe("Newsletters on the web", () => {
  let team: TestTeam;
  let app: Awaited<ReturnType<typeof consoleClient>>["app"];
  let origin: string;
  let letter: MailedLetter;
  let url: string;
  before(async () => {
    team = await makeTeam();
    ({ origin } = await stack());
    ({ app } = await consoleClient(await signIn(team.owner.id), team.team.id));
    letter = await write("{{ list_name }} No. 1 for {{ first_name | default: 'all' }} & <you>\uffff");
    url = newsletterUrl(team.vault, origin, letter.newsletterId);
  });

  async function write(subject: string, body = BODY): Promise<MailedLetter> {
    const made = await mailLetter(team);
    await execute(
      "update newsletters set subject = ?, body = ?, completed_at = now() where id = ?",
      subject,
      body,
      made.newsletterId,
    );
    return made;
  }
  const get = async (path: string) => {
    const answer = await fetch(path);
    return { status: answer.status, headers: answer.headers, text: await answer.text() };
  };
  const publish = (id: string, isPublic: boolean) =>
    app.content.publish.mutate({ body: { newsletter_id: id, is_public: isPublic } });
  const setArchive = async ([id = ""]: string[], isOn: boolean) => {
    await app.audience.archive.mutate({ body: { list_id: id, is_on: isOn } });
    return (await app.audience.lists.query({ query: { list_id: id } })).data.lists[0]?.archive_url ?? "";
  };
  const assertWithdrawn = async (path: string) => {
    const { status, text } = await get(path);
    assert.deepEqual([status, text.includes(en.web.withdrawn.title)], [404, true]);
  };

  it("shows a newsletter once it is published, without tags, addresses or links of a person, and withdraws it", async () => {
    await assertWithdrawn(url);
    const { data } = await publish(letter.newsletterId, true);
    assert.deepEqual(data, { url, is_public: true });
    const { status, headers, text } = await get(url);
    assert.equal(status, 200);
    assert.ok(text.includes("<p>Dear reader of </p>"), text);
    assert.ok(text.includes("<title> No. 1 for all &amp; &lt;you&gt;"), text);
    assert.match(text, /<meta property="og:title" content="No\. 1 for all &amp; &lt;you&gt;[^"]*">/);
    assert.match(text, /<meta property="og:description" content="Leave Choose View Shop">/);
    assert.equal(text.split("<h1").length, 2, "that of the mail");
    const hrefs = [...text.matchAll(/<a href="([^"]*)"/g)].map(([, href]) => href);
    assert.deepEqual(hrefs, [url, url, url, "https://shop.example/"]);
    assert.ok(!/example\.com|Unsubscribe/.test(text), text);
    const policy = headers.get("content-security-policy") ?? "";
    assert.match(policy, /^default-src 'none';.*;sandbox allow-popups allow-popups-to-escape-sandbox;/);
    assert.doesNotMatch(policy, /script/);
    assert.equal(headers.get("cache-control"), "public, max-age=300");
    await publish(letter.newsletterId, false);
    await assertWithdrawn(url);
  });

  it("adds no link of a person below a body that has none", async () => {
    const bare = await write("Bare", "<p>Text</p>");
    await publish(bare.newsletterId, true);
    const { text } = await get(newsletterUrl(team.vault, origin, bare.newsletterId));
    assert.ok(!text.includes("<a"), text);
  });

  it("stands below a bar in the colours of its page", async () => {
    const brand = { ...BRAND, accentColor: "#ffeb3b", backgroundColor: "#123456" };
    const made = await write("Blocks", compileBlocks({ blocks: BLANK.blocks, preheader: null, brand }));
    await execute("update forms set list_id = ? where id = ?", made.listIds[0], (await makeForm(team)).id);
    await publish(made.newsletterId, true);
    await execute("update teams set accent_color = ? where id = ?", brand.accentColor, team.team.id);
    const { text } = await get(newsletterUrl(team.vault, origin, made.newsletterId));
    const bar = text.slice(text.indexOf("<div"), text.indexOf("<!doctype html>", 1));
    assert.match(bar, /^<div class="page footer" style="background-color:#123456;/);
    assert.ok(bar.includes(`background:#ffeb3b;color:#1f2328;text-decoration:none">${en.web.subscribe}</a>`), bar);
  });

  it("leads nowhere by another signature, and shows no draft and no newsletter of TEST", async () => {
    const [head = "", signature = ""] = url.split(/\.(?=[\w-]+$)/);
    const list = await setArchive(letter.listIds, true);
    const forged = [
      ...[head, `${head}.${list.split(".").at(-1)}`, `${url}x`, list.replace("/a/", "/n/"), url.replace("/n/", "/a/")],
      `${list.slice(0, list.lastIndexOf("."))}.${signature}`,
    ];
    for (const path of forged) {
      const { status, text } = await get(path);
      assert.deepEqual([status, text.includes(en.broken.title)], [404, true], path);
    }
    await setArchive(letter.listIds, false);
    const set = (column: string, value: string) =>
      execute(`update newsletters set ${column} = ? where id = ?`, value, letter.newsletterId);
    for (const [column, value, old] of [
      ["status", "DRAFT", "SENT"],
      ["environment", "TEST", "LIVE"],
    ] as const) {
      await set(column, value);
      assert.equal((await get(url)).status, 404, value);
      await set(column, old);
    }
    await execute("update newsletters set status = 'FAILED' where id = ?", letter.newsletterId);
    await assert.rejects(publish(letter.newsletterId, true), /was sent/);
    await execute("update newsletters set status = 'SENT' where id = ?", letter.newsletterId);
  });

  it("has the archive of a list while its switch is on: its own newsletters alone, as a page, a feed and a sitemap", async () => {
    const other = await write("Of another list");
    const withdrawn = await write("Withdrawn");
    const next = await write('{{ list_name }}, {{ first_name | default: "there" }}');
    const [listId = ""] = letter.listIds;
    const form = await makeForm(team);
    await execute("update forms set list_id = ? where id = ?", listId, form.id);
    for (const { newsletterId } of [withdrawn, next])
      await execute("insert into newsletter_lists (newsletter_id, list_id) values (?, ?)", newsletterId, listId);
    await publish(withdrawn.newsletterId, false);
    await execute("update newsletters set is_public = null where id = ?", letter.newsletterId);
    await assertWithdrawn(url);
    const preheader = '<div style="display:none">More of {{ list_name }}&zwnj;&nbsp;&zwnj;&nbsp;&zwnj;&nbsp;</div>';
    await execute("update newsletters set body = ? where id = ?", preheader + BODY, letter.newsletterId);
    const archive = await setArchive(letter.listIds, true);
    const issues = [next, letter].map(({ newsletterId }) => newsletterUrl(team.vault, origin, newsletterId));
    assert.ok((await get(url)).text.includes("of </p>"), "it has two lists");
    await execute("delete from newsletter_lists where newsletter_id = ? and list_id <> ?", letter.newsletterId, listId);
    const { text } = await get(url);
    assert.ok(text.includes("of One</p>"));
    assert.ok(text.includes('<meta property="og:description" content="More of One">'), text);
    const above = [...text.slice(0, text.indexOf("<h1>")).matchAll(/<a href="([^"]*)"[^>]*>([^<]*)/g)];
    assert.deepEqual(
      above.map(([, href, words]) => [href, words]),
      [
        [archive, en.web.issues],
        [`${origin}${form.path}`, en.web.subscribe],
      ],
    );
    assert.ok(text.includes(`<strong>${team.team.name}</strong>`), text);
    await execute("update teams set sender_name = 'Kestrel' where id = ?", team.team.id);
    const named = (await get(url)).text;
    assert.ok(named.includes("<strong>Kestrel</strong>"), named);
    assert.ok(named.includes('<meta property="og:site_name" content="Kestrel">'), named);

    const page = await get(archive);
    const hrefs = [...page.text.matchAll(/<a(?: class="main")? href="([^"]*)">([^<]*)/g)].map(([, href, text]) => [
      href,
      text,
    ]);
    assert.deepEqual(hrefs, [
      [form.path, en.web.subscribe],
      [issues[0], "One"],
      [issues[1], "One No. 1 for all &amp; &lt;you&gt;\uffff"],
      [`${archive}/feed`, en.web.feed],
    ]);
    assert.ok(page.text.includes(`<p>${en.signUp.intro("One", "Kestrel")}</p>`), page.text);
    assert.ok(page.text.includes("</a><p>More of One</p>"), page.text);
    assert.ok(page.text.includes("</a><p>Leave Choose View Shop</p>"), page.text);
    for (const shown of [page, await get(url)]) assert.match(shown.text, /<link rel="icon" href="data:/);
    assert.equal(page.headers.get("cache-control"), "public, max-age=300");

    const feed = await get(`${archive}/feed`);
    assert.equal(feed.headers.get("content-type"), "application/atom+xml; charset=utf-8");
    assert.deepEqual(textsIn(feed.text, "id"), [archive, ...issues]);
    assert.deepEqual(textsIn(feed.text, "title"), ["One", "One", "One No. 1 for all & <you>"]);
    for (const at of textsIn(feed.text, "updated")) assert.equal(new Date(at).toISOString(), at);
    const etag = feed.headers.get("etag") ?? "";
    // Without its own, fetch asks by `no-cache`.
    const kept = { "if-none-match": etag, "cache-control": "max-age=0" };
    const again = await fetch(`${archive}/feed`, { headers: kept });
    assert.deepEqual([again.status, await again.text()], [304, ""]);
    const sitemap = await get(`${archive}/sitemap.xml`);
    assert.deepEqual(textsIn(sitemap.text, "loc"), [archive, ...issues]);
    assert.ok(!`${page.text}${feed.text}`.includes(other.newsletterId.slice(3)));

    await setArchive(letter.listIds, false);
    assert.equal((await get(archive)).status, 404);
    await assertWithdrawn(url);
  });

  it("stays as it is when a person is erased, and goes with its team", async () => {
    await publish(letter.newsletterId, true);
    const archive = await setArchive(letter.listIds, true);
    const before = (await get(url)).text;
    await execute("delete from send_recipients where send_id = ?", letter.sendId);
    assert.equal((await get(url)).text, before);
    await execute("delete from teams where id = ?", team.team.id);
    for (const path of [url, archive]) assert.equal((await get(path)).status, 404);
  });
});

/** The texts of elements of a document, which must be well-formed. */
function textsIn(xml: string, name: string): string[] {
  const texts: string[] = [];
  const open: string[] = [];
  const parser = new Parser(
    {
      onopentagname: (tag) => {
        open.push(tag);
        if (tag === name) texts.push("");
      },
      ontext: (text) => {
        if (open.at(-1) === name) texts[texts.length - 1] += text;
      },
      onclosetag: (tag, isImplied) => {
        assert.equal(open.pop(), tag);
        assert.ok(!isImplied || tag === "link", `${tag} is not closed`);
      },
    },
    { xmlMode: true },
  );
  assert.match(xml, /^<\?xml version="1\.0" encoding="utf-8"\?>\n</);
  assert.doesNotMatch(xml, /[\ufffe\uffff]|&(?!(?:amp|lt|gt|#34|#39);)/);
  parser.end(xml);
  assert.deepEqual(open, []);
  return texts;
}

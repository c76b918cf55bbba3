import assert from "node:assert/strict";
import { makePlaceholder } from "../../domain/erasure/erased-addresses.ts";
import { en } from "../../domain/languages/en.ts";
import { unsubscribeUrl, webUrl } from "../../domain/mail/links.ts";
import { execute, unique } from "../support/factories.ts";
import { makeSender, type Sender, sendAndWait } from "../support/sending.ts";
import { stack } from "../support/stack.ts";
import { mailsOf } from "./tracking.ts";

describe("A mail as a page", () => {
  const audience = `${unique("page")}.example`;
  let sender: Sender;
  let url: string;
  let page: Response;
  let html: string;
  before(async () => {
    sender = await makeSender({
      recipients: [{ email: `ada@${audience}`, firstName: "<Ada>" }],
      subject: "For {{ first_name }} & you",
      body: `<p>Dear {{ first_name }} of {{ list_name }} {{ email }}</p><script>document.title = "run"</script>
        <a href="{{ web_url }}">View</a> <a href="{{ tracking_url }}">Choose</a>`,
    });
    await sendAndWait(sender);
    const [ref] = await execute<{ send_id: string; seq: number }>(
      "select r.send_id, r.seq from send_recipients r join sends s on s.id = r.send_id where s.resource_id = ?",
      sender.newsletterId,
    );
    assert.ok(ref);
    url = webUrl(sender.vault, (await stack()).origin, { sendId: ref.send_id, seq: ref.seq });
    page = await fetch(url);
    html = await page.text();
  });

  it("is the mail that was sent, with its tags and its links, below its subject", async () => {
    assert.equal(page.status, 200);
    const [mail] = await mailsOf({ ...sender, audience });
    assert.ok(mail);
    assert.ok(mail.hrefs.includes(url) && mail.text.includes(url), mail.html);
    const lines = (text: string) => text.replaceAll("\r\n", "\n").trim();
    assert.equal(lines(html.slice(html.indexOf("</title>") + 8)), lines(mail.html));
    assert.ok(html.includes("<title>For &lt;Ada&gt; &amp; you</title>"), html);
    const leave = mail.hrefs.find((href) => href.includes("/u/")) ?? "";
    assert.equal((await fetch(leave)).status, 200);
  });

  it("runs no script, is stored and found by no program, and tells no site where the reader came from", () => {
    const headers = Object.fromEntries(page.headers);
    const policy = new Map(
      (headers["content-security-policy"] ?? "").split(";").map((part) => {
        const [name = "", ...values] = part.trim().split(" ");
        return [name, values.join(" ")];
      }),
    );
    assert.equal(policy.get("default-src"), "'none'");
    assert.equal(policy.get("sandbox"), "allow-popups allow-popups-to-escape-sandbox");
    assert.deepEqual([policy.has("script-src"), policy.get("form-action")], [false, "'none'"]);
    assert.equal(headers["cache-control"], "no-store");
    assert.equal(headers["referrer-policy"], "no-referrer");
    // By the standard a browser refuses a page with both a sandbox and such a policy.
    assert.equal(headers["cross-origin-opener-policy"], undefined);
    assert.match(headers["x-robots-tag"] ?? "", /noindex/);
  });

  it("has another signature than the mail's other links", async () => {
    const [send = "", seq = "", signature = ""] = url.split("/v/")[1]?.split(".") ?? [];
    const [sendRow] = await execute<{ id: string }>("select id from sends where resource_id = ?", sender.newsletterId);
    const leave = unsubscribeUrl(sender.vault, "", { sendId: sendRow?.id ?? "", seq: Number.parseInt(seq, 36) });
    const { origin } = new URL(url);
    const forged = [`${send}.${seq}.${leave.split(".").at(-1)}`, `${send}.zz.${signature}`, `${send}.${seq}`];
    for (const token of forged) {
      const answer = await fetch(`${origin}/v/${token}`);
      assert.equal(answer.status, 404, token);
      assert.ok((await answer.text()).includes(en.broken.title), token);
    }
  });

  it("has no link to itself in the footer", async () => {
    await execute("update newsletters set body = '<p>News</p>' where id = ?", sender.newsletterId);
    await execute(`update sends set footer = footer || '{"isOnWeb":true}' where resource_id = ?`, sender.newsletterId);
    const text = await (await fetch(url)).text();
    assert.ok(text.includes("<p>News</p>") && text.includes(en.footer.unsubscribe), text);
    assert.ok(!text.includes(en.footer.web), text);
  });

  it("ends with the names in the ledger, and with the erasure of its person", async () => {
    const setState = (state: string) =>
      execute("update sends set ledger_state = ? where resource_id = ?", state, sender.newsletterId);
    await setState("NAMELESS");
    const kept = await fetch(url);
    assert.deepEqual([kept.status, (await kept.text()).includes(en.web.expired.title)], [404, true]);
    await setState("COMPLETE");
    await execute(
      "update send_recipients set email = ? where send_id in (select id from sends where resource_id = ?)",
      makePlaceholder(),
      sender.newsletterId,
    );
    const erased = await fetch(url);
    assert.deepEqual([erased.status, (await erased.text()).includes(en.erased.title)], [200, true]);
  });
});

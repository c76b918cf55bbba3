import assert from "node:assert/strict";
import { request } from "node:http";
import { createTransport } from "nodemailer";
import { type MailCatcher, startMailCatcher } from "../../stack/mail-catcher.ts";
import type { FaultRule } from "../../stack/mail-faults.ts";
import type { CaughtMail, MailStats } from "../../stack/mail-store.ts";

interface ParsedMail {
  headers: { key: string }[];
  html: string;
  text: string;
}

describe("mail catcher", () => {
  let catcher: MailCatcher;
  let base: string;

  beforeEach(async () => {
    catcher = await startMailCatcher({ smtpPort: 0, httpPort: 0, host: "127.0.0.1" });
    base = `http://127.0.0.1:${catcher.httpPort}`;
  });
  afterEach(() => catcher.close());

  const transport = (options: object = {}) =>
    createTransport({ host: "127.0.0.1", port: catcher.smtpPort, secure: false, ...options });
  const mail = (to: string | string[], more: object = {}) => ({
    from: "Shop <shop@sender.test>",
    to,
    subject: "Hello",
    text: "Hello, you",
    ...more,
  });
  const getJson = async <T>(path: string) => (await (await fetch(`${base}${path}`)).json()) as T;
  const getStats = () => getJson<MailStats>("/api/stats");
  const messages = async (query = "") => (await getJson<{ messages: CaughtMail[] }>(`/api/messages${query}`)).messages;
  const setFaults = async (rules: unknown, query = "") => {
    const body = JSON.stringify(rules);
    return fetch(`${base}/api/faults${query}`, {
      method: "PUT",
      headers: { "content-type": "application/json" },
      body,
    });
  };

  it("catches a mail with its envelope and decoded subject", async () => {
    const subject = "Grüße aus Köln, und zwar in einer Betreffzeile, die über mehr als eine Zeile geht ✓";
    await transport().sendMail(mail(["a@one.test", "b@two.test"], { subject, messageId: "<m1@sender.test>" }));
    const [caught] = await messages();
    const { at: _at, size: _size, ...rest } = caught ?? assert.fail();
    const to = ["a@one.test", "b@two.test"];
    assert.deepEqual(rest, { id: 1, from: "shop@sender.test", to, subject, messageId: "<m1@sender.test>" });
  });

  it("lists by recipient, and page by page in order of arrival", async () => {
    for (const to of ["a@one.test", "b@two.test", "a@one.test", "A@one.test"]) await transport().sendMail(mail(to));
    const ids = async (query: string) => (await messages(query)).map(({ id }) => id);
    assert.deepEqual(await ids("?to=a@one.test"), [1, 3, 4]);
    assert.deepEqual(await ids("?to=@TWO.test"), [2]);
    assert.deepEqual(await ids("?limit=2"), [1, 2]);
    assert.deepEqual(await ids("?limit=2&after=2"), [3, 4]);
    assert.deepEqual(await ids("?after=4"), []);
    assert.equal((await fetch(`${base}/api/messages?limit=none`)).status, 400);
  });

  it("finds mails on its page by a part of sender, recipient or subject", async () => {
    for (const name of ["anna", "bert"]) await transport().sendMail(mail(`${name}@one.test`));
    const found = async (search: string) => {
      const page = await (await fetch(`${base}/?q=${search}`)).text();
      return [...page.matchAll(/(\w+)@one\.test/g)].map(([, name]) => name);
    };
    assert.deepEqual(await found("ANNA"), ["anna"]);
    assert.deepEqual(await found("hello"), ["bert", "anna"]);
    assert.deepEqual(await found("nobody"), []);
  });

  it("deletes every mail on DELETE, and continues to count ids", async () => {
    await transport().sendMail(mail("a@one.test"));
    assert.equal((await fetch(`${base}/api/messages`, { method: "DELETE" })).status, 204);
    assert.deepEqual(await messages(), []);
    assert.deepEqual(await getStats(), { received: 0, recipients: 0 });
    await transport().sendMail(mail("a@one.test"));
    assert.equal((await messages()).map(({ id }) => id).join(), "2");
    assert.equal((await getJson<ParsedMail>("/api/messages/2")).text.trim(), "Hello, you");
  });

  it("gives the parsed mail and its source, and 404 for one it does not have", async () => {
    await transport().sendMail(mail("a@one.test", { html: "<p>Hello</p>" }));
    const parsed = await getJson<ParsedMail>("/api/messages/1");
    assert.equal(parsed.html.trim(), "<p>Hello</p>");
    assert.equal(parsed.text.trim(), "Hello, you");
    assert.ok(parsed.headers.some(({ key }) => key === "mime-version"));
    const source = await fetch(`${base}/api/messages/1/source`);
    assert.match(source.headers.get("content-type") ?? "", /^text\/plain/);
    assert.match(await source.text(), /^Subject: Hello\r$/m);
    for (const path of ["/api/messages/2", "/api/messages/2/source", "/messages/2", "/messages/x/html"]) {
      assert.equal((await fetch(base + path)).status, 404, path);
    }
  });

  it("shows mails without letting anything in them run", async () => {
    const attack = `<script>alert(1)</script>"'`;
    await transport().sendMail(mail("a@one.test", { subject: attack, text: attack, html: attack }));
    for (const path of ["/", "/messages/1"]) {
      const page = await fetch(base + path);
      const text = await page.text();
      assert.match(page.headers.get("content-security-policy") ?? "", /default-src 'none'/);
      assert.doesNotMatch(text, /<script/);
      assert.match(text, /&lt;script&gt;/);
    }
    assert.match(await (await fetch(`${base}/messages/1`)).text(), /<iframe sandbox="[^"]*" src="\/messages\/1\/html"/);
    const frame = await fetch(`${base}/messages/1/html`);
    // A page that a link opens is not sandboxed: most refuse to be.
    assert.match(
      frame.headers.get("content-security-policy") ?? "",
      /default-src 'none'.*; sandbox allow-popups allow-popups-to-escape-sandbox$/,
    );
  });

  it("answers only to names of this machine, so that no page on the Internet reads the mails", async () => {
    await transport().sendMail(mail("a@one.test"));
    const statusFor = (host: string, path = "/api/messages", method = "GET") =>
      new Promise<number | undefined>((resolve, reject) => {
        request(base + path, { method, headers: { host }, setHost: false }, (response) =>
          resolve(response.resume().statusCode),
        )
          .on("error", reject)
          .end();
      });
    const port = catcher.httpPort;
    for (const host of [`127.0.0.1:${port}`, `localhost:${port}`, `[::1]:${port}`, "localhost", "LOCALHOST:1080"]) {
      assert.equal(await statusFor(host), 200, host);
    }
    const rebound = ["rebound.example", `rebound.example:${port}`, `user@rebound.example:${port}`];
    for (const host of [...rebound, "localhost.example", "127.0.0.1.example", "10.0.0.1", " ", "a b"]) {
      assert.equal(await statusFor(host), 421, host);
    }
    for (const path of ["/", "/messages/1", "/messages/1/html", "/api/messages/1/source", "/api/stats", "/none"]) {
      assert.equal(await statusFor("rebound.example", path), 421, path);
    }
    assert.equal(await statusFor("rebound.example", "/api/messages", "DELETE"), 421);
    assert.equal((await messages()).length, 1);
  });

  describe("faults", () => {
    it("refuses rules that make no sense and keeps those it has", async () => {
      const rules = [{ stage: "rcpt", code: 450 }];
      assert.equal((await setFaults(rules)).status, 200);
      for (const wrong of [[{ stage: "helo" }], [{ stage: "rcpt", match: "(" }], [{ stage: "rcpt", code: 250 }], {}]) {
        assert.equal((await setFaults(wrong)).status, 400);
      }
      const [rule] = await getJson<FaultRule[]>("/api/faults");
      assert.equal(rule?.code, 450);
    });
  });
});

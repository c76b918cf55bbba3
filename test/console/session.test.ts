import assert from "node:assert/strict";
import { once } from "node:events";
import { connect } from "node:net";
import { appRouter } from "../../api/router.ts";
import type { Env } from "../../config/env.ts";
import { transaction } from "../../db/transaction.ts";
import { claimLinks } from "../../domain/access/member-mails.ts";
import { makeLink } from "../../domain/access/sessions.ts";
import { addMember, changeMember } from "../../domain/teams/teams.ts";
import { serveRoutes, type TestApp } from "../support/app.ts";
import { type Cookies, consoleClient, consoleFetch, linkFor, refusalCodeOf, signIn } from "../support/console.ts";
import { eventually } from "../support/eventually.ts";
import { execute, makeMember, makeTeam, unique } from "../support/factories.ts";
import { windowWithRoom } from "../support/request-window.ts";
import { caughtMails, readMail } from "../support/sending.ts";
import { stack } from "../support/stack.ts";

const codeOf = async (response: Response): Promise<string> =>
  response.ok ? "answered" : ((await response.json()) as { error: { code: string } }).error.code;

/** A network of its own, whose requests no other test counts. */
const newNetwork = (): string => `10.${[0, 0, 0].map(() => Math.floor(Math.random() * 256)).join(".")}`;

async function memberAtOwnDomain() {
  const { em, team } = await makeTeam();
  const audience = `${unique("members")}.example`;
  const person = { email: `ada@${audience}`, name: "Ada", role: "ADMIN" as const };
  const member = await transaction(em, (tx) => addMember(tx, team.id, person));
  return { ...person, audience, member, team, em };
}

describe("Signing in to the console", () => {
  const apps: TestApp[] = [];
  /** Behind a proxy, so that each test has networks of its own. */
  const serve = async (changes: Partial<Env> = {}) => {
    const proxied = { PROXY_ADDRESSES: ["127.0.0.1"], PROXY_HOPS: 1, ...changes };
    const app = await serveRoutes(appRouter, { changes: proxied });
    apps.push(app);
    return app.origin;
  };
  afterEach(async () => {
    for (const app of apps.splice(0)) await app.close();
  });
  const ask = (
    email: string,
    { cookies = {}, network = newNetwork(), at }: { cookies?: Cookies; network?: string; at: string },
  ) => consoleFetch(cookies, "POST", "/sign-in", { email }, { "x-forwarded-for": network }, at);
  const use = async (cookies: Cookies, link: string) =>
    codeOf(await consoleFetch(cookies, "POST", "/session", { link }));

  it("takes a link that is mailed, once, in the browser that asked for it", async () => {
    const { email, audience } = await memberAtOwnDomain();
    const at = await serve();
    const cookies: Cookies = {};
    assert.equal((await ask(` ${email.toUpperCase()}`, { cookies, at })).status, 202);
    const mail = await eventually(async () => (await caughtMails({ audience }))[0], { what: "the mail" });
    assert.ok(mail);
    const { subject, text = "" } = await readMail(mail.id);
    assert.equal(subject, "Sign in to Mailkeel");
    const [, link = ""] = /\/console\/sign-in#(\S+)/.exec(text) ?? [];
    assert.equal(await use({}, link), "api_key_invalid", "a stolen link in another browser");
    assert.equal(await use({ mailkeel_sign_in: "guessed" }, link), "api_key_invalid");
    assert.equal(await use({ ...cookies }, `${link}x`), "api_key_invalid");
    const asked = { ...cookies };
    assert.equal(await use(cookies, link), "answered");
    assert.equal(await use(asked, link), "api_key_invalid", "used before");
    const session = await consoleFetch(cookies, "GET", "/session");
    assert.equal(((await session.json()) as { email: string }).email, email);
    const [row] = await execute("select s::text as text from console_sessions s where email = ?", email);
    const token = cookies["mailkeel_session"] ?? "";
    assert.ok(token !== "" && !String(row?.["text"]).includes(token), "the token is not stored");
  });

  it("refuses a link that is late, and mails none", async () => {
    const { member, em, email } = await memberAtOwnDomain();
    const link = await linkFor(member.id);
    await execute("update sign_in_links set expires_at = now() where email = ?", email);
    assert.equal(await use({}, link), "api_key_invalid");
    const claimed = await transaction(
      em,
      async (tx) => {
        const ids = [await makeLink(tx, member.id), await makeLink(tx, member.id)];
        await tx.execute("update sign_in_links set mail_due_at = now() where id in (?, ?)", ids);
        await tx.execute("update sign_in_links set expires_at = now() where id = ?", [ids[1]]);
        const due = (await claimLinks(tx, 1_000)).map(({ id }) => id);
        return ids.map((id) => due.includes(id));
      },
      { isRolledBack: true },
    );
    assert.deepEqual(claimed, [true, false]);
  });

  it("takes a link of member:link once, in any browser", async () => {
    const { member } = await memberAtOwnDomain();
    const link = await linkFor(member.id);
    assert.deepEqual([await use({}, link), await use({}, link)], ["answered", "api_key_invalid"]);
  });

  it("answers an unknown address as one of a member, and makes no row", async () => {
    const { email } = await memberAtOwnDomain();
    const unknown = `${unique("nobody")}@example.com`;
    const at = await serve();
    const shown = async (asked: string) => {
      const cookies: Cookies = {};
      const answer = await ask(asked, { cookies, at });
      const names = [...answer.headers.keys()].sort();
      return [answer.status, await answer.text(), names, Object.keys(cookies)];
    };
    assert.deepEqual(await shown(unknown), await shown(email));
    const rows = "select from sign_in_links where email = ?";
    assert.deepEqual([(await execute(rows, unknown)).length, (await execute(rows, email)).length], [0, 1]);
  });

  it("mails a member one link for requests of many networks, and it serves the member's own browser", async () => {
    const { email, audience } = await memberAtOwnDomain();
    const at = await serve();
    const askedByOthers = await Promise.all(Array.from({ length: 3 }, () => ask(email, { at })));
    const mails = async () => (await caughtMails({ audience })).length;
    await eventually(async () => (await mails()) >= 1, { what: "the mails to which the first requests led" });
    for (let n = 0; n < 25; n++) askedByOthers.push(await ask(email, { at }));
    const cookies: Cookies = {};
    const answers = [...askedByOthers, await ask(email, { cookies, at })];
    assert.deepEqual(new Set(answers.map(({ status }) => status)), new Set([202]));
    // Requests that came at the same moment may each have led to one.
    const links = await execute("select from sign_in_links where email = ? and used_at is null", email);
    assert.ok(links.length <= 3, `${links.length} links`);
    await eventually(async () => (await mails()) === links.length, { what: "the mail of each link" });
    const [mail] = await caughtMails({ audience });
    const [, link = ""] = /\/console\/sign-in#(\S+)/.exec((await readMail(mail?.id ?? 0)).text ?? "") ?? [];
    assert.equal(await use({ mailkeel_sign_in: "other" }, link), "api_key_invalid");
    assert.equal(await use(cookies, link), "answered");
  });

  it("mails a further link when the one before was used, or is too old to serve another browser", async () => {
    const { email } = await memberAtOwnDomain();
    const at = await serve();
    const due = async () => {
      await ask(email, { at });
      return (await execute("select from sign_in_links where email = ? and used_at is null", email)).length;
    };
    assert.deepEqual([await due(), await due()], [1, 1]);
    await execute("update sign_in_links set expires_at = now() + interval '299 seconds' where email = ?", email);
    assert.deepEqual([await due(), await due()], [2, 2]);
    await execute("update sign_in_links set used_at = now() where email = ?", email);
    assert.equal(await due(), 1);
  });

  it("limits the requests of a network, for any addresses, over two processes", async () => {
    const both = [await serve(), await serve()];
    await windowWithRoom();
    const askAll = async (asked: (i: number) => string, count: number, network?: string) => {
      const answers = await Promise.all(
        Array.from({ length: count }, (_, i) => ask(asked(i), { at: both[i % 2] ?? "", ...(network && { network }) })),
      );
      return Promise.all(answers.map(codeOf));
    };
    const passed = (codes: string[]) => codes.filter((code) => code === "answered").length;
    assert.equal(passed(await askAll(() => `${unique("nobody")}@example.com`, 24, newNetwork())), 20);
  });

  it("counts wrong links and wrong sessions as failed authentications of the network", async () => {
    const at = await serve({ FAILED_AUTHENTICATIONS_PER_MINUTE: 3 });
    await windowWithRoom();
    const from = { "x-forwarded-for": newNetwork() };
    const wrong = { mailkeel_session: "wrong" };
    const codes = [
      await consoleFetch({}, "POST", "/session", { link: "slk_x.y" }, from, at),
      await consoleFetch({ ...wrong }, "GET", "/session", undefined, from, at),
      await consoleFetch({ ...wrong }, "GET", "/trpc/app.team.settings?input={}", undefined, from, at),
      await consoleFetch({ ...wrong }, "GET", "/session", undefined, from, at),
    ].map(({ status }) => status);
    assert.deepEqual(codes, [401, 401, 401, 429]);
  });

  it("reads sessions while others at the address have sent a part of their sign-ins", async () => {
    const { owner } = await makeTeam();
    const [cookies, at] = [await signIn(owner.id), await serve()];
    const { hostname, port } = new URL(at);
    const network = newNetwork();
    const head = `POST /console/sign-in HTTP/1.1\r\nhost: ${hostname}\r\norigin: ${(await stack()).origin}\r\nx-forwarded-for: ${network}\r\ncontent-type: application/json\r\ncontent-length: 99\r\nexpect: 100-continue\r\n\r\n`;
    const sockets = await Promise.all(
      Array.from({ length: 20 }, async () => {
        const socket = connect(Number(port), hostname);
        socket.write(head);
        await once(socket, "data");
        socket.write("{");
        return socket;
      }),
    );
    const read = await consoleFetch({ ...cookies }, "GET", "/session", undefined, { "x-forwarded-for": network }, at);
    assert.equal(read.status, 200);
    const large = await consoleFetch({}, "POST", "/sign-in", { email: "a".repeat(100_000) }, {}, at);
    assert.equal(large.status, 413);
    for (const socket of sockets) socket.destroy();
  });

  it("limits how often one session is read", async () => {
    const at = await serve({ RATE_LIMIT_PER_MINUTE: 3 });
    const { owner } = await makeTeam();
    const [cookies, others] = [await signIn(owner.id), await signIn(owner.id)];
    await windowWithRoom();
    const read = async (of: Cookies) => (await consoleFetch({ ...of }, "GET", "/session", undefined, {}, at)).status;
    const statuses: number[] = [];
    for (let n = 0; n < 4; n++) statuses.push(await read(cookies));
    assert.deepEqual(statuses, [200, 200, 200, 429]);
    assert.equal(await read(others), 200);
  });

  it("refuses writes of other origins, and of none", async () => {
    const { team, owner } = await makeTeam();
    const { origin } = await stack();
    const cookies = await signIn(owner.id);
    const cookie = `mailkeel_session=${cookies["mailkeel_session"]}`;
    const writes = [
      ["POST", "/sign-in", { email: "ada@example.com" }],
      ["POST", "/session", { link: await linkFor(owner.id) }],
      ["DELETE", "/session", undefined],
      ["POST", "/trpc/api.lists.create", { body: { name: "Theirs" } }],
    ] as const;
    for (const [method, path, body] of writes) {
      for (const theirs of [{ origin: "https://evil.example" }, { origin: "null" }, {}]) {
        const answer = await fetch(`${origin}/console${path}`, {
          method,
          headers: { cookie, "mailkeel-team": team.id, "content-type": "application/json", ...theirs },
          ...(body && { body: JSON.stringify(body) }),
        });
        assert.equal(answer.status, 403, `${path} ${JSON.stringify(theirs)}`);
      }
    }
    const client = await consoleClient(cookies, team.id);
    assert.deepEqual((await client.api.lists.page.query({ query: {} })).data, []);
  });

  it("sets cookies that scripts and other sites do not get, and behind https __Host- ones", async () => {
    const { owner } = await makeTeam();
    const flagsOf = async (at: string, origin: string) => {
      const answer = await consoleFetch({}, "POST", "/session", { link: await linkFor(owner.id) }, { origin }, at);
      const [set = ""] = answer.headers.getSetCookie();
      return set.replace(/=[^;]*/, "").replace(/; (Max-Age|Expires)=[^;]*/g, "");
    };
    const { origin } = await stack();
    assert.equal(await flagsOf(origin, origin), "mailkeel_session; Path=/; HttpOnly; SameSite=Lax");
    const secure = "https://mail.example";
    assert.equal(
      await flagsOf(await serve({ PUBLIC_URL: secure }), secure),
      "__Host-mailkeel_session; Path=/; HttpOnly; Secure; SameSite=Lax",
    );
  });
});

describe("A session of the console", () => {
  it("has the member's role in the team that a request names, and no team else", async () => {
    const own = await makeTeam();
    const other = await makeTeam();
    const editor = await makeMember(own.em, own.team.id, "EDITOR");
    const cookies = await signIn(editor.id);
    const client = await consoleClient(cookies, own.team.id);
    const { data } = await client.api.lists.create.mutate({ body: { name: "Readers" } });
    const page = await client.api.lists.page.query({ query: {} });
    assert.deepEqual(
      (page.data as { id: string }[]).map(({ id }) => id),
      [(data as { id: string }).id],
    );
    const foreign = await consoleClient(cookies, other.team.id);
    assert.equal(await refusalCodeOf(foreign.api.lists.page.query({ query: {} })), "api_key_invalid");
    const send = client.api.newsletters.sends.sendPreview.mutate(
      { params: { newsletterId: "nl_x" } },
      { context: { idempotencyKey: "k" } },
    );
    assert.equal(await refusalCodeOf(send), "role_insufficient");
  });

  for (const [ended, shift] of [
    ["12 hours without use", "last_used_at = last_used_at - interval '721 minutes'"],
    ["7 days", "expires_at = expires_at - interval '7 days'"],
  ] as const) {
    it(`ends after ${ended}`, async () => {
      const { owner, team } = await makeTeam();
      const cookies = await signIn(owner.id);
      const client = await consoleClient(cookies, team.id);
      const read = () => refusalCodeOf(client.app.team.settings.query({}));
      assert.equal(await read(), "answered");
      await execute(`update console_sessions set ${shift} where email = ?`, owner.email);
      assert.equal(await read(), "api_key_invalid");
      assert.equal((await consoleFetch(cookies, "GET", "/session")).status, 401);
    });
  }

  it("ends by signing out; everywhere, by signing out everywhere", async () => {
    const { owner } = await makeTeam();
    const browsers = [await signIn(owner.id), await signIn(owner.id), await signIn(owner.id)] as const;
    const before = browsers.map((cookies) => ({ ...cookies }));
    const open = () =>
      Promise.all(before.map(async (cookies) => (await consoleFetch({ ...cookies }, "GET", "/session")).status));
    await consoleFetch(browsers[0], "DELETE", "/session");
    assert.deepEqual([browsers[0]["mailkeel_session"], await open()], [undefined, [401, 200, 200]]);
    await consoleFetch({ ...before[0] }, "DELETE", "/session?everywhere=true");
    assert.deepEqual(await open(), [401, 200, 200], "an ended session ends no others");
    await consoleFetch(browsers[1], "DELETE", "/session?everywhere=true");
    assert.deepEqual(await open(), [401, 401, 401]);
  });

  it("follows its member at once: another role, and out of the team", async () => {
    const { em, team } = await makeTeam();
    const member = await makeMember(em, team.id, "EDITOR");
    const client = await consoleClient(await signIn(member.id), team.id);
    const write = () => refusalCodeOf(client.api.lists.create.mutate({ body: { name: unique("List") } }));
    assert.equal(await write(), "answered");
    await transaction(em, (tx) => changeMember(tx, member.id, { role: "VIEWER" }));
    assert.equal(await write(), "role_insufficient");
    await transaction(em, (tx) => changeMember(tx, member.id, { removedAt: new Date() }));
    assert.equal(await write(), "api_key_invalid");
  });

  it("serves a team without API access, which cannot send", async () => {
    const { team, owner } = await makeTeam({ plan: "FREE" });
    const client = await consoleClient(await signIn(owner.id), team.id);
    assert.equal(await refusalCodeOf(client.api.lists.create.mutate({ body: { name: "Readers" } })), "answered");
    const send = client.api.newsletters.sends.sendPreview.mutate(
      { params: { newsletterId: "nl_x" } },
      { context: { idempotencyKey: unique("key") } },
    );
    assert.equal(await refusalCodeOf(send), "plan_upgrade_required");
  });

  it("refuses calls that it does not know without a failure of the service", async () => {
    const { owner, team } = await makeTeam();
    const cookies = await signIn(owner.id);
    const headers = { "mailkeel-team": team.id, "mailkeel-environment": "LIVE" };
    const statusOf = async (...call: [string, string, unknown?, Record<string, string>?]) =>
      (await consoleFetch(cookies, call[0], call[1], call[2], { ...headers, ...call[3] })).status;
    assert.equal(await statusOf("GET", "/trpc/app.nope"), 404);
    assert.equal(await statusOf("GET", "/trpc/api.lists.create"), 405);
    assert.equal(await statusOf("POST", "/trpc/api.lists.create", "{broken"), 400);
    assert.equal(await statusOf("GET", "/preview/newsletters/nl_x?team=%00"), 404);
    assert.equal(await statusOf("GET", "/trpc/api.lists.page", undefined, { "mailkeel-environment": "live" }), 400);
  });
});

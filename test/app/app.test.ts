import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { type AddressInfo, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { promisify } from "node:util";
import { SMTPServer } from "smtp-server";
import { formatKeys } from "../../config/env.ts";
import { mailLetter } from "../public/ledger.ts";
import { api, type Json } from "../support/api.ts";
import { app, type CommandResult, type RunOptions, runApp } from "../support/command.ts";
import { makeTeam, type TestTeam, uniqueEmail } from "../support/factories.ts";
import { listenLocally } from "../support/listen-locally.ts";
import { openReceiver } from "../support/receiver.ts";
import { addAccount, addSegment } from "../support/sending.ts";
import { stack } from "../support/stack.ts";

const MAIN = join(import.meta.dirname, "../../app/main.mjs");

/** Settings for the tests' stack, as a shell would export them. */
async function settings(): Promise<Record<string, string>> {
  const { env } = await stack();
  return {
    DATABASE_URL: env.DATABASE_URL,
    SIGNING_SECRET: formatKeys(env.SIGNING_SECRET),
    ENCRYPTION_KEYS: formatKeys(env.ENCRYPTION_KEYS),
    SMTP_ALLOWED_HOSTS: env.SMTP_ALLOWED_HOSTS.join(","),
  };
}

const run = async (args: string[], { env, input }: RunOptions = {}): Promise<CommandResult> =>
  runApp(args, { env: env ?? (await settings()), input });

async function json(args: string[], options?: RunOptions): Promise<Json> {
  const { code, stdout, stderr } = await run([...args, "--json"], options);
  assert.equal(code, 0, stderr);
  assert.equal(stdout.trim().split("\n").length, 1, "one JSON object");
  return JSON.parse(stdout);
}

async function refused(args: string[], why: RegExp, options?: RunOptions): Promise<void> {
  const { code, stdout, stderr } = await run(args, options);
  assert.equal(code, 1, stderr);
  assert.equal(stdout, "");
  assert.match(stderr, why);
  assert.ok(!/\n {4}at /.test(stderr), "no stack trace");
}

describe("The app's command line", () => {
  let team: TestTeam;
  let id: string;
  let other: TestTeam;
  let folder: string;
  before(async () => {
    [team, other] = await Promise.all([makeTeam(), makeTeam()]);
    id = team.team.id;
    folder = await mkdtemp(join(tmpdir(), "mailkeel-app-"));
  });
  after(() => rm(folder, { recursive: true }));

  it("is a program, which exits with 1 after an error", async () => {
    const { PATH, NODE_COMPILE_CACHE } = process.env;
    const env = { PATH, NODE_COMPILE_CACHE, ...(await settings()) };
    const args = [MAIN, "credits:grant", "--team", "team_none", "--amount", "7"];
    const stderr = "error: There is no team team_none.\n";
    await assert.rejects(promisify(execFile)(process.execPath, args, { env }), { code: 1, stdout: "", stderr });
  });

  it("prints text, or one JSON object with --json", async () => {
    const { stdout } = await run(["credits:grant", "--team", id, "--amount", "5", "--cause", "text"]);
    assert.equal(stdout, "5 credits available, 0 reserved\n");
    const data = await json(["credits:grant", "--team", id, "--amount", "5", "--cause", "text"]);
    assert.deepEqual(data.credits, { available: 5, reserved: 0 }, "a cause counts once");
    await json(["credits:grant", "--team", id, "--amount", "5"]);
    const twice = await json(["credits:grant", "--team", id, "--amount", "5"]);
    assert.equal(twice.credits.available, 15, "without a cause each grant counts");
  });

  it("marks the options that a command needs in its help", async () => {
    const { code, stdout } = await run(["team:create", "--help"]);
    assert.equal(code, 0);
    const required = stdout.split("\n").filter((line) => line.endsWith("(required)"));
    const names = required.map((line) => line.trim().split(" ")[0]);
    assert.deepEqual(names, ["--name", "--owner-email", "--owner-name"]);
  });

  it("reports an error in one line and exits with 1", async () => {
    await refused(["credits:grant", "--team", "team_none", "--amount", "5"], /^error: There is no team team_none\.\n$/);
    await refused(["credits:grant", "--team", id], /--amount/);
    await refused(["credits:grant", "--team", id, "--amount", "-1"], /whole number/);
    await refused(["no:such"], /unknown command/);
    await refused(["list:attach", "--newsletter", "nl_none", "--list", "x"], /There is no newsletter nl_none\./);
  });

  it("requires a running service or its settings", async () => {
    await refused(["credits:grant", "--amount", "1"], /npm start/, { env: { DATA_DIR: folder } });
    const { SIGNING_SECRET: _, ...incomplete } = await settings();
    await refused(["credits:grant", "--amount", "1"], /SIGNING_SECRET is not set/, { env: incomplete });
    const away = { ...(await settings()), DATABASE_URL: "postgres://nobody@127.0.0.1:1/none" };
    await refused(["credits:grant", "--amount", "1", "--team", id], /ECONNREFUSED/, { env: away });
  });

  it("finds a running stack and its demo team", async () => {
    const { json: data } = await app("credits:grant", "--amount", "1", "--json");
    assert.equal(data.team, JSON.parse(await readFile(process.env["MAILKEEL_STACK"] ?? "", "utf8")).team.id);
  });

  describe("teams and members", () => {
    it("creates a team whose owner has every right at once", async () => {
      const owner = uniqueEmail("owner");
      const args = ["--name", "New team", "--owner-email", owner.toUpperCase(), "--owner-name", "Olga"];
      const made = await json(["team:create", ...args, "--time-zone", "Europe/Berlin"]);
      assert.equal(made.team.plan, "BUSINESS");
      assert.equal(made.team.time_zone, "Europe/Berlin");
      const key = await json(["key:mint", "--team", made.team.id, "--name", "k", "--scopes", "lists:write,lists:read"]);
      assert.equal((await api(key.key.secret).post("/lists", { name: "x" })).status, 201);
      const { teams } = await json(["team:list", "--limit", "10000"]);
      assert.equal(teams.find((each: Json) => each.id === made.team.id).time_zone, "Europe/Berlin");
    });

    it("accepts IANA time zones only", async () => {
      const { team: changed } = await json(["team:time-zone", "America/New_York", "--team", id]);
      assert.equal(changed.time_zone, "America/New_York");
      for (const zone of ["Mars/Olympus", "IST", "+03:00"]) {
        await refused(["team:time-zone", zone, "--team", id], /no IANA time zone/);
      }
    });

    it("adds, promotes and removes members, but not the last owner", async () => {
      const email = uniqueEmail();
      const args = ["member:add", "--team", id, "--email", email, "--name", "Max", "--role", "editor"];
      const { member } = await json(args);
      assert.equal(member.role, "EDITOR");
      await refused(args, /already a member/);
      await refused(["member:remove", "--member", team.owner.id], /last owner/);
      await refused(["member:role", "--member", team.owner.id, "--role", "ADMIN"], /last owner/);
      await json(["member:role", "--member", member.id, "--role", "OWNER"]);
      await json(["member:role", "--member", team.owner.id, "--role", "ADMIN"]);
      await json(["member:role", "--member", team.owner.id, "--role", "OWNER"]);
      const members = async () => (await json(["member:list", "--team", id])).members.map((each: Json) => each.id);
      assert.deepEqual(await members(), [team.owner.id, member.id]);
      await json(["member:remove", "--member", member.id]);
      assert.deepEqual(await members(), [team.owner.id]);
      await refused(["member:remove", "--member", member.id], /No record has this id/);
    });

    it("removes only one of two owners when both are removed at the same moment", async () => {
      const pair = await makeTeam();
      const args = ["--team", pair.team.id, "--email", uniqueEmail(), "--name", "B", "--role", "OWNER"];
      const { member } = await json(["member:add", ...args]);
      const both = [member.id, pair.owner.id].map((member) => run(["member:remove", "--member", member]));
      assert.deepEqual((await Promise.all(both)).map(({ code }) => code).sort(), [0, 1]);
    });
  });

  describe("keys", () => {
    it("mints a key with every option, but none with an unknown scope or a forbidden pair", async () => {
      const options = ["--send-domains", "Example.com,xn--mnchen-3ya.de", "--daily-cap", "7", "--requires-approval"];
      const scopes = ["--scopes", "newsletters:send,newsletters:read", "--expires", "2099-01-01T00:00:00Z"];
      const mint = ["key:mint", "--team", id, "--name", "k"];
      const { key } = await json([...mint, "--environment", "test", ...scopes, ...options]);
      assert.match(key.secret, /^mk_test_/);
      assert.deepEqual(key.send_domains, ["example.com", "münchen.de"]);
      assert.equal(key.daily_send_cap, 7);
      assert.equal(key.requires_approval, true);
      assert.equal(key.expires_at, "2099-01-01T00:00:00.000Z");
      const { key: plain } = await json([...mint, "--scopes", "lists:read"]);
      assert.equal(plain.daily_send_cap, 50_000);
      await refused([...mint, "--scopes", "lists:fly"], /lists:fly/);
      await refused([...mint, "--scopes", "suppressions:delete,newsletters:send"], /suppressions:delete/);
    });

    it("mints a key for a list of its environment, and shows the list with it", async () => {
      const list = (await api(team.keys.live).post("/lists", { name: "Readers" })).body.data.id;
      const mint = ["key:mint", "--team", id, "--name", "k", "--scopes", "newsletters:write", "--for-list"];
      const { key } = await json([...mint, list]);
      assert.equal(key.for_list, list);
      assert.deepEqual((await api(key.secret).post("/newsletters", { name: "n" })).body.data.lists, [list]);
      await refused([...mint, list, "--environment", "test"], /No list has this id/);
      const [{ keys }, { stdout }] = [await json(["key:list", "--team", id]), await run(["key:list", "--team", id])];
      assert.equal(keys[0].for_list, list);
      assert.match(stdout, new RegExp(`^${key.id} .* ${list} +newsletters:write$`, "m"));
    });

    it("rotates and revokes keys with immediate effect", async () => {
      const { key } = await json(["key:mint", "--team", id, "--name", "k", "--scopes", "lists:read"]);
      const { key: next } = await json(["key:rotate", "--team", id, "--key", key.id]);
      assert.equal((await api(key.secret).get("/me")).body.error.code, "api_key_revoked");
      assert.equal((await api(next.secret).get("/me")).status, 200);
      await json(["key:revoke", "--team", id, "--key", next.key_id]);
      const [listed, { stdout }] = [await json(["key:list", "--team", id]), await run(["key:list", "--team", id])];
      const [latest] = listed.keys;
      assert.deepEqual([latest.id, latest.state, latest.key_id], [next.id, "revoked", next.key_id]);
      assert.match(
        stdout,
        new RegExp(`^KEY .* SCOPES\\n${next.id} +${next.key_id} +k +mbr_.* revoked .* lists:read\\n`),
      );
      assert.ok(![JSON.stringify(listed), stdout].some((shown) => shown.includes(next.secret)));
      assert.equal((await api(next.secret).get("/me")).body.error.code, "api_key_revoked");
    });
  });

  describe("sending accounts", () => {
    let server: SMTPServer;
    let port: string;
    const login = { user: "", pass: "" };
    before((done) => {
      server = new SMTPServer({
        disabledCommands: ["STARTTLS"],
        allowInsecureAuth: true,
        authMethods: ["PLAIN", "LOGIN", "XOAUTH2"],
        onAuth: ({ username = "", accessToken, password = accessToken ?? "" }, _session, answer) => {
          Object.assign(login, { user: username, pass: password });
          if (password === "right") answer(null, { user: username });
          else answer(Object.assign(new Error("Wrong password"), { responseCode: 535 }));
        },
      });
      server.listen(0, "127.0.0.1", () => {
        port = String((server.server.address() as AddressInfo).port);
        done();
      });
    });
    after((done) => void server.close(done));

    const connect = (email: string) => [
      ...["account:connect", "--team", id, "--email", email, "--host", "127.0.0.1", "--port", port],
      ...["--security", "none", "--user", "me"],
    ];

    it("connects after a real login, with the password from the environment or standard input, suspends and resumes", async () => {
      const env = { ...(await settings()), SMTP_PASSWORD: "right" };
      const first = await json(connect(uniqueEmail()), { env });
      assert.equal(first.account.status, "ACTIVE");
      const second = await json([...connect(uniqueEmail()), "--password-stdin"], { input: "right\n" });
      assert.deepEqual(login, { user: "me", pass: "right" });
      const shown = await api(team.keys.live).get(`/accounts/${second.account.id}`);
      assert.equal(shown.body.data.status, "ACTIVE");
      for (const [command, status] of Object.entries({ suspend: "SUSPENDED", resume: "ACTIVE" })) {
        assert.equal((await json([`account:${command}`, "--account", second.account.id])).account.status, status);
      }
    });

    it("connects no account when the server refuses the login or does not answer", async () => {
      const email = uniqueEmail();
      await refused([...connect(email), "--password-stdin"], /login_refused/, { input: "wrong" });
      const nowhere = connect(email).map((arg) => (arg === port ? "1" : arg));
      await refused(nowhere, /connection_refused/);
      const { body } = await api(team.keys.live).get("/accounts", { query: { limit: 100 } });
      assert.ok(!body.data.some((account: Json) => account.email === email));
    });

    it("greets a server by SMTP_HELO_NAME, else by the host of PUBLIC_URL, and says so when it refuses the name", async () => {
      const names: string[] = [];
      const relay = createServer((socket) => {
        socket.write("220 relay.example ESMTP\r\n");
        createInterface(socket).on("line", (line) => {
          const [, name] = /^EHLO (.*)$/.exec(line) ?? [];
          if (name) names.push(name);
          if (name?.endsWith(".example")) socket.write("250 relay.example\r\n");
          else socket.end(name ? "421 4.7.0 Try again later, closing connection. (EHLO)\r\n" : "221 bye\r\n");
        });
      });
      const relayPort = String(await listenLocally(relay));
      try {
        const at = () => [
          ...["account:connect", "--team", id, "--email", uniqueEmail(), "--host", "127.0.0.1", "--security", "none"],
          ...["--port", relayPort],
        ];
        await refused(at(), /helo_refused.*SMTP_HELO_NAME.*421 4\.7\.0/);
        const here = { ...(await settings()), PUBLIC_URL: "https://mail.example" };
        await json(at(), { env: here });
        await json(at(), { env: { ...here, SMTP_HELO_NAME: "out.example" } });
        assert.deepEqual(names.slice(-2), ["mail.example", "out.example"]);
      } finally {
        relay.close();
      }
    });

    it("connects no account on a host or port that is not allowed", async () => {
      const closed = { ...(await settings()), SMTP_ALLOWED_HOSTS: "", SMTP_PASSWORD: "right" };
      const at = (host: string, toPort: string) =>
        connect(uniqueEmail()).map((arg) => (arg === "127.0.0.1" ? host : arg === port ? toPort : arg));
      Object.assign(login, { user: "", pass: "" });
      for (const [host, toPort] of [
        ["127.0.0.1", port],
        ["1.1.1.1", "5432"],
      ] as const) {
        await refused(at(host, toPort), /server_forbidden.*one of the ports 25, 465/, { env: closed });
      }
      const denied = { ...closed, EGRESS_DENIED_NETWORKS: "1.1.1.0/24" };
      await refused(at("1.1.1.1", "25"), /server_forbidden/, { env: denied });
      const pair = { ...closed, SMTP_ALLOWED_HOSTS: `127.0.0.1:${port}` };
      await json(connect(uniqueEmail()), { env: pair });
      assert.deepEqual(login, { user: "me", pass: "right" });
    });

    it("connects with an OAuth grant or without a login, and gives an account other credentials", async () => {
      const receiver = await openReceiver(({ body }, response) => {
        const form = new URLSearchParams(body);
        const isKnown = form.get("refresh_token") === "refresh" && form.get("client_secret") === "secret";
        response.writeHead(isKnown ? 200 : 400);
        response.end(JSON.stringify(isKnown ? { access_token: "right", expires_in: 60 } : { error: "invalid_grant" }));
      });
      try {
        const base = { ...(await settings()), WEBHOOK_ALLOWED_HOSTS: new URL(receiver.origin).host };
        const oauth = ["--oauth-client-id", "client", "--oauth-token-url", `${receiver.origin}/token`];
        const given = { ...base, OAUTH_REFRESH_TOKEN: "refresh", OAUTH_CLIENT_SECRET: "secret" };
        const { account } = await json([...connect(uniqueEmail()), ...oauth], { env: given });
        assert.equal(account.status, "ACTIVE");
        assert.deepEqual(login, { user: "me", pass: "right" });

        const pending = await json([...connect(uniqueEmail()), "--pending", "--password-stdin"], { input: "wrong" });
        assert.equal(pending.account.status, "PENDING");
        const change = ["account:credentials", "--account", pending.account.id, "--user", "me"];
        await refused([...change, ...oauth, "--oauth-stdin"], /access_revoked/, { env: base, input: "old\nsecret\n" });
        const changed = await json([...change, ...oauth, "--oauth-stdin"], { env: base, input: "refresh\nsecret\n" });
        assert.equal(changed.account.status, "ACTIVE");
        await refused([...change, ...oauth], /OAUTH_REFRESH_TOKEN/, { env: base });
        const inside = [...change, "--oauth-client-id", "client", "--oauth-token-url", "https://10.0.0.1/token"];
        await refused(inside, /not on the public Internet/, { env: given });
      } finally {
        await receiver.close();
      }
    });
  });

  describe("newsletters", () => {
    it("attaches lists of the same team, detaches them and sets send days, for drafts only", async () => {
      const client = api(team.keys.live);
      const list = (await client.post("/lists", { name: "x" })).body.data.id;
      const draft = (await client.post("/newsletters", { name: "x" })).body.data.id;
      const read = async () => (await client.get(`/newsletters/${draft}`)).body.data;
      const pair = ["--newsletter", draft, "--list", list];
      await json(["list:attach", ...pair]);
      await json(["list:attach", ...pair]);
      assert.deepEqual((await read()).lists, [list]);
      await json(["list:detach", ...pair]);
      assert.deepEqual((await read()).lists, []);
      await refused(["list:detach", ...pair], /No record has this id/);
      const others = (await api(other.keys.live).post("/lists", { name: "x" })).body.data.id;
      await refused(["list:attach", "--newsletter", draft, "--list", others], /No record has this id/);
      await json(["newsletter:send-days", "--newsletter", draft, "--days", "fri,1,Tuesday"]);
      assert.deepEqual((await read()).send_days, [1, 2, 5]);
      await json(["newsletter:send-days", "--newsletter", draft, "--days", "any"]);
      assert.deepEqual((await read()).send_days, []);
      await refused(["newsletter:send-days", "--newsletter", draft, "--days", "someday"], /no weekday/);
      await team.em.fork().execute("update newsletters set status = 'SENDING' where id = ?", [draft]);
      await refused(["list:attach", ...pair], /only a draft/);
    });

    it("records a complaint once per address and newsletter", async () => {
      const mail = await mailLetter(team);
      const args = ["complaint:record", "--newsletter", mail.newsletterId, "--email", mail.email.toUpperCase()];
      assert.equal((await json(args)).recorded, true);
      assert.equal((await json(args)).recorded, false);
      const overview = await api(team.keys.live).get("/analytics/overview");
      assert.deepEqual([overview.body.data.totals.complained, overview.body.data.totals.sent], [1, 0]);
      const { body } = await api(team.keys.live).get(`/suppressions/${encodeURIComponent(mail.email)}`);
      assert.equal(body.data.reason, "bounce:complaint");
      await refused([...args.slice(0, 4), uniqueEmail()], /not sent to this address/);
      await refused(["complaint:record", "--email", uniqueEmail()], /--newsletter.*--campaign/);
      await refused([...args, "--campaign", "cmp_x"], /--newsletter.*--campaign/);

      const withdraw = ["complaint:withdraw", ...args.slice(1), "--reason", "forged"];
      assert.equal((await json(withdraw)).withdrawn, true);
      assert.equal((await json(withdraw)).withdrawn, false);
      assert.equal((await json(args)).recorded, false, "the same complaint does not count again");
      assert.equal((await api(team.keys.live).get("/analytics/overview")).body.data.totals.complained, 0);
      const other = await mailLetter(team);
      const ofOther = ["--newsletter", other.newsletterId, "--email", other.email, "--reason", "forged"];
      await refused(["complaint:withdraw", ...ofOther], /No complaint of this address counts/);
    });
  });

  it("adds, changes, lists and removes the webhooks of providers", async () => {
    const topic = "arn:aws:sns:eu-west-1:123456789012:reports";
    const [ses] = (await json(["provider:add", "--provider", "ses", "--team", id])).sources;
    assert.deepEqual([ses.provider, ses.topic, ses.public_key], ["SES", null, null]);
    assert.match(ses.path, /^\/hooks\/ses\/[0-9a-z]{26}\.[\w-]{43}$/);
    const changed = await json(["provider:set", "--source", ses.id, "--topic", topic]);
    assert.deepEqual(changed.sources, [{ ...ses, topic }]);
    await refused(["provider:set", "--source", ses.id, "--topic", "reports"], /ARN of an SNS topic/);
    await refused(["provider:set", "--source", ses.id, "--public-key", "x"], /P-256/);
    await refused(["provider:add", "--provider", "mandrill", "--team", id], /It is one of: SES, SENDGRID, POSTMARK/);
    const added = await json(["provider:add", "--provider", "sendgrid", "--team", id]);
    assert.deepEqual((await json(["provider:list", "--team", id])).sources, [...changed.sources, ...added.sources]);
    await json(["provider:remove", "--source", ses.id]);
    assert.deepEqual((await json(["provider:list", "--team", id])).sources, added.sources);
    await refused(["provider:remove", "--source", ses.id], /There is no provider \w+: see provider:list\./);
  });

  it("adds a provider's webhook with the password to enter there, or with the key that signs its requests", async () => {
    const [postmark] = (await json(["provider:add", "--provider", "postmark", "--team", id])).sources;
    assert.match(postmark.path, /^\/hooks\/postmark\//);
    assert.match(postmark.password, /^[\w-]{43}$/);
    await refused(["provider:set", "--source", postmark.id, "--topic", "x"], /SNS topic, of a webhook of Amazon SES\./);

    const key = "0123456789abcdef0123456789abcdef";
    const env = { ...(await settings()), PROVIDER_SIGNING_KEY: key };
    const add = await runApp(["provider:add", "--provider", "mailgun", "--team", id, "--json"], { env });
    const [mailgun] = JSON.parse(add.stdout).sources;
    assert.deepEqual([mailgun.has_signing_key, mailgun.password], [true, null]);
    assert.ok(!add.stdout.includes(key));
    const withInput = { env: await settings(), input: "whsec_no base64\n" };
    const set = await runApp(["provider:set", "--source", mailgun.id, "--signing-key-stdin"], withInput);
    assert.match(set.stderr, /signing key is the provider's own, of a webhook of Mailgun or Resend\./);
    assert.ok(!set.stderr.includes("whsec"));
    for (const { id: source } of [postmark, mailgun]) await json(["provider:remove", "--source", source]);
  });

  describe("campaigns", () => {
    it("attaches a segment and accounts of the same team, in their order, and sets send days, for drafts only", async () => {
      const client = api(team.keys.live);
      const draft = (await client.post("/campaigns", { name: "x" })).body.data.id;
      const read = async () => (await client.get(`/campaigns/${draft}`)).body.data;
      const segment = await addSegment(team);
      const accounts = [
        await addAccount(team, { email: uniqueEmail() }),
        await addAccount(team, { email: uniqueEmail() }),
      ];
      await json(["campaign:attach-segment", "--campaign", draft, "--segment", segment]);
      const attach = (ids: string) => ["campaign:attach-accounts", "--campaign", draft, "--accounts", ids];
      for (const ids of [accounts, accounts.toReversed(), []]) {
        assert.deepEqual((await json(attach(ids.join(",")))).accounts, ids);
        const { segment_id, account_ids } = await read();
        assert.deepEqual([segment_id, account_ids], [segment, ids]);
      }
      for (const account of ["acct_none", await addAccount(other, { email: uniqueEmail() })]) {
        await refused(attach(`${accounts[0]},${account}`), new RegExp(`no sending account ${account}`));
      }
      const others = ["campaign:attach-segment", "--campaign", draft, "--segment", await addSegment(other)];
      await refused(others, /No record has this id/);
      await refused(attach(Array.from({ length: 21 }, (_, i) => `acct_${i}`).join(",")), /at most 20/);
      await json(["campaign:send-days", "--campaign", draft, "--days", "fri,1"]);
      assert.deepEqual((await read()).send_days, [1, 5]);
      await team.em.fork().execute("update campaigns set status = 'SENDING' where id = ?", [draft]);
      await refused(attach(accounts.join(",")), /only a draft/);
      await refused(["campaign:attach-segment", "--campaign", draft, "--segment", segment], /only a draft/);
    });

    it("gives nothing a name that the API would refuse, and removes the spaces around one", async () => {
      for (const name of ["", "  ", "two\nlines", "x".repeat(201)]) {
        await refused(["campaign:create", "--name", name, "--team", id], /one line and 1 to 200 characters/);
      }
      const owner = ["--owner-email", uniqueEmail(), "--owner-name", "Olga"];
      for (const command of [
        ["team:create", "--name", "", ...owner],
        ["team:create", "--name", "Team", ...owner.slice(0, 3), "two\nlines"],
        ["member:add", "--name", "", "--team", id, "--email", uniqueEmail(), "--role", "OWNER"],
        ["key:mint", "--name", "", "--team", id, "--scopes", "lists:read"],
        ["webhook:connect", "--name", "", "--team", id, "--url", "https://example.com/hooks", "--event", "*"],
      ]) {
        await refused(command, /one line and 1 to 200 characters/);
      }
      const { campaign } = await json(["campaign:create", "--name", " Spring ", "--team", id]);
      const { name, status } = (await api(team.keys.live).get(`/campaigns/${campaign}`)).body.data;
      assert.deepEqual([name, status], ["Spring", "DRAFT"]);
    });
  });

  it("shows what a team keeps of a person, erases it when that is confirmed, and readmits the address", async () => {
    const { team, keys } = await makeTeam();
    const client = api(keys.live);
    const email = uniqueEmail("erased");
    const { id } = (await client.post("/contacts", { email })).body.data;
    const options = [email.toUpperCase(), "--team", team.id];

    const shown = await run(["person:erase", ...options]);
    assert.equal(shown.code, 0, shown.stderr);
    assert.match(shown.stdout, /^LIVE:\n {2}contacts: 1 to be deleted\nTEST:\n {2}No row .*\nNothing was changed/);
    assert.equal((await client.get(`/contacts/${id}`)).status, 200);

    const erased = await json(["person:erase", ...options, "--environment", "live", "--confirm"]);
    assert.deepEqual(erased, {
      erased: true,
      environments: [
        {
          team: team.id,
          environment: "LIVE",
          was_erased: false,
          rows: [{ table: "contacts", action: "deleted", rows: 1 }],
          mentions: [],
        },
      ],
    });
    assert.equal((await client.get(`/contacts/${id}`)).status, 404);
    assert.equal((await client.post("/contacts", { email })).body.error.code, "person_erased");

    assert.deepEqual(await json(["person:readmit", ...options]), { readmitted: ["LIVE"] });
    assert.equal((await client.post("/contacts", { email })).status, 201);
    await refused(["person:erase", "nobody", "--team", team.id], /is not an email address/);
  });

  it("imports standard input into a list, and reports refused lines", async () => {
    const list = (await api(team.keys.live).post("/lists", { name: "x" })).body.data.id;
    const report = join(folder, "refused.csv");
    const input = `email,first_name,zip\n${uniqueEmail()},Zoë,1\nnobody,x,2\n`;
    const args = ["import", "-", "--team", id, "--list", list];
    const data = await json([...args, "--report", report], { input });
    assert.deepEqual([data.rows, data.created, data.refused, data.list.added], [2, 1, 1, 1]);
    assert.deepEqual(data.ignored_columns, ["zip"]);
    assert.equal(await readFile(report, "utf8"), "line,reason\r\n3,email is not an email address\r\n");
    const again = await run(args, { input });
    assert.match(again.stdout, /0 created, 0 updated, 1 unchanged, 0 repeated, 1 refused/);
    assert.equal(again.stderr, "line 3: email is not an email address\n");
  });
});

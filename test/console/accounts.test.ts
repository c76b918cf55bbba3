import assert from "node:assert/strict";
import { commandEndpoint } from "../../domain/webhooks/commands.ts";
import { accept, makeLedger, report } from "../analytics/ledger.ts";
import { clientAs, type consoleClient, refusalCodeOf } from "../support/console.ts";
import { makeTeam, type TestTeam, unique, uniqueEmail } from "../support/factories.ts";
import { makeSender, setFaults } from "../support/sending.ts";
import { stack } from "../support/stack.ts";
import { insertAppEndpoint, insertDelivery } from "../support/webhooks.ts";

const SECRET = "correct horse battery staple";

type Client = Awaited<ReturnType<typeof consoleClient>>;

const refusalOf = (call: Promise<unknown>) =>
  call.then(
    () => assert.fail("answered"),
    ({ message, data }) => ({ message: String(message), param: data?.param }),
  );

describe("Sending accounts in the console", () => {
  let team: TestTeam;
  let admin: Client;
  before(async () => {
    team = await makeTeam();
    admin = await clientAs(team, "ADMIN");
  });

  /** One of the mail catcher. */
  async function fields(username: string | null = null) {
    const { hostname, port } = new URL((await stack()).mail.smtp);
    const server = { host: hostname, port: Number(port), security: "none" as const, provider: "SMTP_OTHER" as const };
    const limits = { max_connections: 3, hourly_limit: 50, daily_limit: null };
    return { email: uniqueEmail("news"), ...server, ...limits, username, password: username && SECRET };
  }
  const connect = async () => (await admin.app.accounts.connect.mutate({ body: await fields("login") })).data;

  it("show the days of the mails whose last send they carried, and whether others carried a part", async () => {
    const [own, others] = [await makeLedger(team, 4), await makeLedger(team, 2)];
    const { id: accountId } = await connect();
    const carry = (sendId: string, account: string) =>
      team.em.execute("insert into send_lanes (send_id, account_id) values (?, ?)", [sendId, account]);
    await carry(own.sendId, accountId);
    await carry(others.sendId, "acc_other");
    const [today, before] = [0, 40].map((days) => new Date(Date.now() - days * 86_400_000).toISOString());
    await accept(team.em, own, [1, 2, 3], today ?? "");
    await accept(team.em, own, [4], before ?? "");
    await report(team.em, own, [1], ["bounce:hard"], today ?? "");
    await accept(team.em, others, [1, 2], today ?? "");
    const viewer = await clientAs(team, "VIEWER");
    const read = async () => (await viewer.app.accounts.health.query({ params: { accountId } })).data;
    const { days, rates, is_shared } = await read();
    assert.deepEqual([days.length, days.at(-1)?.sent, days.at(-1)?.bounced_hard], [30, 3, 1]);
    assert.deepEqual([rates.bounced, is_shared], [1 / 3, false]);
    await carry(own.sendId, "acc_other");
    assert.equal((await read()).is_shared, true);
  });

  it("are connected once a login works, shown with what is used of their limits, and never with a secret", async () => {
    const { id, status } = await connect();
    assert.equal(status, "ACTIVE");
    const viewer = await clientAs(team, "VIEWER");
    const listed = (await viewer.app.accounts.list.query({})).data.find((account) => account.id === id);
    assert.deepEqual([listed?.hour, listed?.day, listed?.refused], [{ used: 0, limit: 50 }, null, null]);
    const shown = (await viewer.app.accounts.show.query({ params: { accountId: id } })).data;
    assert.deepEqual([shown.login, shown.max_connections], ["password", 3]);
    assert.ok(!JSON.stringify([listed, shown]).includes(SECRET));
    assert.equal(
      await refusalCodeOf(viewer.app.accounts.connect.mutate({ body: await fields() })),
      "role_insufficient",
    );
  });

  it("are refused in words beside the field when the login fails, and nothing is kept", async () => {
    const body = await fields(unique("wrong"));
    await setFaults(
      [{ stage: "auth", match: body.username ?? "", code: 535, message: "Bad credentials" }],
      body.username ?? "",
    );
    const { message, param } = await refusalOf(admin.app.accounts.connect.mutate({ body }));
    assert.equal(param, "password");
    assert.match(message, /^The server refused the user name or the password\./);
    assert.ok(!message.includes(SECRET));
    const refused = await refusalOf(admin.app.accounts.connect.mutate({ body: { ...body, host: "10.1.2.3" } }));
    assert.equal(refused.param, "host");
    const accounts = (await admin.app.accounts.list.query({})).data;
    assert.ok(!accounts.some(({ email }) => email === body.email));
    const oauth = { ...body, client_id: "client", token_url: "http://example.com/token" };
    assert.equal((await refusalOf(admin.app.accounts.connect.mutate({ body: oauth }))).param, "refresh_token");
    await setFaults([], body.username ?? "");
  });

  it("are changed, suspended, resumed, given other credentials and disconnected", async () => {
    const params = { accountId: (await connect()).id };
    assert.equal((await admin.app.accounts.suspend.mutate({ params })).data.status, "SUSPENDED");
    assert.equal((await admin.app.accounts.resume.mutate({ params })).data.status, "ACTIVE");
    const { host, port, security } = await fields();
    const credentials = { host, port, security, username: "other", password: SECRET };
    assert.equal((await admin.app.accounts.setCredentials.mutate({ params, body: credentials })).data.status, "ACTIVE");
    const limits = { max_connections: 4, hourly_limit: null, daily_limit: 9 };
    await admin.app.accounts.update.mutate({ params, body: limits });
    // The stored login would be told to a server that any ADMIN names.
    const moved = { ...limits, host: "smtp.example.com" };
    assert.equal(await refusalCodeOf(admin.app.accounts.update.mutate({ params, body: moved })), "validation_failed");
    assert.equal((await admin.app.accounts.show.query({ params })).data.daily_limit, 9);
    assert.deepEqual((await admin.app.accounts.uses.query({ params })).data, { uses: [], refusal: null });
    await admin.app.accounts.disconnect.mutate({ params });
    assert.equal(await refusalCodeOf(admin.app.accounts.show.query({ params })), "not_found");
  });

  it("name the drafts that need them before they are disconnected", async () => {
    const sender = await makeSender({ recipients: 1 });
    const client = await clientAs(sender, "ADMIN");
    const params = { accountId: sender.accountId };
    const { uses, refusal } = (await client.app.accounts.uses.query({ params })).data;
    const draft = { id: sender.newsletterId, kind: "newsletter", name: "Issue one", status: "DRAFT" };
    assert.deepEqual(uses, [draft]);
    assert.match(refusal ?? "", /No other ACTIVE account can mail nl_/);
    assert.equal(await refusalCodeOf(client.app.accounts.disconnect.mutate({ params })), "resource_state_invalid");
  });

  it("have beside them the webhook endpoints, whose waiting deliveries are attempted at once", async () => {
    const webhookId = await insertAppEndpoint(team);
    await commandEndpoint(team.em.fork(), webhookId, "pause");
    const tomorrow = new Date(Date.now() + 86_400_000);
    const { id } = await insertDelivery(team, webhookId, { status: "RETRYING", next_attempt_at: tomorrow });
    const { webhooks } = admin.app.accounts;
    const retry = { params: { webhookId } };
    assert.equal((await webhooks.retry.mutate(retry)).data.retried, 1);
    assert.equal((await webhooks.retry.mutate(retry)).data.retried, 0);
    const { data } = await webhooks.body.query({ params: { webhookId, deliveryId: id } });
    assert.deepEqual(JSON.parse(data.body ?? "").data, { object: {} });
  });

  it("have no dry run that would wait for a server in a transaction", async () => {
    const call = admin.app.accounts.connect.mutate({ body: await fields() }, { context: { dryRun: true } });
    assert.equal(await refusalCodeOf(call), "unsupported_parameter");
  });
});

describe("Providers in the console", () => {
  it("are added with the address to paste, which holds its password or waits for a signing key, and removed", async () => {
    const team = await makeTeam();
    const admin = await clientAs(team, "ADMIN");
    const { providers } = admin.app.accounts;
    const listed = async () => (await providers.list.query({})).data.sources;
    await providers.add.mutate({ body: { provider: "BREVO" } });
    const [brevo] = await listed();
    assert.ok(brevo);
    const url = new URL(brevo.url);
    assert.deepEqual([url.username, url.password, brevo.is_ready], ["mailkeel", brevo.password, true]);
    const statusOf = async (authorization: string) => {
      const target = `${(await stack()).origin}${url.pathname}`;
      return (await fetch(target, { method: "POST", body: "{}", headers: { authorization } })).status;
    };
    const basic = `Basic ${Buffer.from(`${url.username}:${url.password}`).toString("base64")}`;
    assert.deepEqual([await statusOf(basic), await statusOf("Basic x")], [200, 401]);
    await providers.remove.mutate({ params: { sourceId: brevo.id } });
    assert.equal(await statusOf(basic), 401);

    const { id } = (await providers.add.mutate({ body: { provider: "RESEND" } })).data;
    const params = { sourceId: id };
    assert.deepEqual(
      (await listed()).map(({ is_ready, password }) => [is_ready, password]),
      [[false, undefined]],
    );
    const wrong = providers.change.mutate({ params, body: { signing_key: "re_a key of the API" } });
    assert.match((await refusalOf(wrong)).message, /signing key is the provider's own/);
    const signingKey = `whsec_${Buffer.from(SECRET).toString("base64")}`;
    await providers.change.mutate({ params, body: { signing_key: signingKey } });
    const shown = await listed();
    assert.deepEqual(
      shown.map(({ is_ready }) => is_ready),
      [true],
    );
    assert.ok(!JSON.stringify(shown).includes(signingKey));
    const viewer = await clientAs(team, "VIEWER");
    assert.equal(await refusalCodeOf(viewer.app.accounts.providers.list.query({})), "role_insufficient");
  });
});

describe("Sending domains in the console", () => {
  it("get a key and its records, sign, and lose it", async () => {
    const team = await makeTeam();
    const admin = await clientAs(team, "ADMIN");
    const { domains } = admin.app.accounts;
    const domain = `${unique("news")}.invalid`;
    const key = (await domains.addKey.mutate({ body: { domain, is_first: true } })).data;
    assert.equal(
      await refusalCodeOf(domains.addKey.mutate({ body: { domain, is_first: true } })),
      "resource_already_exists",
    );
    const { data } = await domains.list.query({});
    const records = data.domains.map(({ records, ...each }) => [each.domain, records.map(({ purpose }) => purpose)]);
    assert.deepEqual(records, [[domain, ["DKIM", "DMARC"]]]);
    const checks = (await domains.check.mutate({ body: { domain } })).data;
    assert.deepEqual(new Set(checks.map(({ state }) => state === "ok")), new Set([false]));
    const params = { keyId: key.id };
    assert.equal(await refusalCodeOf(domains.activate.mutate({ params, body: {} })), "resource_state_invalid");
    assert.equal((await domains.activate.mutate({ params, body: { unchecked: true } })).data.use, "signing");
    assert.equal(await refusalCodeOf(domains.remove.mutate({ params, body: {} })), "resource_state_invalid");
    await domains.remove.mutate({ params, body: { force: true } });
    assert.deepEqual((await domains.list.query({})).data.domains, []);
    const viewer = await clientAs(team, "VIEWER");
    const adding = viewer.app.accounts.domains.addKey.mutate({ body: { domain, is_first: true } });
    assert.equal(await refusalCodeOf(adding), "role_insufficient");
  });
});

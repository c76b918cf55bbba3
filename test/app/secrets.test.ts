import assert from "node:assert/strict";
import { appRouter } from "../../api/router.ts";
import { formatKeys } from "../../config/env.ts";
import { forTenant } from "../../db/orm.ts";
import { connectAccount } from "../../domain/accounts/accounts.ts";
import { accessTokenOf } from "../../domain/accounts/tokens.ts";
import { addSource, signingKeyOf } from "../../domain/reports/source.ts";
import { openVault, sealContext } from "../../domain/secrets/crypto.ts";
import { sealedColumns } from "../../domain/secrets/sealed.ts";
import { activateKey, addKey, openKey, signingKeys } from "../../domain/sending-domains/keys.ts";
import { rotateSecret } from "../../domain/webhooks/rotate.ts";
import { openHeaders, openSecret } from "../../domain/webhooks/secrets.ts";
import { api, type Json } from "../support/api.ts";
import { serveRoutes } from "../support/app.ts";
import { runApp } from "../support/command.ts";
import { backdoor, uniqueEmail } from "../support/factories.ts";
import { type Keys, makeClient, makeDatabase, newKey, type OwnDatabase, settingsOf } from "../support/own-database.ts";

const RECEIVER = "127.0.0.1:9";
const ACCESS_TOKEN = "an-access-token";
const PASSWORD = "the password of the account";
const SIGNING_KEY = "0123456789abcdef-of-mailgun";
const HEADERS = { "x-token": "a header's credential" };

describe("Rotating the secrets by the command line", () => {
  let database: OwnDatabase;
  let keys: Keys;
  const running: { close(): Promise<void> }[] = [];
  beforeEach(async () => {
    database = await makeDatabase();
    keys = { signing: [newKey("k1")], encryption: [newKey("e1")] };
  });
  afterEach(async () => {
    await Promise.all(running.splice(0).map((app) => app.close()));
    await database.drop();
  });

  const start = async ({ signing, encryption }: Keys) => {
    const settings = { DATABASE_URL: database.url, SIGNING_SECRET: signing, ENCRYPTION_KEYS: encryption };
    const app = await serveRoutes(appRouter, { changes: { ...settings, WEBHOOK_ALLOWED_HOSTS: [RECEIVER] } });
    running.push(app);
    return app;
  };
  const command = (given: Keys, ...args: string[]) => runApp([...args, "--json"], { env: settingsOf(database, given) });
  async function json(given: Keys, ...args: string[]): Promise<Json> {
    const { code, stdout, stderr } = await command(given, ...args);
    assert.equal(code, 0, stderr);
    return JSON.parse(stdout);
  }
  async function refused(why: RegExp, given: Keys, ...args: string[]): Promise<void> {
    const { code, stderr } = await command(given, ...args);
    assert.equal(code, 1, stderr);
    assert.match(stderr, why);
  }
  const stateOf = ({ keys: states }: Json, setting: string, id: string): Json =>
    states.find((each: Json) => each.setting === setting && each.id === id);
  const sealedKeyIds = async (): Promise<string[]> => {
    const ids: string[] = [];
    for (const { table, column } of sealedColumns(database.orm.em)) {
      const rows = await database.orm.em
        .fork()
        .execute<{ sealed: string }[]>(`select ${column} as sealed from ${table} where ${column} is not null`);
      ids.push(...rows.map(({ sealed }) => sealed.split(".")[0] ?? ""));
    }
    return ids;
  };

  /** A client with one text in every sealed column. */
  async function makeSealed() {
    const client = await makeClient(database, keys, ["webhooks:read", "webhooks:write", "lists:read"]);
    const first = await start(keys);
    const register = (base: string, key = client.key) =>
      api(key, base).post(
        "/webhooks",
        { name: "Hook", url: `http://${RECEIVER}/hook`, events: ["newsletter.started"], headers: HEADERS },
        { idempotencyKey: "register" },
      );
    const registered = await register(first.base);
    assert.equal(registered.status, 201, registered.text);
    const vault = openVault({ SIGNING_SECRET: keys.signing, ENCRYPTION_KEYS: keys.encryption });
    const em = forTenant(database.orm.em, client.tenant);
    const webhookId: string = registered.body.data.id;
    const { secret } = await rotateSecret(em, vault, client.tenant, webhookId, 24);
    const account = await connectAccount(
      em,
      client.tenant,
      {
        ...{ email: uniqueEmail(), displayName: "Account", provider: "SMTP_OTHER", allowedDomains: [] },
        ...{ host: "127.0.0.1", port: 25, security: "none", username: "user", password: PASSWORD },
        grant: { tokenUrl: "https://provider.example/", clientId: "client", clientSecret: null, refreshToken: "r" },
        ...{ maxConnections: 1, hourlyLimit: null, dailyLimit: null },
      },
      {
        vault,
        verify: async () => ({ ok: true }),
        postForm: async () => ({ status: 200, text: JSON.stringify({ access_token: ACCESS_TOKEN }) }),
      },
    );
    const dkim = { domain: "example.com", algorithm: "ed25519", isFirst: true } as const;
    const { id: dkimKeyId } = await addKey(em, client.tenant, vault, dkim);
    await activateKey(em, client.tenant, dkimKeyId);
    const source = await addSource(em, vault, client.tenant, "MAILGUN", { signingKey: SIGNING_KEY });
    return { client, register, registered, webhookId, secret, accountId: account.id, source };
  }

  it("re-encrypts everything that the old key sealed, and says when that key may go", async () => {
    const { client, register, registered, webhookId, secret, accountId, source } = await makeSealed();
    const [old, fresh] = [...keys.encryption, newKey("e2")];
    assert.ok(old && fresh);
    const sealed = await sealedKeyIds();
    assert.deepEqual([sealed.length, new Set(sealed)], [sealedColumns(database.orm.em).length, new Set(["e1"])]);

    await json({ ...keys, encryption: [old, fresh] }, "secrets:status");
    const turned = { ...keys, encryption: [fresh, old] };
    const before = await json(turned, "secrets:status");
    assert.match(stateOf(before, "ENCRYPTION_KEYS", "e1").needed_for, new RegExp(`^${sealed.length} stored texts`));
    assert.equal(stateOf(before, "ENCRYPTION_KEYS", "e2").first, true);
    await refused(/e1 of ENCRYPTION_KEYS is needed/, turned, "secrets:retire", "ENCRYPTION_KEYS", "e1");
    await refused(/e2 of ENCRYPTION_KEYS is needed/, turned, "secrets:retire", "ENCRYPTION_KEYS", "e2", "--force");
    const early = ["secrets:retire", "ENCRYPTION_KEYS", "e1", "--force"];
    await refused(/e1 of ENCRYPTION_KEYS opens stored texts. Run secrets:reencrypt first/, turned, ...early);

    const report = await json(turned, "secrets:reencrypt");
    assert.deepEqual([report.reencrypted, report.unreadable], [sealed.length, []]);
    assert.equal(stateOf(report, "ENCRYPTION_KEYS", "e1").needed_for, null);
    assert.deepEqual(new Set(await sealedKeyIds()), new Set(["e2"]));
    assert.equal((await json(turned, "secrets:reencrypt")).reencrypted, 0);

    const alone = { ...keys, encryption: [fresh] };
    await refused(/ENCRYPTION_KEYS: the key e1 is missing/, alone, "secrets:status");
    await json(turned, "secrets:retire", "ENCRYPTION_KEYS", "e1");
    const { retired_at } = stateOf(await json(turned, "secrets:status"), "ENCRYPTION_KEYS", "e1");
    assert.ok(retired_at, "a process that still has it starts, and it stays retired");
    await refused(/e1 is retired/, { ...keys, encryption: [old, fresh] }, "secrets:status");
    assert.deepEqual(stateOf(await json(alone, "secrets:status"), "ENCRYPTION_KEYS", "e1").retired_at, retired_at);

    const { base } = await start(alone);
    const replayed = await register(base);
    assert.deepEqual([replayed.status, replayed.body], [registered.status, registered.body], "a replay is as before");
    assert.equal((await api(client.key, base).get("/lists")).status, 200, "API keys stay valid");
    const vault = openVault({ SIGNING_SECRET: keys.signing, ENCRYPTION_KEYS: [fresh] });
    const em = database.orm.em.fork();
    const row = async (table: string, column: string, id: string) =>
      (await em.execute<Record<string, string>[]>(`select * from ${table} where ${column} = ?`, [id]))[0] ?? {};
    const endpoint = await row("webhook_endpoints", "id", webhookId);
    assert.equal(openSecret(vault, webhookId, endpoint["encrypted_secret"] ?? ""), secret);
    const previous = openSecret(vault, webhookId, endpoint["previous_encrypted_secret"] ?? "");
    assert.equal(previous, registered.body.data.secret);
    assert.deepEqual(openHeaders(vault, webhookId, endpoint["encrypted_headers"] ?? ""), HEADERS);
    const { encrypted_password = "" } = await row("email_accounts", "id", accountId);
    assert.equal(
      vault.decrypt(encrypted_password, sealContext("email_accounts", "encrypted_password", accountId)),
      PASSWORD,
    );
    const [dkimKey] = await signingKeys(em, client.tenant, "example.com");
    assert.ok(dkimKey && openKey(vault, dkimKey).privateKey);
    const postForm = () => Promise.reject(new Error("the token lives"));
    assert.equal(await accessTokenOf(em, accountId, { vault, postForm }), ACCESS_TOKEN);
    const { encrypted_grant = "" } = await row("account_grants", "account_id", accountId);
    assert.equal(
      JSON.parse(vault.decrypt(encrypted_grant, sealContext("account_grants", "encrypted_grant", accountId)))
        .refreshToken,
      "r",
    );
    const { encrypted_signing_key: encryptedSigningKey = null } = await row("report_sources", "id", source.id);
    assert.equal(signingKeyOf(vault, { id: source.id, encryptedSigningKey }), SIGNING_KEY);
  });

  it("names texts that no key opens, and re-encrypts the others", async () => {
    const { webhookId } = await makeSealed();
    const [old, fresh] = [...keys.encryption, newKey("e2")];
    assert.ok(old && fresh);
    await database.orm.em.fork().execute("update webhook_endpoints set encrypted_headers = 'gone.a.b.c'");
    await json({ ...keys, encryption: [old, fresh] }, "secrets:status");
    const report = await json({ ...keys, encryption: [fresh, old] }, "secrets:reencrypt");
    assert.deepEqual(report.unreadable, [`webhook_endpoints encrypted_headers ${webhookId}`]);
    assert.equal(report.reencrypted, sealedColumns(database.orm.em).length - 1);
  });

  it("keeps a signing secret for LEDGER_DAYS after the next one took over, unless it is forced", async () => {
    await makeClient(database, keys);
    const [old, fresh] = [...keys.signing, newKey("k2")];
    assert.ok(old && fresh);
    await json({ ...keys, signing: [old, fresh] }, "secrets:status");
    const turned = { ...keys, signing: [fresh, old] };
    const status = await json(turned, "secrets:status");
    assert.match(stateOf(status, "SIGNING_SECRET", "k1").needed_for, /^links in mails, until \d{4}-/);
    await refused(/k1 of SIGNING_SECRET is needed: links/, turned, "secrets:retire", "SIGNING_SECRET", "k1");

    const em = database.orm.em.fork();
    await em.execute("update secret_fingerprints set used_since = used_since - interval '401 days'");
    assert.equal(stateOf(await json(turned, "secrets:status"), "SIGNING_SECRET", "k1").needed_for, null);
    await em.execute("update secret_fingerprints set used_since = used_since + interval '2 days'");
    await json(turned, "secrets:retire", "SIGNING_SECRET", "k1", "--force");
    await json({ ...keys, signing: [fresh] }, "secrets:status");
  });

  it("starts anew with another key when one is lost", async () => {
    const { client } = await makeSealed();
    const lost = { ...keys, encryption: [newKey("e2")] };
    await refused(/ENCRYPTION_KEYS: the key e1 is missing/, lost, "secrets:status");
    const { retired } = await json(lost, "secrets:retire", "ENCRYPTION_KEYS", "e1", "--force");
    assert.equal(retired.hashes_lost, true);
    const { base } = await start(lost);
    assert.equal((await api(client.key, base).get("/lists")).body.error.code, "api_key_invalid");
    const another = await makeClient(database, lost);
    assert.equal((await api(another.key, base).get("/lists")).status, 200);
  });

  for (const setting of ["SIGNING_SECRET", "ENCRYPTION_KEYS"]) {
    it(`refuses two keys of ${setting} under one id`, async () => {
      const env = { ...settingsOf(database, keys), [setting]: formatKeys([newKey("k1"), newKey("k1")]) };
      const { code, stderr } = await runApp(["secrets:status"], { env });
      assert.equal(code, 1);
      assert.match(stderr, new RegExp(`${setting} gives the same id to two keys`));
    });
  }
});

describe("The sealed columns", () => {
  it("are all columns of the database whose name says that they are encrypted", async () => {
    const { orm } = await backdoor();
    const rows = await orm.em.fork().execute<{ name: string }[]>(
      `select table_name || ' ' || column_name as name from information_schema.columns
       where table_schema = 'public' and column_name like '%encrypted%'`,
    );
    const known = sealedColumns(orm.em).map(({ table, column }) => `${table} ${column}`);
    assert.deepEqual(
      rows.map(({ name }) => name).filter((name) => !known.includes(name)),
      [],
    );
  });
});

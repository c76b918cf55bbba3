import assert from "node:assert/strict";
import type { Tenant } from "../../db/orm.ts";
import {
  AccountCheckError,
  type AccountFields,
  connectAccount,
  resumeAccount,
  type SmtpLogin,
  suspendAccount,
} from "../../domain/accounts/accounts.ts";
import { ApiError } from "../../domain/errors.ts";
import { sealContext } from "../../domain/secrets/crypto.ts";
import { api, type Json } from "../support/api.ts";
import { makeTeam, type TestTeam, uniqueEmail } from "../support/factories.ts";

const SECRET = "correct horse battery staple";

const fields = (more: Partial<AccountFields> = {}): AccountFields => ({
  email: uniqueEmail("sender"),
  displayName: "News",
  provider: "SMTP_OTHER",
  allowedDomains: [],
  host: "smtp.example.com",
  port: 587,
  security: "starttls",
  username: "login-name",
  password: SECRET,
  maxConnections: 5,
  hourlyLimit: null,
  dailyLimit: null,
  ...more,
});

describe("Sending accounts", () => {
  let team: TestTeam;
  let tenant: Tenant;
  before(async () => {
    team = await makeTeam();
    tenant = { teamId: team.team.id, environment: "LIVE" };
  });

  const works = async () => ({ ok: true }) as const;
  const connect = (more: Partial<AccountFields> = {}) =>
    connectAccount(team.em.fork(), tenant, fields(more), { vault: team.vault, verify: works });

  it("are shown without credentials", async () => {
    const account = await connect();
    const { text, body } = await api(team.keys.live).get(`/accounts/${account.id}`);
    const { created_at, updated_at, last_checked_at, ...rest } = body.data;
    assert.deepEqual(rest, {
      object: "email_account",
      id: account.id,
      email: account.email,
      display_name: "News",
      provider: "SMTP_OTHER",
      status: "ACTIVE",
    });
    assert.ok(created_at && updated_at && last_checked_at);
    for (const secret of [SECRET, "login-name", "smtp.example.com"]) assert.ok(!text.includes(secret));
  });

  it("are filtered by status and provider", async () => {
    const [ses, suspended] = [await connect({ provider: "SMTP_AMAZON_SES" }), await connect()];
    await suspendAccount(team.em.fork(), suspended.id);
    const ids = async (query: Record<string, string>) =>
      (await api(team.keys.live).get("/accounts", { query })).body.data.map(({ id }: Json) => id);
    assert.deepEqual(await ids({ provider: "SMTP_AMAZON_SES" }), [ses.id]);
    assert.deepEqual(await ids({ status: "SUSPENDED" }), [suspended.id]);
    const { body } = await api(team.keys.live).get("/accounts", { query: { status: "GONE" } });
    assert.equal(body.error.param, "status");
  });

  it("keep their password encrypted, bound to their row", async () => {
    const account = await connect();
    const { encryptedPassword } = account;
    assert.ok(encryptedPassword && !encryptedPassword.includes(SECRET));
    assert.equal(team.vault.decrypt(encryptedPassword, sealContext("email_accounts", account.id)), SECRET);
    assert.throws(() => team.vault.decrypt(encryptedPassword, "email_accounts/acct_other/password"));
  });

  it("are not connected when the server refuses the login, nor twice", async () => {
    const email = uniqueEmail();
    const refuses = async () => ({ ok: false, reason: "login_refused", message: "Wrong password." }) as const;
    await assert.rejects(
      connectAccount(team.em.fork(), tenant, fields({ email }), { vault: team.vault, verify: refuses }),
      AccountCheckError,
    );
    await connect({ email });
    await assert.rejects(
      connect({ email }),
      (error) => error instanceof ApiError && error.code === "resource_already_exists",
    );
  });

  it("are ACTIVE again after a login with the stored password works", async () => {
    const { id } = await connect();
    await suspendAccount(team.em.fork(), id);
    const logins: SmtpLogin[] = [];
    const resumed = await resumeAccount(team.em.fork(), id, {
      vault: team.vault,
      verify: async (login) => {
        logins.push(login);
        return { ok: true };
      },
    });
    assert.equal(resumed.status, "ACTIVE");
    assert.deepEqual(logins, [
      { host: "smtp.example.com", port: 587, secure: "starttls", user: "login-name", pass: SECRET },
    ]);
  });
});

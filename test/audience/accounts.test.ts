import assert from "node:assert/strict";
import { sql } from "kysely";
import { kysely, type Tenant } from "../../db/orm.ts";
import {
  AccountCheckError,
  type AccountFields,
  connectAccount,
  resumeAccount,
  type SmtpLogin,
  suspendAccount,
  updateAccount,
} from "../../domain/accounts/accounts.ts";
import { disconnectAccount } from "../../domain/accounts/disconnect.ts";
import { ApiError } from "../../domain/errors.ts";
import { sealContext } from "../../domain/secrets/crypto.ts";
import { api, type Json } from "../support/api.ts";
import { makeTeam, type TestTeam, uniqueEmail } from "../support/factories.ts";
import { addAccount, makeCampaignSender, makeSender, startUntaken } from "../support/sending.ts";

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
    assert.equal(
      team.vault.decrypt(encryptedPassword, sealContext("email_accounts", "encrypted_password", account.id)),
      SECRET,
    );
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

  it("take another server once a login there with the stored password works, and limits without a login", async () => {
    const { id } = await connect({ dailyLimit: 10 });
    const logins: SmtpLogin[] = [];
    let isWorking = false;
    const verify = async (login: SmtpLogin) => {
      logins.push(login);
      return isWorking ? ({ ok: true } as const) : ({ ok: false, reason: "tls_failed", message: "No TLS." } as const);
    };
    const update = (changes: Parameters<typeof updateAccount>[2]) =>
      updateAccount(team.em.fork(), id, changes, { vault: team.vault, verify });

    await assert.rejects(update({ port: 465, security: "tls", hourlyLimit: 5 }), AccountCheckError);
    const { port, dailyLimit, hourlyLimit } = await update({ dailyLimit: null });
    assert.deepEqual([port, dailyLimit, hourlyLimit, logins.length], [587, null, null, 1]);
    await sql`update email_accounts set status = 'ERROR', last_error = 'tls_failed' where id = ${id}`.execute(
      kysely(team.em.fork()),
    );
    isWorking = true;
    const moved = await update({ port: 465, security: "tls", maxConnections: 2 });
    assert.deepEqual([moved.port, moved.security, moved.maxConnections, moved.status], [465, "tls", 2, "ACTIVE"]);
    const there = { host: "smtp.example.com", port: 465, secure: "tls", user: "login-name", pass: SECRET };
    assert.deepEqual(logins, [there, there]);
  });

  /** @returns how many rows name the account afterwards */
  async function disconnect({ em, team }: TestTeam, accountId: string): Promise<number> {
    await disconnectAccount(em.fork(), { teamId: team.id, environment: "LIVE", accountId });
    const { rows } = await sql<{ left: number }>`select (
      (select count(*) from email_accounts where id = ${accountId}) +
      (select count(*) from account_grants where account_id = ${accountId}) +
      (select count(*) from account_checks where account_id = ${accountId}) +
      (select count(*) from campaigns where status = 'DRAFT' and ${accountId} = any(account_ids)))::int as left`.execute(
      kysely(em.fork()),
    );
    return rows[0]?.left ?? Number.NaN;
  }

  const neededBy = (id: string) => (error: unknown) =>
    error instanceof ApiError && error.code === "resource_state_invalid" && error.message.includes(`can mail ${id}. `);

  it("are disconnected with their credentials, unless no other account mails a draft", async () => {
    const [letter, campaign] = [
      await makeSender({ recipients: 0 }),
      await makeCampaignSender({ recipients: 1, furtherAccounts: [{}] }),
    ];
    await assert.rejects(disconnect(letter, letter.accountId), neededBy(letter.newsletterId));
    await addAccount(letter, { email: uniqueEmail(), allowedDomains: [letter.domain] });
    assert.equal(await disconnect(letter, letter.accountId), 0);

    const [first = "", second = ""] = campaign.accountIds;
    assert.equal(await disconnect(campaign, first), 0);
    await assert.rejects(disconnect(campaign, second), neededBy(campaign.campaignId));
  });

  it("stay connected while a send has no other account", async () => {
    const sender = await makeCampaignSender({ recipients: 1, furtherAccounts: [{}] });
    const sendId = await startUntaken(sender);
    const [first = "", second = ""] = sender.accountIds;
    await disconnect(sender, first);
    await assert.rejects(disconnect(sender, second), neededBy(sendId));
    const { rows } = await sql`select 1 from account_checks where account_id = ${second}`.execute(kysely(sender.em));
    assert.equal(rows.length, 1, "nothing was deleted");
  });
});

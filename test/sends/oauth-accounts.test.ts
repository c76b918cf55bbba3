import assert from "node:assert/strict";
import { sql } from "kysely";
import { verifyAccount } from "../../activities/smtp/verify.ts";
import { kysely } from "../../db/orm.ts";
import { AccountCheckError, connectAccount, resumeAccount, updateAccount } from "../../domain/accounts/accounts.ts";
import { accessTokenOf, openTokenPost, storeGrant, TokenError } from "../../domain/accounts/tokens.ts";
import { ApiError } from "../../domain/errors.ts";
import { textsIn } from "../histories/files.ts";
import { type Sink, startSink } from "../mail/smtp-sink.ts";
import { makeDue, postponeChecks, runChecks } from "../support/account-checks.ts";
import { eventually } from "../support/eventually.ts";
import { uniqueEmail } from "../support/factories.ts";
import { RECEIVER_HOSTS } from "../support/receiver.ts";
import { useSendWorkflows } from "../support/send-workflows.ts";
import {
  anotherNewsletter,
  ledgerStates,
  makeSender,
  preview,
  type Sender,
  startSend,
  untilStatus,
} from "../support/sending.ts";
import { LOOPBACK_ONLY, within } from "../support/smtp-guard.ts";
import { stack } from "../support/stack.ts";
import { emittedEvents, listen } from "../webhooks/outbox.ts";
import { openTokenEndpoint, type TokenEndpoint } from "./token-endpoint.ts";

const USER = "news@hosted.example";

describe("A sending account that logs in by XOAUTH2", () => {
  const { command, workflowOf } = useSendWorkflows();
  let tokens: TokenEndpoint;
  let sink: Sink;
  let sender: Sender;
  /** Logins at the server: the user and the token of each. */
  let logins: { user: string | undefined; token: string | undefined }[];
  let refused: Set<string>;
  /** Tokens that it refuses by a challenge. */
  let challenged: Set<string>;

  beforeEach(async () => {
    await postponeChecks();
    tokens = await openTokenEndpoint();
    [logins, refused, challenged] = [[], new Set(), new Set()];
    sink = await startSink({
      authOptional: false,
      allowInsecureAuth: true,
      authMethods: ["XOAUTH2"],
      onAuth: ({ username, accessToken }, _session, done) => {
        logins.push({ user: username, token: accessToken });
        if (accessToken !== undefined && challenged.has(accessToken)) {
          // As hosted mailboxes do: the reason in a challenge, and 535 after the client's empty answer.
          done(null, { data: { status: "400" } });
        } else if (accessToken === undefined || !tokens.issued.includes(accessToken) || refused.has(accessToken)) {
          done(Object.assign(new Error("5.7.8 Username and Password not accepted"), { responseCode: 535 }));
        } else {
          done(null, { user: USER });
        }
      },
    });
    sender = await makeSender({ recipients: 3, account: { host: "127.0.0.1", port: sink.port, username: USER } });
    await storeGrant(sender.em.fork(), sender.accountId, { grant: tokens.grant }, sender.vault);
    await listen(sender, { events: ["account.error", "account.recovered"] });
  });
  afterEach(() => Promise.all([tokens.close(), sink.close()]));

  const deps = async () => {
    const env = { ...(await stack()).env, WEBHOOK_ALLOWED_HOSTS: [...RECEIVER_HOSTS] };
    return {
      vault: sender.vault,
      postForm: openTokenPost(env),
      verify: ({ accessToken, ...login }: Parameters<Parameters<typeof connectAccount>[3]["verify"]>[0]) =>
        verifyAccount({
          ...login,
          accessToken: accessToken === undefined ? undefined : async () => accessToken,
          guard: LOOPBACK_ONLY,
          limits: within(5_000),
        }),
    };
  };
  const account = async () => (await sender.client.get(`/accounts/${sender.accountId}`)).body.data;
  const events = async () => (await emittedEvents(sender)).map(({ type, object }) => [type, object.last_error]);
  const stored = () =>
    kysely(sender.em)
      .selectFrom("account_grants")
      .selectAll()
      .where("account_id", "=", sender.accountId)
      .executeTakeFirstOrThrow();
  const expireIn = (seconds: number) =>
    sql`update account_grants set token_expires_at = clock_timestamp() + make_interval(secs => ${seconds})
      where account_id = ${sender.accountId}`.execute(kysely(sender.em));
  const check = async () => {
    await makeDue(sender.em, sender.accountIds);
    return runChecks();
  };
  const tokenNow = async (used?: string) => accessTokenOf(sender.em.fork(), sender.accountId, await deps(), used);

  it("mails with a token of the provider, keeps it sealed, and shows it nowhere", async () => {
    const { data } = await startSend(sender);
    await untilStatus(sender, ["SENT"]);
    assert.deepEqual(await ledgerStates(sender), { SENT: 3 });
    assert.equal(sink.received.length, 3);
    const { grant, requests, issued } = tokens;
    assert.equal(requests.length, 1, "one token for all connections");
    assert.deepEqual(Object.fromEntries(requests[0] ?? []), {
      grant_type: "refresh_token",
      refresh_token: grant.refreshToken,
      client_id: "a-client",
      client_secret: grant.clientSecret,
    });
    assert.deepEqual(logins[0], { user: USER, token: issued[0] });
    const secrets = [grant.refreshToken, grant.clientSecret ?? "", issued[0] ?? ""];
    const history = textsIn(await workflowOf(data.id).fetchHistory()).join("\n");
    const shown = [history, JSON.stringify(await stored()), (await sender.client.get("/accounts")).text];
    for (const secret of secrets) for (const text of shown) assert.ok(!text.includes(secret));
    assert.ok(history.includes(sender.newsletterId), "the history was read");
  });

  it("gets another token before the old one ends, by one process at a time, with the refresh token that came last", async () => {
    const first = await tokenNow();
    assert.equal(await tokenNow(), first);
    tokens.changes = { refresh_token: "rotated" };
    await expireIn(200);
    const held = Promise.withResolvers<void>();
    tokens.heldUntil = held.promise;
    const one = tokenNow();
    while (tokens.requests.length < 2) await new Promise(setImmediate);
    assert.equal(await tokenNow(), first, "the old one, while it lives");
    await expireIn(-1);
    const rest = [tokenNow(), tokenNow(), tokenNow()];
    held.resolve();
    const [next, ...others] = await Promise.all([one, ...rest]);
    assert.deepEqual([...new Set([next, ...others])], [tokens.issued[1]]);
    assert.equal(tokens.requests.length, 2);
    tokens.failure = { status: 503, error: "busy" };
    await expireIn(200);
    assert.equal(await tokenNow(), next, "no new one can be had");
    tokens.failure = undefined;
    assert.notEqual(await tokenNow(), next);
    assert.equal(tokens.requests.at(-1)?.get("refresh_token"), "rotated");
  });

  it("asks for another token once when the server refuses one before its time", async () => {
    challenged.add(await tokenNow());
    await startSend(sender);
    await untilStatus(sender, ["SENT"]);
    assert.equal(tokens.requests.length, 2);
    assert.deepEqual(await events(), []);
    for (const token of tokens.issued) refused.add(token);
    await kysely(sender.em).deleteFrom("account_leases").where("account_id", "=", sender.accountId).execute();
    tokens.changes = { access_token: tokens.issued[0] };
    // A check is postponed where the worker records a login of the send meanwhile.
    const isRefused = async () => (await check()).failing === 1;
    await eventually(isRefused, { what: "the new one is refused too" });
    assert.deepEqual(await events(), [["account.error", "login_refused"]]);
  });

  it("is REVOKED when its grant was withdrawn, until it gets other credentials", async () => {
    const later = await anotherNewsletter(sender);
    tokens.failure = { status: 400, error: "invalid_grant" };
    const { data } = await startSend(sender);
    await untilStatus(sender, ["PAUSED"]);
    assert.equal((await account()).status, "REVOKED");
    assert.deepEqual(await events(), [["account.error", "access_revoked"]]);
    assert.equal((await preview(later)).body.error.code, "sending_domain_unverified");
    assert.equal(sink.connections.made, 0);
    assert.deepEqual(await check(), { working: 0, failing: 0, postponed: 0 }, "it is checked no more");
    await assert.rejects(
      resumeAccount(sender.em.fork(), sender.accountId, await deps()),
      (error) => error instanceof ApiError && error.code === "resource_state_invalid",
    );

    const given = { username: USER, password: null, grant: { ...tokens.grant, refreshToken: "another" } };
    const replace = async () => updateAccount(sender.em.fork(), sender.accountId, { credentials: given }, await deps());
    await assert.rejects(replace(), AccountCheckError);
    tokens.failure = undefined;
    assert.equal((await replace()).status, "ACTIVE");
    assert.deepEqual((await events()).slice(1), [["account.recovered", null]]);
    await command(data.id, "resume");
    await untilStatus(sender, ["SENT"]);
    assert.equal(tokens.requests.at(-1)?.get("refresh_token"), "another");
  });

  it("is not found REVOKED for a grant that was replaced while the token endpoint was asked", async () => {
    const held = Promise.withResolvers<void>();
    tokens.heldUntil = held.promise;
    tokens.failure = { status: 400, error: "invalid_grant" };
    const asked = tokenNow();
    while (tokens.requests.length === 0) await new Promise(setImmediate);
    await storeGrant(
      sender.em.fork(),
      sender.accountId,
      { grant: { ...tokens.grant, refreshToken: "another" } },
      sender.vault,
    );
    held.resolve();
    await assert.rejects(asked, (error) => error instanceof TokenError && error.failure.temporary);
    tokens.failure = undefined;
    assert.equal(await tokenNow(), tokens.issued[0]);
    assert.equal(tokens.requests.at(-1)?.get("refresh_token"), "another");
  });

  it("is found REVOKED, in ERROR or failing for now by its check, as the token endpoint answers", async () => {
    const statusAfter = async (failure: TokenEndpoint["failure"]) => {
      tokens.failure = failure;
      await check();
      return (await account()).status;
    };
    assert.equal(await statusAfter({ status: 503, error: "invalid_grant" }), "ACTIVE");
    assert.equal(await statusAfter({ status: 429, error: "slow_down" }), "ACTIVE");
    assert.equal(await statusAfter({ status: 401, error: "invalid_client" }), "ERROR");
    assert.equal(await statusAfter(undefined), "ACTIVE");
    await expireIn(-1);
    assert.equal(await statusAfter({ status: 400, error: "invalid_grant" }), "REVOKED");
    assert.deepEqual(await events(), [
      ["account.error", "token_refused"],
      ["account.recovered", null],
      ["account.error", "access_revoked"],
    ]);
  });

  it("is connected after a login with a token, and its token URL is on the public Internet", async () => {
    const connect = async (tokenUrl: string) => {
      const email = uniqueEmail("hosted");
      const fields = { email, displayName: "News", provider: "GOOGLE", allowedDomains: [], maxConnections: 5 } as const;
      const limits = { hourlyLimit: null, dailyLimit: null };
      const server = { host: "127.0.0.1", port: sink.port, security: "none", username: USER, password: null } as const;
      const grant = { ...tokens.grant, tokenUrl };
      const tenant = { teamId: sender.team.id, environment: "LIVE" as const };
      return connectAccount(
        sender.em.fork(),
        tenant,
        { ...fields, allowedDomains: [], ...limits, ...server, grant },
        await deps(),
      );
    };
    const connected = await connect(tokens.grant.tokenUrl);
    assert.equal(connected.status, "ACTIVE");
    assert.deepEqual(logins, [{ user: USER, token: tokens.issued[0] }]);
    assert.equal(await accessTokenOf(sender.em.fork(), connected.id, await deps()), tokens.issued[0]);
    for (const [url, why] of [
      ["https://10.0.0.1/token", /not on the public Internet/],
      ["https://localhost/token", /not on the public Internet/],
      ["http://169.254.169.254/token", /not on the public Internet/],
      ["http://1.1.1.1/token", /starts with https/],
      ["https://user:pass@provider.example/token", /user name and password out of the URL/],
    ] as const) {
      await assert.rejects(connect(url), (error) => error instanceof AccountCheckError && why.test(error.message), url);
    }
    assert.equal(tokens.requests.length, 1);
  });
});

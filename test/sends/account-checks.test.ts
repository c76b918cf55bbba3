import assert from "node:assert/strict";
import { createServer, type Socket } from "node:net";
import { sql } from "kysely";
import { kysely } from "../../db/orm.ts";
import { recordAccountFailure, resumeAccount, suspendAccount } from "../../domain/accounts/accounts.ts";
import { claimDueChecks, waitAfterFailure } from "../../domain/accounts/checks.ts";
import { leaseConnections, leaseForCheck } from "../../domain/sends/ledger/account-capacity.ts";
import { ACCOUNT_CHECKS_ID } from "../../temporal/ids.ts";
import { type Sink, startSink } from "../mail/smtp-sink.ts";
import { makeDue, postponeChecks, runChecks } from "../support/account-checks.ts";
import { eventually } from "../support/eventually.ts";
import { listenLocally } from "../support/listen-locally.ts";
import { addAccount, makeSender, preview, type Sender, setLogin, tokenOf } from "../support/sending.ts";
import { stack } from "../support/stack.ts";
import { temporalClient } from "../support/temporal.ts";
import { emittedEvents, listen } from "../webhooks/outbox.ts";

/** A server that accepts logins unless `refusing` is set: the code of its refusal. */
interface LoginServer {
  refusing: number | undefined;
  /** Logins are answered once it resolves. */
  heldUntil: Promise<void>;
  logins: number;
  sink: Sink;
}

async function startLoginServer(): Promise<LoginServer> {
  const sink = await startSink({
    authOptional: false,
    allowInsecureAuth: true,
    onAuth: (_auth, _session, done) => {
      server.logins++;
      const { refusing } = server;
      void server.heldUntil.then(() => {
        if (refusing === undefined) done(null, { user: "news" });
        else done(Object.assign(new Error("no"), { responseCode: refusing }));
      });
    },
  });
  const server: LoginServer = { refusing: undefined, heldUntil: Promise.resolve(), logins: 0, sink };
  return server;
}

describe("The check of a sending account", () => {
  let server: LoginServer;
  let sender: Sender;
  const closes: (() => unknown)[] = [];

  beforeEach(async () => {
    await postponeChecks();
    server = await startLoginServer();
    closes.push(() => server.sink.close());
    sender = await senderTo(server.sink.port);
  });
  afterEach(async () => {
    for (const close of closes.splice(0)) await close();
  });

  const senderTo = async (port: number, more = {}): Promise<Sender> => {
    const made = await makeSender({ recipients: 1, account: { host: "127.0.0.1", port, ...more } });
    await setLogin(made, "secret");
    await listen(made, { events: ["account.error", "account.recovered"] });
    return made;
  };
  const tenantOf = ({ team, accountId }: Sender) => ({ teamId: team.id, environment: "LIVE" as const, accountId });
  const check = async (settings = {}) => {
    await makeDue(sender.em, sender.accountIds);
    return runChecks({ settings });
  };
  const account = async (of = sender) => (await of.client.get(`/accounts/${of.accountId}`)).body.data;
  const events = async (of = sender) =>
    (await emittedEvents(of)).map(({ type, object }) => [type, object.status, object.last_error]);
  const setStatus = (status: string) =>
    sql`update email_accounts set status = ${status}, last_checked_at = null where id = ${sender.accountId}`.execute(
      kysely(sender.em),
    );
  /** Moves the account's first refusal to this many seconds ago. */
  const failingFor = (seconds: number) =>
    sql`update account_refusals set since = clock_timestamp() - make_interval(secs => ${seconds})
      where account_id = ${sender.accountId}`.execute(kysely(sender.em));
  const waitSeconds = async () => {
    const { rows } = await sql<{ seconds: number }>`
      select extract(epoch from next_at - clock_timestamp())::float8 as seconds
      from account_checks where account_id = ${sender.accountId}`.execute(kysely(sender.em));
    return rows[0]?.seconds ?? 0;
  };
  const heldCheck = async (options: Parameters<typeof runChecks>[0] = {}) => {
    const { promise, resolve: release } = Promise.withResolvers<void>();
    server.heldUntil = promise;
    await makeDue(sender.em, sender.accountIds);
    const checked = runChecks(options);
    await eventually(() => server.logins > 0, { what: "the login", everyMs: 10 });
    return { checked, release };
  };

  it("is run by its schedule: a PENDING account sends after its first login", async () => {
    const { client, close } = await temporalClient();
    closes.push(close);
    await setStatus("PENDING");
    const refused = await preview(sender);
    assert.deepEqual([refused.status, refused.body.error.code], [409, "sending_domain_unverified"]);
    await makeDue(sender.em, sender.accountIds);
    const working = await eventually(
      async () => {
        await client.schedule.getHandle(ACCOUNT_CHECKS_ID).trigger();
        const shown = await account();
        return shown.status === "ACTIVE" && shown;
      },
      { everyMs: 500, what: "ACTIVE" },
    );
    assert.ok(working.last_checked_at);
    assert.equal(server.logins, 1);
    await tokenOf(sender);
    assert.deepEqual(await events(), [], "it has not recovered");
  });

  it("takes an account whose login is refused to ERROR at once, and back when it works, with an event each", async () => {
    server.refusing = 535;
    assert.deepEqual(await check(), { working: 0, failing: 1, postponed: 0 });
    const failed = await account();
    assert.equal(failed.status, "ERROR");
    assert.deepEqual(await emittedEvents(sender), [
      { type: "account.error", object: { ...failed, last_error: "login_refused" } },
    ]);
    assert.equal((await preview(sender)).body.error.code, "sending_domain_unverified");
    assert.ok((await waitSeconds()) > 2_800, "the next login follows after an hour or so");
    await check();
    server.refusing = undefined;
    assert.deepEqual(await check(), { working: 1, failing: 0, postponed: 0 });
    const working = await account();
    assert.equal(working.status, "ACTIVE");
    assert.ok(working.last_checked_at > failed.last_checked_at && working.updated_at > failed.updated_at);
    assert.deepEqual((await events()).slice(1), [["account.recovered", "ACTIVE", null]]);
    const { rows } = await sql`select from account_refusals where account_id = ${sender.accountId}`.execute(
      kysely(sender.em),
    );
    assert.equal(rows.length, 0, "waiting sends may try at once");
  });

  it("takes an account to ERROR for failures that may pass when they are many and have lasted", async () => {
    server.refusing = 454;
    const before = await account();
    await check();
    await failingFor(10_000);
    await check();
    const failing = await account();
    assert.equal(failing.status, "ACTIVE", "not often enough");
    assert.ok(failing.last_checked_at > (before.last_checked_at ?? ""));
    await failingFor(800);
    await check();
    assert.equal((await account()).status, "ACTIVE", "not long enough");
    assert.ok((await waitSeconds()) < 1_100, "it is looked at again soon");
    await failingFor(901);
    await check();
    assert.deepEqual(await events(), [["account.error", "ERROR", "login_refused"]]);
    server.refusing = undefined;
    await check();
    assert.equal((await account()).status, "ACTIVE");
  });

  it("follows after as long as the account has failed, within bounds", () => {
    const waits = (temporary: boolean, lasted: number[]) =>
      lasted.map((seconds) => waitAfterFailure({ temporary }, seconds, 3_600));
    assert.deepEqual(waits(true, [0, 1_000, 100_000]), [300, 1_000, 3_600]);
    assert.deepEqual(waits(false, [0, 10_000, 1_000_000]), [3_600, 10_000, 86_400]);
  });

  it("is dropped when another finding was recorded since it began", async () => {
    const { checked, release } = await heldCheck();
    await recordAccountFailure(sender.em.fork(), tenantOf(sender), "greeting_refused");
    release();
    assert.deepEqual(await checked, { working: 0, failing: 0, postponed: 1 });
    assert.equal((await account()).status, "ERROR", "of a dispatching process");
    assert.ok((await waitSeconds()) <= 300, "another check follows soon");
    await check();
    assert.equal((await account()).status, "ACTIVE");

    server.logins = 0;
    server.refusing = 535;
    const second = await heldCheck();
    const deps = { vault: sender.vault, verify: async () => ({ ok: true }) as const };
    await resumeAccount(sender.em.fork(), sender.accountId, deps);
    second.release();
    assert.equal((await second.checked).postponed, 1);
    assert.equal((await account()).status, "ACTIVE", "of an operator");
  });

  it("changes neither a refused sender nor a suspended account", async () => {
    await recordAccountFailure(sender.em.fork(), tenantOf(sender), "sender_refused");
    assert.equal((await check()).working, 1);
    assert.equal((await account()).status, "ERROR", "a login does not show whether the sender is taken");
    await suspendAccount(sender.em.fork(), sender.accountId);
    assert.deepEqual(await check(), { working: 0, failing: 0, postponed: 0 });
    assert.equal((await account()).status, "SUSPENDED");
  });

  it("takes no leased connection, and does not reduce a worker's share", async () => {
    await kysely(sender.em)
      .updateTable("email_accounts")
      .set({ max_connections: 4 })
      .where("id", "=", sender.accountId)
      .execute();
    const lease = (holder: string) => leaseConnections(sender.em.fork(), tenantOf(sender), holder);
    assert.equal(await leaseForCheck(sender.em.fork(), tenantOf(sender), "checker"), true);
    assert.equal((await lease("worker")).connections, 3);
    await kysely(sender.em).deleteFrom("account_leases").where("account_id", "=", sender.accountId).execute();
    assert.equal((await lease("worker")).connections, 4);
    assert.deepEqual(await check(), { working: 0, failing: 0, postponed: 1 });
    assert.equal(server.sink.connections.made, 0);
    assert.ok((await waitSeconds()) < 400);
  });

  it("is made once by several workers, and again when its worker stops or is killed during it", async () => {
    const others = await Promise.all([0, 1].map(() => senderTo(server.sink.port)));
    const all = [sender, ...others].map(({ accountId }) => accountId);
    await makeDue(sender.em, all);
    const results = await Promise.all([runChecks(), runChecks()]);
    assert.equal(results[0].working + results[1].working, 3);
    assert.equal(server.logins, 3);

    server.logins = 0;
    const stopping = new AbortController();
    const { checked, release } = await heldCheck({ stopping: stopping.signal });
    stopping.abort();
    assert.equal((await checked).postponed, 1);
    assert.equal((await account()).status, "ACTIVE");
    assert.deepEqual(
      await kysely(sender.em)
        .selectFrom("account_leases")
        .selectAll()
        .where("account_id", "=", sender.accountId)
        .execute(),
      [],
    );
    assert.equal((await runChecks()).working, 0, "its claim lasts");
    assert.ok((await waitSeconds()) <= 300, "it runs out");
    release();

    await makeDue(sender.em, sender.accountIds);
    const room = { checks: 10, exceptHosts: [], exceptTeams: [] };
    assert.equal((await claimDueChecks(sender.em.fork(), room)).length, 1, "claimed by a worker that is killed then");
    assert.deepEqual(await claimDueChecks(sender.em.fork(), room), []);
    await makeDue(sender.em, sender.accountIds);
    assert.equal((await runChecks()).working, 1);
  });

  /** A server that takes connections and says nothing. */
  async function startSilent(host: string) {
    const sockets = new Set<Socket>();
    const silent = createServer((socket) => {
      sockets.add(socket.on("error", () => {}));
    });
    closes.push(() => {
      for (const socket of sockets) socket.destroy();
      silent.close();
    });
    return { sockets, port: await listenLocally(silent, host) };
  }

  it("finds a place beside teams with many accounts, at silent servers and at its own", async () => {
    const hosts = ["127.0.0.2", "127.0.0.3"];
    const open: Set<Socket>[] = [];
    const ofOthers: string[] = [];
    /** A team with some accounts at a server. */
    const crowd = async (count: number, host: string, port: number) => {
      const team = await senderTo(port, { host });
      const more = Array.from({ length: count - 1 }, (_, i) =>
        addAccount(team, { email: `${i}@${team.domain}`, host, port, username: "news" }),
      );
      const ids = await Promise.all(more);
      await setLogin(team, "secret", ids);
      ofOthers.push(team.accountId, ...ids);
    };
    for (const host of hosts) {
      const { sockets, port } = await startSilent(host);
      await crowd(3, host, port);
      open.push(sockets);
    }
    await makeDue(sender.em, ofOthers);
    const stopping = new AbortController();
    const { SMTP_ALLOWED_HOSTS: allowed } = (await stack()).env;
    const checked = runChecks({
      stopping: stopping.signal,
      settings: { ACCOUNT_CHECKS_AT_ONCE: 4, SMTP_ALLOWED_HOSTS: [...allowed, ...hosts.map((host) => `${host}:*`)] },
    });
    await eventually(() => open.every(({ size }) => size > 0), { what: "the checks at the silent servers" });
    await crowd(10, "127.0.0.1", server.sink.port);
    // Each is claimed after those of the others might have been, which have waited longer.
    await makeDue(sender.em, ofOthers);
    for (let n = 0; n < 3; n++) {
      const before = await account();
      await makeDue(sender.em, sender.accountIds);
      await eventually(async () => (await account()).last_checked_at !== before.last_checked_at, {
        what: "the check of the only account of its team",
      });
      if (n === 0) assert.ok(server.logins < 11, "before most of the others at its server");
    }
    stopping.abort();
    await checked;
    assert.deepEqual(
      open.map(({ size }) => size),
      [1, 1],
    );
    await sql`update account_checks set next_at = clock_timestamp() + interval '1 hour'
      where account_id = any(${ofOthers}::text[])`.execute(kysely(sender.em));
  });
});

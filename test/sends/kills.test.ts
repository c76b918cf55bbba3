import assert from "node:assert/strict";
import { Client, Connection } from "@temporalio/client";
import fc from "fast-check";
import { sql } from "kysely";
import { kysely } from "../../db/orm.ts";
import { leaseConnections, releaseConnections } from "../../domain/sends/account-capacity.ts";
import { sendWorkflowId } from "../../workflows/ids.ts";
import { eventually } from "../support/eventually.ts";
import { describeEachKind } from "../support/kinds.ts";
import { type Outcome, outcomesOf } from "../support/outcomes.ts";
import { kill, pidOf, startWorker, type TestWorker } from "../support/processes.ts";
import { SEED } from "../support/seed.ts";
import {
  type AnySender,
  anotherNewsletter,
  caughtMails,
  confirm,
  credits,
  freshKey,
  ledgerStates,
  makeSender,
  type Sender,
  setFaults,
  startSend,
  tokenOf,
  untilStatus,
} from "../support/sending.ts";
import { type SmtpProxy, startSmtpProxy } from "../support/smtp-proxy.ts";
import { stack } from "../support/stack.ts";

/** How many mails the catcher has received from all tests. */
async function received(): Promise<number> {
  const { mail } = await stack();
  const stats = (await (await fetch(new URL("/api/stats", mail.api))).json()) as { received: number };
  return stats.received;
}

/** Waits until the catcher has got `count` mails more than `since`. */
const untilCaught = (count: number, since: number) =>
  eventually(async () => (await received()) - since >= count, { what: `${count} mails` });

/**
 * The guarantee at the end of any send: each recipient is SENT and was mailed once, or UNKNOWN and was
 * mailed once at most, and the credits are settled.
 * @returns how many are UNKNOWN
 */
async function assertHonest(sender: AnySender, recipients: number): Promise<number> {
  const outcomes = await outcomesOf(sender);
  assert.equal(outcomes.length, recipients);
  const honest = ({ state, caught }: Outcome) =>
    state === "SENT" ? caught === 1 : state === "UNKNOWN" ? caught <= 1 : false;
  assert.deepEqual(
    outcomes.filter((outcome) => !honest(outcome)),
    [],
  );
  const { reserved, mismatch } = await credits(sender);
  assert.deepEqual({ reserved, mismatch }, { reserved: 0, mismatch: false });
  return outcomes.filter(({ state }) => state === "UNKNOWN").length;
}

describeEachKind("A send under kills", ({ accounts, make }) => {
  afterEach(() => setFaults([]));

  it(`continues after five kills of its worker in 2,000 recipients (SEED=${SEED})`, async () => {
    const [recipients, connections, kills] = [2_000, 10, 5];
    const sender = await make({ recipients, account: { maxConnections: connections } });
    await setFaults([{ stage: "data", match: sender.audience, delayMs: 5 }]);
    // One in every fifth of the mails, the first and the last few left out.
    const [at = []] = fc.sample(fc.tuple(...Array.from({ length: kills }, () => fc.nat(300))), {
      seed: SEED,
      numRuns: 1,
    });
    const since = await received();
    await startSend(sender);
    for (const [index, offset] of at.entries()) {
      await untilCaught(index * 380 + 20 + offset, since);
      await kill("dispatch").again;
    }
    await untilStatus(sender, ["SENT"]);
    const unknown = await assertHonest(sender, recipients);
    assert.ok(unknown <= 3 * connections * accounts * kills, `${unknown} unknown`);
  });

  it("continues after a kill of Temporal: no outcome is unknown, because no worker died", async () => {
    const sender = await make({ recipients: 600, account: { maxConnections: 4 } });
    await setFaults([{ stage: "data", match: sender.audience, delayMs: 20 }]);
    const since = await received();
    await startSend(sender);
    await untilCaught(100, since);
    await kill("temporal").again;
    await untilStatus(sender, ["SENT"], 90_000);
    await eventually(async () => !(await ledgerStates(sender))["UNKNOWN"], { what: "every outcome" });
    await assertHonest(sender, 600);
  });
});

/** The workers that may open connections of an account, by their pids. */
async function holders({ em, accountId }: Sender): Promise<number[]> {
  const { rows } = await sql<{ holder: string }>`select holder from account_leases
    where account_id = ${accountId} and connections > 0 and expires_at > clock_timestamp()`.execute(kysely(em.fork()));
  return rows.map(({ holder }) => Number(holder.split("-").at(-2)));
}

const accountOf = ({ team, accountId }: Sender) => ({ teamId: team.id, environment: "LIVE" as const, accountId });

/** Leases connections of an account to a holder that is no worker; 0 connections are a worker that waits. */
const holdLease = ({ em, accountId }: Sender, holder: string, connections: number) =>
  sql`insert into account_leases (account_id, holder, connections, expires_at)
    values (${accountId}, ${holder}, ${connections}, now() + interval '1 minute')`.execute(kysely(em));

/** Starts sends on one account until both workers mail some of them. */
async function untilBothWork(first: Sender): Promise<Sender[]> {
  const all = [first];
  // Somebody else waits for connections too, so that the first worker at the account does not take them all.
  await holdLease(first, "elsewhere", 0);
  await startSend(first);
  while ((await holders(first)).length < 2 && all.length < ENOUGH) {
    const next = await anotherNewsletter(first);
    all.push(next);
    await startSend(next);
  }
  await eventually(async () => (await holders(first)).length === 2, { what: "both at work" });
  return all;
}

/** A suspended worker is still given work while it polls; one that is full does not poll. */
const ONE_SLICE = { ACTIVITY_CONCURRENCY: "1" };
/** The stack's worker takes 40 slices at once: one of as many sends and one is another worker's. */
const ENOUGH = 41;

describe("Two dispatching workers", () => {
  let connection: Connection;
  let temporal: Client;
  let worker: TestWorker | undefined;
  let proxy: SmtpProxy | undefined;

  before(async () => {
    const { address, namespace } = (await stack()).temporal;
    connection = await Connection.connect({ address });
    temporal = new Client({ connection, namespace });
  });
  after(() => connection.close());
  afterEach(async () => {
    await setFaults([]);
    await worker?.stop();
    proxy?.close();
    worker = undefined;
    proxy = undefined;
  });

  it("mail no recipient twice when one is suspended until the other took over, and then continues", async () => {
    worker = await startWorker("dispatch", ONE_SLICE);
    const connections = 4;
    const all: Sender[] = [];
    let mine: Sender | undefined;
    // So slow that none ends before the stack's worker is full.
    await setFaults([{ stage: "data", delayMs: 500 }]);
    while (!mine && all.length < ENOUGH) {
      const sender = await makeSender({ recipients: 200, account: { maxConnections: connections } });
      all.push(sender);
      await startSend(sender);
      await eventually(async () => (await holders(sender)).length > 0, { what: "a worker for it" });
      if ((await holders(sender)).includes(worker.pid)) mine = sender;
    }
    assert.ok(mine, "the second worker mails a send");
    await setFaults([{ stage: "data", delayMs: 30 }]);
    const sender = mine;
    const epoch = async () => {
      const { rows } = await sql<{
        epoch: number;
      }>`select epoch from send_lanes l join newsletters n on n.send_id = l.send_id
        where n.id = ${sender.newsletterId}`.execute(kysely(sender.em.fork()));
      return rows[0]?.epoch ?? 0;
    };
    await eventually(async () => (await caughtMails(sender)).length > 20, { what: "some mail" });
    worker.signal("SIGSTOP");
    const before = await epoch();
    await eventually(async () => (await epoch()) > before, { what: "the take-over" });
    const { UNKNOWN: lost = 0 } = await ledgerStates(sender);
    assert.ok(lost > 0 && lost <= 3 * connections, `${lost} unknown`);
    worker.signal("SIGCONT");
    for (const each of all) {
      await untilStatus(each, ["SENT"]);
      await assertHonest(each, 200);
    }
  });

  it("keep to an account's connections, lose no recipient and mail none twice when one is killed", async () => {
    worker = await startWorker("dispatch");
    proxy = await startSmtpProxy();
    const maxConnections = 6;
    const first = await makeSender({ recipients: 100, account: { ...proxy.account, maxConnections } });
    await setFaults([{ stage: "data", match: first.audience, delayMs: 40 }]);
    const all = await untilBothWork(first);
    const since = await received();
    await untilCaught(50, since);
    worker.signal("SIGKILL");
    for (const each of all) await untilStatus(each, ["SENT"]);
    let unknown = 0;
    for (const each of all) {
      unknown += await assertHonest(each, 100);
    }
    assert.ok(unknown <= 3 * maxConnections, `${unknown} unknown`);
    assert.ok(proxy.most <= maxConnections, `${proxy.most} connections at once`);
  });

  it("give a connection to the other worker only after they closed it", async () => {
    proxy = await startSmtpProxy();
    const [maxConnections, recipients] = [6, 12];
    const first = await makeSender({ recipients, account: { ...proxy.account, maxConnections } });
    const second = await anotherNewsletter(first);
    await setFaults([{ stage: "data", match: first.audience, delayMs: 2_500 }]);
    await startSend(first);
    await eventually(() => proxy?.open === maxConnections, { what: "all connections" });
    // Another worker comes, finds none free, and is given its share when the first one leases again.
    const lease = async () => (await leaseConnections(first.em.fork(), accountOf(first), "elsewhere")).connections;
    assert.equal(await lease(), 0);
    await startSend(second);
    const leased = await eventually(lease, {
      what: "a share for the other worker",
    });
    assert.ok(leased + proxy.open <= maxConnections, `${leased} leased while ${proxy.open} were open`);
    await releaseConnections(first.em.fork(), first.accountId, "elsewhere");
    await setFaults([]);
    for (const each of [first, second]) await untilStatus(each, ["SENT"]);
    for (const each of [first, second]) assert.equal(await assertHonest(each, recipients), 0);
  });

  it("keep an account's hourly and daily limits to the mail", async () => {
    worker = await startWorker("dispatch");
    const [hourlyLimit, dailyLimit] = [200, 280];
    const first = await makeSender({ recipients: 60, account: { maxConnections: 4, hourlyLimit, dailyLimit } });
    await setFaults([{ stage: "data", match: first.audience, delayMs: 60 }]);
    const all = await untilBothWork(first);
    while (all.length < 6) {
      const next = await anotherNewsletter(first);
      all.push(next);
      await startSend(next);
    }
    await setFaults([]);
    const { rows: sends } = await sql<{ id: string }>`select id from sends where team_id = ${first.team.id}`.execute(
      kysely(first.em),
    );
    const retry = () =>
      Promise.allSettled(sends.map(({ id }) => temporal.workflow.getHandle(sendWorkflowId(id)).executeUpdate("retry")));
    const assertKept = async (window: "HOUR" | "DAY", limit: number) => {
      await eventually(
        async () => {
          // One of them may have found the window full of what another gave back.
          await retry();
          return (await caughtMails(first)).length >= limit;
        },
        { what: `the limit of a ${window}` },
      );
      await retry();
      const { rows } = await sql<{ used: number }>`select used from account_usage
        where account_id = ${first.accountId} and "window" = ${window}`.execute(kysely(first.em));
      // Two windows when the clock struck meanwhile.
      assert.ok(
        rows.every(({ used }) => used <= limit),
        JSON.stringify(rows),
      );
      assert.ok((await caughtMails(first)).length <= limit * rows.length);
    };
    await assertKept("HOUR", hourlyLimit);
    await sql`update email_accounts set hourly_limit = null where id = ${first.accountId}`.execute(kysely(first.em));
    await assertKept("DAY", dailyLimit);
    await sql`update email_accounts set daily_limit = null where id = ${first.accountId}`.execute(kysely(first.em));
    await eventually(
      async () => {
        await retry();
        return (await caughtMails(first)).length >= 60 * all.length;
      },
      { what: "the rest" },
    );
    for (const each of all) await untilStatus(each, ["SENT"]);
    for (const each of all) {
      assert.equal(await assertHonest(each, 60), 0);
    }
  });
});

/** Holds a team's credits, and with them every confirm of the team, while `work` runs. */
async function whileCreditsAreHeld(sender: Sender, work: () => Promise<void>): Promise<void> {
  await sender.em.fork().transactional(async (tx) => {
    await sql`select 1 from credit_balances where team_id = ${sender.team.id} for update`.execute(kysely(tx));
    await work();
  });
}

/** Waits until a confirm waits for the lock on the credits. */
const untilConfirmWaits = ({ em }: Sender) =>
  eventually(
    async () => {
      const { rows } = await sql`select 1 from pg_stat_activity
        where datname = current_database() and wait_event_type = 'Lock' and query like '%credit_balances%'`.execute(
        kysely(em.fork()),
      );
      return rows.length > 0;
    },
    { what: "a confirm in the database" },
  );

const isScheduled = async ({ em, newsletterId }: Sender): Promise<boolean> => {
  const { rows } = await sql`select 1 from newsletters where id = ${newsletterId} and send_id is not null`.execute(
    kysely(em.fork()),
  );
  return rows.length > 0;
};

/** Waits until the API answers again. */
const untilApiAnswers = ({ client, newsletterId }: Sender) =>
  eventually(async () => (await client.get(`/newsletters/${newsletterId}`)).status === 200, {
    what: "the API",
  });

describe("A confirm whose API is killed", () => {
  it("after the commit and before the answer is answered by the retry, to the byte, and is armed once", async () => {
    const sender = await makeSender({ recipients: 20, credits: 100 });
    const token = await tokenOf(sender);
    const key = freshKey();
    let unheard: Promise<unknown> = Promise.resolve();
    await whileCreditsAreHeld(sender, async () => {
      unheard = confirm(sender, token, key).then(
        () => assert.fail("the API answered"),
        () => undefined,
      );
      await untilConfirmWaits(sender);
      // From here on it cannot answer any more.
      process.kill(pidOf("api"), "SIGSTOP");
    });
    await eventually(() => isScheduled(sender), { what: "the commit" });
    const { again } = kill("api");
    await unheard;
    await again;
    await untilApiAnswers(sender);

    const { rows } = await sql<{ payload: string; requestId: string }>`
      select payload, request_id as "requestId" from idempotency_records
      where team_id = ${sender.team.id} and status = 202`.execute(kysely(sender.em));
    const retried = await confirm(sender, token, key);
    assert.equal(retried.status, 202, retried.text);
    assert.equal(retried.headers.get("idempotent-replayed"), "true");
    const [answered] = rows;
    assert.equal(rows.length, 1);
    assert.equal(retried.body.meta.request_id, answered?.requestId, "the first request's answer");
    assert.equal(retried.body.data.id, JSON.parse(answered?.payload ?? "{}").sendId);
    assert.equal((await confirm(sender, token, key)).text, retried.text);
    assert.equal((await confirm(sender, token)).body.error?.code, "confirmation_stale");
    await untilStatus(sender, ["SENT"]);
    await assertHonest(sender, 20);
    assert.deepEqual(await credits(sender), { available: 80, reserved: 0, mismatch: false });
  });

  it("before the commit is still carried out: the retry waits for it and gets the 202", async () => {
    const sender = await makeSender({ recipients: 20, credits: 100 });
    const token = await tokenOf(sender);
    const key = freshKey();
    await whileCreditsAreHeld(sender, async () => {
      const unheard = confirm(sender, token, key).then(
        () => assert.fail("the API answered"),
        () => undefined,
      );
      await untilConfirmWaits(sender);
      const { again } = kill("api");
      await unheard;
      await again;
      await untilApiAnswers(sender);
      const early = await confirm(sender, token, key);
      assert.equal(early.body.error?.code, "request_in_flight", early.text);
    });
    await eventually(async () => (await confirm(sender, token, key)).status === 202, { what: "the 202" });
    await untilStatus(sender, ["SENT"]);
    await assertHonest(sender, 20);
    assert.deepEqual(await credits(sender), { available: 80, reserved: 0, mismatch: false });
  });
});

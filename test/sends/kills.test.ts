import assert from "node:assert/strict";
import fc from "fast-check";
import { sql } from "kysely";
import { kysely } from "../../db/orm.ts";
import { mostInFlight } from "../../domain/sends/account-capacity.ts";
import { eventually } from "../support/eventually.ts";
import { KINDS } from "../support/kinds.ts";
import { testsOf } from "../support/long.ts";
import { openNamespace } from "../support/namespace.ts";
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
  untilBlocked,
  untilStatus,
} from "../support/sending.ts";
import { type SmtpProxy, startSmtpProxy } from "../support/smtp-proxy.ts";
import { stack } from "../support/stack.ts";
import { emittedEvents, listen } from "../webhooks/outbox.ts";

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

const { it, longIt } = testsOf();

/** Lets each mail of a sender take a while, starts its send, and waits until the catcher has some of its mails. */
async function begin(sender: AnySender, delayMs: number, mails: number): Promise<string> {
  await setFaults([{ stage: "data", match: sender.audience, delayMs }]);
  const { data } = await startSend(sender);
  await eventually(async () => (await caughtMails(sender)).length > mails, { what: `${mails} mails` });
  return data.id;
}

describe("A send", () => {
  afterEach(() => setFaults([]));

  it("loses no recipient, mails none twice and emits an event for each mail when its worker is killed in a slice", async () => {
    const [recipients, connections] = [400, 10];
    const sender = await makeSender({ recipients, credits: recipients, account: { maxConnections: connections } });
    await listen(sender, { events: ["email.sent"] });
    await begin(sender, 20, 80);
    const { again } = kill("dispatch");
    // Its connections would be free after twelve seconds.
    await sql`update account_leases set expires_at = now() where account_id = ${sender.accountId}`.execute(
      kysely(sender.em),
    );
    await untilStatus(sender, ["SENT"]);
    const unknown = await assertHonest(sender, recipients);
    assert.ok(unknown <= mostInFlight(connections), `${unknown} unknown`);
    const sent = (await outcomesOf(sender)).flatMap(({ email, state }) => (state === "SENT" ? email : []));
    assert.deepEqual((await emittedEvents(sender)).map(({ object }) => object.email).sort(), sent.sort());
    assert.equal((await credits(sender)).available, 0, "what may have arrived is paid for");
    await again;
  });

  for (const { type, make } of KINDS) {
    const furtherAccounts = type === "campaign" ? [{}] : [];

    longIt(`continues after five kills of its worker in 2,000 recipients (${type}, SEED=${SEED})`, async () => {
      const [recipients, connections, kills] = [2_000, 10, 5];
      const sender = await make({ recipients, account: { maxConnections: connections }, furtherAccounts });
      await setFaults([{ stage: "data", match: sender.audience, delayMs: 5 }]);
      // One in every fifth of the mails, the first and the last few left out.
      const [at = []] = fc.sample(fc.tuple(...Array.from({ length: kills }, () => fc.nat(300))), {
        seed: SEED,
        numRuns: 1,
      });
      await startSend(sender);
      for (const [index, offset] of at.entries()) {
        const wanted = index * 380 + 20 + offset;
        // By the ledger: an outcome that a kill made unknown may stand for a mail that never came.
        const handled = async () => {
          const { QUEUED = 0, SENDING = 0 } = await ledgerStates(sender);
          return recipients - QUEUED - SENDING >= wanted;
        };
        await eventually(handled, { what: `${wanted} outcomes` });
        await kill("dispatch").again;
      }
      await untilStatus(sender, ["SENT"]);
      const unknown = await assertHonest(sender, recipients);
      assert.ok(unknown <= mostInFlight(connections) * sender.accountIds.length * kills, `${unknown} unknown`);
    });

    longIt(`has no unknown outcome after a kill of Temporal, because no worker died (${type})`, async () => {
      const sender = await make({ recipients: 600, account: { maxConnections: 4 }, furtherAccounts });
      await begin(sender, 20, 100);
      await kill("temporal").again;
      await untilStatus(sender, ["SENT"], 90_000);
      await eventually(async () => !(await ledgerStates(sender))["UNKNOWN"], { what: "every outcome" });
      await assertHonest(sender, 600);
    });

    longIt(`has no unknown outcome when its worker is asked to stop, or Postgres is restarted (${type})`, async () => {
      for (const [child, signal] of [
        ["dispatch", "SIGTERM"],
        // An immediate shutdown: connections are cut, and nothing is checkpointed.
        ["postgres", "SIGQUIT"],
      ] as const) {
        const sender = await make({ recipients: 600, account: { maxConnections: 4 }, furtherAccounts });
        await begin(sender, 20, 50);
        const worker = pidOf("dispatch");
        await kill(child, signal).again;
        await untilStatus(sender, ["SENT"]);
        assert.equal(await assertHonest(sender, 600), 0);
        assert.equal(pidOf("dispatch") === worker, child === "postgres");
      }
    });
  }
});

/** The workers that may open connections of an account, by their pids. */
async function holders({ em, accountId }: Sender): Promise<number[]> {
  const { rows } = await sql<{ holder: string }>`select holder from account_leases
    where account_id = ${accountId} and connections > 0 and expires_at > clock_timestamp()`.execute(kysely(em.fork()));
  return rows.map(({ holder }) => Number(holder.split("-").at(-2)));
}

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

/** The stack's worker takes 40 slices at once: one of as many sends and one is another worker's. */
const ENOUGH = 41;

/** The epoch of a send's only lane: each try of a slice raises it. */
async function epochOf({ em }: Sender, sendId: string): Promise<number> {
  const { rows } = await sql<{ epoch: number }>`select epoch from send_lanes where send_id = ${sendId}`.execute(
    kysely(em.fork()),
  );
  return rows[0]?.epoch ?? 0;
}

describe("Two dispatching workers", () => {
  let worker: TestWorker | undefined;
  let proxy: SmtpProxy | undefined;

  afterEach(async () => {
    await setFaults([]);
    await worker?.stop();
    proxy?.close();
    worker = undefined;
    proxy = undefined;
  });

  longIt("mail no recipient twice when one continues after the other took over its slice", async () => {
    const own = await openNamespace();
    /** So that a slice passes many checkpoints. */
    const rows = { DISPATCH_SLICE_ROWS: "10" };
    /** A suspended worker is still given work while it polls; one that is full does not poll. */
    const full = { ...rows, ACTIVITY_CONCURRENCY: "1" };
    const [recipients, connections] = [200, 2];
    try {
      const [, suspended] = await Promise.all([own.startWorker("sends"), own.startWorker("dispatch", full)]);
      const sender = own.within(await makeSender({ recipients, account: { maxConnections: connections } }));
      const sendId = await begin(sender, 25, 40);
      suspended.signal("SIGSTOP");
      await setFaults([]);
      const before = await epochOf(sender, sendId);
      await own.startWorker("dispatch", rows);
      await eventually(async () => (await epochOf(sender, sendId)) > before, { what: "the next try" });
      suspended.signal("SIGCONT");
      await untilStatus(sender, ["SENT"]);
      const unknown = await assertHonest(sender, recipients);
      assert.ok(unknown <= mostInFlight(connections), `${unknown} unknown`);
    } finally {
      await own.close();
    }
  });

  longIt("keep to an account's connections, lose no recipient and mail none twice when one is killed", async () => {
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
    assert.ok(unknown <= mostInFlight(maxConnections), `${unknown} unknown`);
    assert.ok(proxy.most <= maxConnections, `${proxy.most} connections at once`);
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
const untilConfirmWaits = (sender: Sender) => untilBlocked(sender, "%credit_balances%");

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

describe("A confirm", () => {
  it("during which Postgres restarts is answered by its retry, and reserves its credits once", async () => {
    const sender = await makeSender({ recipients: 20, credits: 100 });
    const token = await tokenOf(sender);
    const key = freshKey();
    const holder = sender.em.fork();
    await holder.begin();
    await sql`select 1 from credit_balances where team_id = ${sender.team.id} for update`.execute(kysely(holder));
    const unheard = confirm(sender, token, key).catch(() => undefined);
    await untilConfirmWaits(sender);
    // An immediate shutdown: the transactions of both are gone.
    await kill("postgres", "SIGQUIT").again;
    await holder.rollback().catch(() => undefined);
    await unheard;
    await eventually(async () => (await confirm(sender, token, key)).status === 202, { what: "the 202" });
    await untilStatus(sender, ["SENT"]);
    assert.equal(await assertHonest(sender, 20), 0);
    assert.deepEqual(await credits(sender), { available: 80, reserved: 0, mismatch: false });
  });

  it("whose API is killed after the commit and before the answer is answered by the retry, to the byte, and is armed once", async () => {
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

  longIt("whose API is killed before the commit is carried out, and its retry gets the 202", async () => {
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

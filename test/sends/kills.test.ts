import assert from "node:assert/strict";
import fc from "fast-check";
import { sql } from "kysely";
import { kysely } from "../../db/orm.ts";
import { eventually } from "../support/eventually.ts";
import { kill, pidOf, SEED } from "../support/processes.ts";
import {
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
import { stack } from "../support/stack.ts";

/** How many mails the catcher has got from anybody, ever. */
async function received(): Promise<number> {
  const { mail } = await stack();
  const stats = (await (await fetch(new URL("/api/stats", mail.api))).json()) as { received: number };
  return stats.received;
}

/** Waits until the catcher has got `count` mails more than `since`. */
const untilCaught = (count: number, since: number, withinMs = 30_000) =>
  eventually(async () => (await received()) - since >= count, { withinMs, what: `${count} mails` });

/**
 * What must hold when a send is over, whatever happened to it: the ledger's states add up to the plan, who is SENT was
 * mailed once, who is UNKNOWN once at most, everybody else never, and the credits are settled.
 */
async function assertHonest(sender: Sender, recipients: number): Promise<{ states: Record<string, number> }> {
  const states = (await ledgerStates(sender)) as Record<string, number>;
  const told = JSON.stringify(states);
  assert.deepEqual(
    Object.keys(states).filter((state) => state !== "SENT" && state !== "UNKNOWN"),
    [],
    told,
  );
  assert.equal((states["SENT"] ?? 0) + (states["UNKNOWN"] ?? 0), recipients, told);
  const times = new Map<string, number>();
  for (const address of (await caughtMails(sender)).flatMap(({ to }) => to)) {
    times.set(address, (times.get(address) ?? 0) + 1);
  }
  const { rows } = await sql<{ email: string; state: string }>`
    select r.email, r.state from send_recipients r join newsletters n on n.send_id = r.send_id
    where n.id = ${sender.newsletterId}`.execute(kysely(sender.em));
  assert.equal(rows.length, recipients);
  assert.deepEqual(
    rows.filter(({ email, state }) => {
      const caught = times.get(email) ?? 0;
      return state === "SENT" ? caught !== 1 : caught > 1;
    }),
    [],
    "SENT is mailed once, UNKNOWN once at most",
  );
  const known = new Set(rows.map(({ email }) => email));
  assert.deepEqual(
    [...times.keys()].filter((email) => !known.has(email)),
    [],
    "nobody else is mailed",
  );
  const { reserved, mismatch } = await credits(sender);
  assert.deepEqual({ reserved, mismatch }, { reserved: 0, mismatch: false });
  return { states };
}

describe("A send under kills", () => {
  afterEach(() => setFaults([]));

  it(`outlives five kills of its worker in 2,000 recipients (SEED=${SEED})`, async function () {
    this.timeout(180_000);
    const [recipients, connections, kills] = [2_000, 10, 5];
    const sender = await makeSender({ recipients, account: { maxConnections: connections } });
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
    await untilStatus(sender, ["SENT"], 60_000);
    const { states } = await assertHonest(sender, recipients);
    assert.ok((states["UNKNOWN"] ?? 0) <= 3 * connections * kills, JSON.stringify(states));
  });

  it("outlives a kill of Temporal: nobody is unknown, because no worker died", async function () {
    this.timeout(120_000);
    const sender = await makeSender({ recipients: 600, account: { maxConnections: 4 } });
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

/** Holds a team's credits, and with them every confirm of the team, while `work` runs. */
async function whileCreditsAreHeld(sender: Sender, work: () => Promise<void>): Promise<void> {
  await sender.em.fork().transactional(async (tx) => {
    await sql`select 1 from credit_balances where team_id = ${sender.team.id} for update`.execute(kysely(tx));
    await work();
  });
}

/** Waits until a confirm stands at the credits that are held. */
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
    withinMs: 30_000,
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
      // What is committed from here on, it cannot tell any more.
      process.kill(pidOf("api"), "SIGSTOP");
    });
    await eventually(() => isScheduled(sender), { what: "the commit" });
    const { again } = kill("api");
    await unheard;
    await again;
    await untilApiAnswers(sender);

    const { rows } = await sql<{ body: string }>`select body from idempotency_records
      where team_id = ${sender.team.id} and status = 202`.execute(kysely(sender.em));
    const retried = await confirm(sender, token, key);
    assert.equal(retried.status, 202, retried.text);
    assert.equal(retried.headers.get("idempotent-replayed"), "true");
    assert.deepEqual(rows, [{ body: retried.text }]);
    assert.equal((await confirm(sender, token, key)).text, retried.text);
    assert.equal((await confirm(sender, token)).body.error?.code, "confirmation_stale");
    await untilStatus(sender, ["SENT"]);
    await assertHonest(sender, 20);
    assert.deepEqual(await credits(sender), { available: 80, reserved: 0, mismatch: false });
  }).timeout(60_000);

  it("before the commit is still carried out: the retry waits for it and then hears the 202", async () => {
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
  }).timeout(60_000);
});

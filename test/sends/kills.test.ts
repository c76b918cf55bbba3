import assert from "node:assert/strict";
import { sql } from "kysely";
import { kysely } from "../../db/orm.ts";
import { mostInFlight } from "../../domain/sends/ledger/account-capacity.ts";
import { TASK_QUEUES } from "../../temporal/ids.ts";
import { eventually } from "../support/eventually.ts";
import { testsOf } from "../support/long.ts";
import { openNamespace } from "../support/namespace.ts";
import { type Outcome, outcomesOf } from "../support/outcomes.ts";
import { kill, pidOf } from "../support/processes.ts";
import {
  type AnySender,
  caughtMails,
  confirm,
  credits,
  freshKey,
  makeSender,
  preview,
  type Sender,
  setFaults,
  startSend,
  tokenOf,
  untilBlocked,
  untilStatus,
} from "../support/sending.ts";
import { emittedEvents, listen } from "../webhooks/outbox.ts";

/** Each recipient is SENT and was mailed once, or UNKNOWN and mailed once at most. @returns how many are UNKNOWN */
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

  it("has its preview given to another worker while the client waits, when one has taken the task and stopped", async () => {
    const { within, close, connection, namespace } = await openNamespace();
    try {
      const take = () =>
        connection.withDeadline(Date.now() + 60_000, () =>
          connection.workflowService.pollWorkflowTaskQueue({ namespace, taskQueue: { name: TASK_QUEUES.sends } }),
        );
      let isAnswered = false;
      const answered = preview(within(await makeSender({ recipients: 1 }))).then(() => {
        isAnswered = true;
      });
      assert.equal((await take()).attempt, 1);
      assert.equal((await take()).attempt, 2);
      assert.equal(isAnswered, false);
      await answered;
    } finally {
      await close();
    }
  });

  longIt("has no unknown outcome when its worker is asked to stop, or Postgres is restarted", async () => {
    for (const [child, signal] of [
      ["dispatch", "SIGTERM"],
      // An immediate shutdown: connections are cut, and nothing is checkpointed.
      ["postgres", "SIGQUIT"],
    ] as const) {
      const sender = await makeSender({ recipients: 600, account: { maxConnections: 4 } });
      await begin(sender, 20, 50);
      const worker = pidOf("dispatch");
      await kill(child, signal).again;
      await untilStatus(sender, ["SENT"]);
      assert.equal(await assertHonest(sender, 600), 0);
      assert.equal(pidOf("dispatch") === worker, child === "postgres");
    }
  });
});

/** The epoch of a send's only lane: each try of a slice raises it. */
async function epochOf({ em }: Sender, sendId: string): Promise<number> {
  const { rows } = await sql<{ epoch: number }>`select epoch from send_lanes where send_id = ${sendId}`.execute(
    kysely(em.fork()),
  );
  return rows[0]?.epoch ?? 0;
}

describe("Two dispatching workers", () => {
  afterEach(() => setFaults([]));

  longIt("mail no recipient twice when one continues after the other took over its slice", async () => {
    const own = await openNamespace();
    /** A suspended worker is still given work while it polls; one that is full does not poll. */
    const full = { ACTIVITY_CONCURRENCY: "1" };
    const [recipients, connections] = [200, 2];
    try {
      const [, suspended] = await Promise.all([own.startWorker("sends"), own.startWorker("dispatch", full)]);
      const sender = own.within(await makeSender({ recipients, account: { maxConnections: connections } }));
      const sendId = await begin(sender, 25, 40);
      suspended.signal("SIGSTOP");
      await setFaults([]);
      const before = await epochOf(sender, sendId);
      await own.startWorker("dispatch");
      await eventually(async () => (await epochOf(sender, sendId)) > before, { what: "the next try" });
      suspended.signal("SIGCONT");
      await untilStatus(sender, ["SENT"]);
      const unknown = await assertHonest(sender, recipients);
      assert.ok(unknown <= mostInFlight(connections), `${unknown} unknown`);
    } finally {
      await own.close();
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

const untilConfirmWaits = (sender: Sender) => untilBlocked(sender, "%credit_balances%");

const isScheduled = async ({ em, newsletterId }: Sender): Promise<boolean> => {
  const { rows } = await sql`select 1 from newsletters where id = ${newsletterId} and send_id is not null`.execute(
    kysely(em.fork()),
  );
  return rows.length > 0;
};

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
});

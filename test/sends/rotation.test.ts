import assert from "node:assert/strict";
import { sql } from "kysely";
import type { RecipientState } from "../../db/entities/send.ts";
import { kysely } from "../../db/orm.ts";
import { disconnectAccount } from "../../domain/accounts/disconnect.ts";
import { type Sink, startSink } from "../mail/smtp-sink.ts";
import { eventually } from "../support/eventually.ts";
import { testsOf } from "../support/long.ts";
import { outcomesOf } from "../support/outcomes.ts";
import { useSendWorkflows } from "../support/send-workflows.ts";
import {
  beginToday,
  credits,
  ledgerStates,
  makeSender,
  type Sender,
  type SenderOptions,
  setFaults,
  setLogin,
  startSend,
  startTomorrow,
  untilStatus,
} from "../support/sending.ts";
import { stack } from "../support/stack.ts";
import { makeLong } from "../support/temporal.ts";

const { it, longIt } = testsOf();

describe("A send over two accounts", () => {
  const temporal = useSendWorkflows();
  const sinks: Sink[] = [];

  afterEach(async () => {
    await setFaults([]);
    for (const sink of sinks.splice(0)) await sink.close();
  });

  const dbOf = ({ em }: Sender) => kysely(em.fork());
  const twoAccounts = (recipients: number, options: SenderOptions = {}) =>
    makeSender({ recipients, credits: recipients, furtherAccounts: [{}], ...options });

  const setAccount = (sender: Sender, accountId: string | undefined, change: Record<string, unknown>) =>
    sql`update email_accounts set ${sql.join(
      Object.entries(change).map(([column, value]) => sql`${sql.ref(column)} = ${value}`),
    )} where id = ${accountId}`.execute(dbOf(sender));

  async function sharesOf(sender: Sender): Promise<Partial<Record<RecipientState, number>>[]> {
    const { rows } = await sql<{ account: string; state: RecipientState; count: number }>`
      select r.account_id as account, r.state, count(*)::int as count
      from send_recipients r join newsletters n on n.send_id = r.send_id
      where n.id = ${sender.newsletterId} group by 1, 2`.execute(dbOf(sender));
    return sender.accountIds.map((id) =>
      Object.fromEntries(rows.filter(({ account }) => account === id).map(({ state, count }) => [state, count])),
    );
  }

  async function assertAllSent(sender: Sender, recipients: number) {
    const outcomes = await outcomesOf(sender);
    assert.equal(outcomes.length, recipients);
    assert.deepEqual(
      outcomes.filter(({ state, caught }) => state !== "SENT" || caught !== 1),
      [],
    );
    assert.deepEqual(await credits(sender), { available: 0, reserved: 0, mismatch: false });
  }

  describe("shares its recipients", () => {
    it("by the speed of the accounts", async () => {
      const recipients = 220;
      const sender = await twoAccounts(recipients, {
        account: { maxConnections: 1 },
        furtherAccounts: [{ maxConnections: 10 }],
      });
      await setFaults([{ stage: "data", match: sender.audience, delayMs: 30 }]);
      await startSend(sender);
      await untilStatus(sender, ["SENT"]);
      await assertAllSent(sender, recipients);
      const [slow, fast] = await sharesOf(sender);
      // One in eleven would be exact.
      const share = (slow?.SENT ?? 0) / recipients;
      assert.ok(share > 0.01 && share < 0.25, `${slow?.SENT} over 1 connection, ${fast?.SENT} over 10`);
    });

    it("by the limits of the accounts, exactly, and ends when one is used up", async () => {
      const [recipients, hourlyLimit] = [80, 7];
      const sender = await twoAccounts(recipients, {
        account: { maxConnections: 2, hourlyLimit },
        furtherAccounts: [{ hourlyLimit: null }],
      });
      await setFaults([{ stage: "data", match: sender.audience, delayMs: 40 }]);
      await startSend(sender);
      await untilStatus(sender, ["SENT"]);
      await assertAllSent(sender, recipients);
      const [limited, other] = await sharesOf(sender);
      const { rows } = await sql<{ used: number }>`select used from account_usage
        where account_id = ${sender.accountId} and "window" = 'HOUR'`.execute(dbOf(sender));
      // Two windows when the clock struck meanwhile.
      const used = rows.reduce((sum, window) => sum + window.used, 0);
      assert.ok(used >= hourlyLimit && rows.every((window) => window.used <= hourlyLimit), JSON.stringify(rows));
      assert.deepEqual([limited, other], [{ SENT: used }, { SENT: recipients - used }]);
    });
  });

  describe("gives the share of an account to the other", () => {
    /** Each makes one account fail, before the send begins or during it. */
    const FAILURES: [
      failure: string,
      fail: (sender: Sender, accountId: string) => Promise<unknown>,
      accountStatus: string,
    ][] = [
      ["that is not ACTIVE", (sender, id) => setAccount(sender, id, { status: "SUSPENDED" }), "SUSPENDED"],
      ["whose login is refused", (sender, id) => refuseLogin(sender, id), "ERROR"],
    ];

    async function refuseLogin(sender: Sender, accountId: string) {
      await setLogin(sender, "not the password", [accountId]);
      await setFaults([
        { stage: "auth", code: 535, message: "5.7.8 no" },
        // The other account must not be done before this one has tried.
        { stage: "data", match: sender.audience, delayMs: 300 },
      ]);
    }

    for (const [failure, fail, accountStatus] of FAILURES) {
      it(`${failure}, and ends without an operator`, async () => {
        // More than the other account takes at once.
        const recipients = 200;
        const sender = await twoAccounts(recipients);
        const { data } = await startTomorrow(sender);
        await fail(sender, sender.accountId);
        await beginToday(sender, data.id);
        await untilStatus(sender, ["SENT"]);
        await assertAllSent(sender, recipients);
        assert.deepEqual(await sharesOf(sender), [{}, { SENT: recipients }]);
        assert.deepEqual(await temporal.workflowOf(data.id).result(), {
          outcome: "SENT",
          sent: recipients,
          unknown: 0,
        });
        assert.equal(await temporal.needsOperator(data.id), false);
        const statusOf = async () => (await sender.client.get(`/accounts/${sender.accountId}`)).body.data.status;
        await eventually(async () => (await statusOf()) === accountStatus, {
          what: `the account to be ${accountStatus}`,
        });
      });
    }

    it("with its deferred recipients, which are its own as long as it works", async () => {
      const recipients = 6;
      const deferring = await startSink({ rcpt: () => ({ code: 450, text: "4.2.0 later" }) });
      sinks.push(deferring);
      const sender = await twoAccounts(recipients, {
        account: { maxConnections: 4, host: "127.0.0.1", port: deferring.port },
      });
      const [first = "", second = ""] = sender.accountIds;
      const { hostname, port } = new URL((await stack()).mail.smtp);
      await setAccount(sender, second, { host: hostname, port: Number(port) });
      const { data } = await startTomorrow(sender);
      await setAccount(sender, second, { status: "SUSPENDED" });
      await beginToday(sender, data.id);
      await temporal.untilDetails(data.id, [`${second} has failed (account_not_active)`]);
      await eventually(async () => (await ledgerStates(sender)).DEFERRED === recipients, { what: "the deferrals" });
      await setAccount(sender, second, { status: "ACTIVE" });
      await temporal.command(data.id, "retry");
      await temporal.untilDetails(data.id, [`${second} has nothing left to mail`]);
      assert.deepEqual((await sharesOf(sender))[1], {}, "those of the first account");

      await disconnectAccount(sender.em.fork(), { teamId: sender.team.id, environment: "LIVE", accountId: first });
      await untilStatus(sender, ["SENT"]);
      await assertAllSent(sender, recipients);
      assert.deepEqual(await sharesOf(sender), [{}, { SENT: recipients }]);
    });

    longIt("in the next run too, when its history got long", async () => {
      const recipients = 20;
      const sender = await twoAccounts(recipients);
      const [first = "", second = ""] = sender.accountIds;
      const { port } = new URL((await stack()).mail.smtp);
      const { data } = await startTomorrow(sender);
      await setAccount(sender, first, { status: "SUSPENDED" });
      await setAccount(sender, second, { port: 1 });
      await beginToday(sender, data.id);
      await temporal.untilDetails(data.id, ["has failed (account_not_active)", "connection_refused"]);
      const handle = temporal.workflowOf(data.id);
      const { runId } = await handle.describe();
      await makeLong(handle);
      // The ladder of the second wakes it.
      await eventually(async () => (await handle.describe()).runId !== runId, {
        what: "another run",
      });
      await temporal.untilDetails(data.id, [`${first} has failed (account_not_active)`]);
      await setAccount(sender, first, { status: "ACTIVE" });
      await setAccount(sender, second, { port: Number(port) });
      await untilStatus(sender, ["SENT"]);
      await assertAllSent(sender, recipients);
      assert.deepEqual(await sharesOf(sender), [{}, { SENT: recipients }], "the first is not tried without a command");
    });

    it("until none is left: it pauses with the reason of each, and a resume tries all again", async () => {
      const recipients = 30;
      const sender = await twoAccounts(recipients);
      const [first = "", second = ""] = sender.accountIds;
      const { data } = await startTomorrow(sender);
      await refuseLogin(sender, first);
      await setAccount(sender, second, { status: "SUSPENDED" });
      await beginToday(sender, data.id);
      await untilStatus(sender, ["PAUSED"]);
      await temporal.untilDetails(data.id, [`${first} login_refused`, `${second} account_not_active`, "resume"]);
      assert.equal(await temporal.needsOperator(data.id), true);
      assert.deepEqual(await ledgerStates(sender), { QUEUED: recipients });

      // One of them is enough.
      await setAccount(sender, second, { status: "ACTIVE" });
      await temporal.command(data.id, "resume");
      await untilStatus(sender, ["SENT"]);
      await assertAllSent(sender, recipients);
      assert.deepEqual(await sharesOf(sender), [{}, { SENT: recipients }]);
      assert.equal(await temporal.needsOperator(data.id), false);
    });
  });
});

import assert from "node:assert/strict";
import { pino } from "pino";
import { type AccountPool, AccountPools } from "../../activities/account-pools.ts";
import { TeamSlots } from "../../activities/dispatch.ts";
import { kysely } from "../../db/orm.ts";
import { composeMessage } from "../../domain/mail/message.ts";
import { startSink } from "../mail/smtp-sink.ts";
import { sendOne } from "../mail/smtp-suite.ts";
import { eventually } from "../support/eventually.ts";
import { backdoor } from "../support/factories.ts";
import { makeSender, type Sender } from "../support/sending.ts";
import { LOOPBACK_ONLY, within } from "../support/smtp-guard.ts";
import { startSmtpProxy } from "../support/smtp-proxy.ts";

const message = composeMessage({ subject: "Hello", html: "<p>Hello</p>", fromEmail: "news@example.com" });

async function poolsOf(workerId: string): Promise<AccountPools> {
  const { orm, vault } = await backdoor();
  return new AccountPools({
    ...{ orm, vault, workerId },
    log: pino({ level: "silent" }),
    guard: LOOPBACK_ONLY,
    slots: new TeamSlots(4, 40),
    postForm: () => assert.fail("the account has a password"),
    name: "mail.example.com",
    limits: within(5_000),
  });
}

async function mail({ pool }: AccountPool, { audience }: Sender, count: number): Promise<void> {
  const outcomes = await Promise.all(
    Array.from({ length: count }, (_, i) =>
      sendOne(
        pool,
        message.fill({
          email: `warm${i}@${audience}`,
          unsubscribeUrl: "https://mail.example.com/u/1",
          messageId: `warm-${i}@mail.example.com`,
          date: new Date(),
        }),
      ),
    ),
  );
  for (const { outcome } of outcomes) assert.equal(outcome, "sent");
}

describe("Open connections of an account", () => {
  const maxConnections = 6;

  it("begin with the name of the service", async () => {
    const [sink, pools] = [await startSink(), await poolsOf("greeting")];
    try {
      const sender = await makeSender({ recipients: 1, account: { host: "127.0.0.1", port: sink.port } });
      const { accountId, team } = sender;
      const acquired = await pools.acquire({ accountId, teamId: team.id, environment: "LIVE" }, {});
      await mail("pool" in acquired ? acquired : assert.fail("no connection is free"), sender, 1);
      assert.deepEqual(
        sink.received.map(({ name }) => name),
        ["mail.example.com"],
      );
    } finally {
      await pools.close();
      await sink.close();
    }
  });

  it("go to the process that has its next slice, and are never more than the account allows", async () => {
    const proxy = await startSmtpProxy();
    const [first, second] = [await poolsOf("first"), await poolsOf("second")];
    try {
      const sender = await makeSender({ recipients: 1, account: { ...proxy.account, maxConnections } });
      const { accountId, team, em } = sender;
      const account = { accountId, teamId: team.id, environment: "LIVE" as const };
      // As slices do, it asks again while the other process keeps connections that it does not use.
      const acquire = (pools: AccountPools) =>
        eventually(async () => {
          const acquired = await pools.acquire(account, {});
          return "pool" in acquired ? acquired : assert.fail("no connection is free");
        });
      const leases = async () => {
        const leased = await kysely(em.fork())
          .selectFrom("account_leases")
          .select(["holder", "connections"])
          .where("account_id", "=", accountId)
          .execute();
        return Object.fromEntries(leased.map(({ holder, connections }) => [holder, connections]));
      };
      for (const [pools, holder] of [
        [first, "first"],
        [second, "second"],
        [first, "first"],
      ] as const) {
        const used = await acquire(pools);
        assert.equal((await leases())[holder], maxConnections, "the other process keeps none");
        await mail(used, sender, 60);
        assert.ok(proxy.open > 0);
        pools.release(accountId, used);
      }
      assert.ok(proxy.most <= maxConnections, `${proxy.most} connections at once`);
    } finally {
      await Promise.all([first.close(), second.close()]);
      proxy.close();
    }
  });
});

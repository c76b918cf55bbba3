import assert from "node:assert/strict";
import { sql } from "kysely";
import { kysely } from "../../db/orm.ts";
import { forgetRefusals, leaseConnections, recordRefusal } from "../../domain/sends/ledger/account-capacity.ts";
import { makeSender, type Sender } from "../support/sending.ts";

const FOR_GOOD = { reason: "login_refused", temporary: false } as const;

describe("An account's refusals, over all workers", () => {
  let sender: Sender;
  beforeEach(async () => {
    sender = await makeSender({ recipients: 1, account: { maxConnections: 6 } });
  });

  const lease = (holder: string, options: Parameters<typeof leaseConnections>[3] = {}) => {
    const { em, team, accountId } = sender;
    return leaseConnections(em.fork(), { teamId: team.id, environment: "LIVE", accountId }, holder, options);
  };
  const refuse = () => recordRefusal(sender.em.fork(), sender.accountId, FOR_GOOD);
  const passTime = () =>
    sql`update account_refusals set retry_at = clock_timestamp() where account_id = ${sender.accountId}`.execute(
      kysely(sender.em),
    );

  it("let no worker have a connection until the wait has passed, then one worker at a time", async () => {
    await refuse();
    const { connections, refusal } = await lease("one");
    assert.equal(connections, 0);
    assert.deepEqual([refusal?.reason, refusal?.temporary], ["login_refused", false]);
    await passTime();
    assert.equal((await lease("one")).connections, 6);
    const other = await lease("two");
    assert.equal(other.connections, 0);
    assert.equal(other.refusal?.temporary, true, "it waits for the result");
    assert.ok((other.refusal?.retryInMs ?? 0) > 5_000);
  });

  it("let one of twenty workers try that come at once", async () => {
    await refuse();
    await passTime();
    const leases = await Promise.all(Array.from({ length: 20 }, (_, i) => lease(`worker ${i}`)));
    assert.equal(leases.filter(({ connections }) => connections > 0).length, 1);
  });

  it("double the wait from 5 s to 5 min, and begin anew after a login", async () => {
    const wait = async () => {
      await refuse();
      return Math.ceil(((await lease("one")).refusal?.retryInMs ?? 0) / 1_000);
    };
    const waits: number[] = [];
    for (let i = 0; i < 8; i++) waits.push(await wait());
    assert.deepEqual(waits, [5, 10, 20, 40, 80, 160, 300, 300]);
    await forgetRefusals(sender.em.fork(), sender.accountId);
    assert.deepEqual(await lease("one"), { connections: 6 });
    assert.equal(await wait(), 5);
  });

  it("hold up neither an operator's command nor a worker that is logged in", async () => {
    await refuse();
    assert.equal((await lease("one", { isLoggedIn: true })).connections, 6);
    assert.equal((await lease("two")).connections, 0);
    await kysely(sender.em).deleteFrom("account_leases").where("account_id", "=", sender.accountId).execute();
    assert.equal((await lease("two", { tryNow: true })).connections, 6);
  });

  it("take no turn from a worker that finds all connections leased", async () => {
    await refuse();
    assert.equal((await lease("one", { isLoggedIn: true })).connections, 6);
    await passTime();
    assert.deepEqual(await lease("two"), { connections: 0, refusal: { ...FOR_GOOD, retryInMs: 0 } });
    await kysely(sender.em).deleteFrom("account_leases").where("account_id", "=", sender.accountId).execute();
    assert.equal((await lease("three")).connections, 6);
  });
});

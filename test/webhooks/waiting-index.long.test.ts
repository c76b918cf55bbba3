import assert from "node:assert/strict";
import { sql } from "kysely";
import { kysely } from "../../db/orm.ts";
import { newId } from "../../domain/ids.ts";
import { formGroups } from "../../domain/webhooks/grouping.ts";
import { makeEndpoint, makeTeam, PUBLIC_URL } from "../support/webhooks.ts";
import { FIRST_PASSES, withOwnDeliveries } from "./own-deliveries.ts";

const ENDPOINTS = 20;
const DELIVERIES = 1_000;
const MANY = 100_000;

describe("Many deliveries that wait for a group", () => {
  // A plan that reads or sorts all that wait takes longer than this at each pass of the relay.
  it(`are put into groups as soon when ${MANY.toLocaleString("en")} wait, new ones and returned ones`, async () => {
    const rolledBack = new Error("rolled back");
    const team = await makeTeam();
    const { id } = await makeEndpoint(team, { url: PUBLIC_URL });
    await team.em
      .fork()
      .transactional(async (tx) => {
        const first = newId("delivery");
        await sql`update webhook_health set consecutive_failures = 1, backlog_until = ${`${first}/2`} where webhook_id = ${id}`.execute(
          kysely(tx),
        );
        // A tenth came before the endpoint worked again, a tenth was returned.
        await sql`insert into webhook_deliveries
            (id, team_id, environment, webhook_id, event_id, event_type, status, attempts_used)
          select ${first} || '/' || (n % 10) || '/' || n, ${team.team.id}, 'LIVE', ${id}, 'event', 'newsletter.started',
            'PENDING', case when n % 10 = 9 then 1 else 0 end
          from generate_series(1, ${MANY}) n`.execute(kysely(tx));
        const began = performance.now();
        const groups = await formGroups(tx);
        const tookMs = performance.now() - began;
        const mine = groups.filter(({ webhookId }) => webhookId === id);
        assert.deepEqual(
          mine.map(({ size }) => size),
          Array.from({ length: 9 }, () => 100),
        );
        assert.ok(tookMs < 2_000, `${tookMs} ms`);
        throw rolledBack;
      })
      .catch((error: unknown) => assert.equal(error, rolledBack));
  });

  it("are put into groups as soon when the table was nearly empty at the first passes", async () => {
    await withOwnDeliveries(ENDPOINTS, async ({ tx, insert }) => {
      for (let pass = 0; pass < FIRST_PASSES; pass++) {
        await insert(1);
        await formGroups(tx);
        await sql`delete from webhook_groups`.execute(kysely(tx));
      }
      await insert(DELIVERIES);
      const began = performance.now();
      const groups = await formGroups(tx);
      const tookMs = performance.now() - began;
      assert.ok(groups.length > ENDPOINTS && groups.every(({ size }) => size === 100), `${groups.length} groups`);
      assert.ok(tookMs < 2_000, `${tookMs} ms`);
    });
  });
});

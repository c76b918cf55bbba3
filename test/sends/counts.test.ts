import assert from "node:assert/strict";
import { sql } from "kysely";
import { RECIPIENT_STATES } from "../../db/entities/send.ts";
import { kysely, type Tenant } from "../../db/orm.ts";
import { newId } from "../../domain/ids.ts";
import { countStates, foldCounts, readCounts } from "../../domain/sends/ledger/counts.ts";
import { makeTeam } from "../support/factories.ts";

describe("The counts of a newsletter", () => {
  it("are those of the ledger while statements change it and rows are folded at the same time", async () => {
    const { em, team } = await makeTeam();
    const tenant: Tenant = { teamId: team.id, environment: "LIVE" };
    const sendId = newId("send");
    const size = 1_000;
    const writers = 5;
    // SENT and settled, so that no worker takes it up.
    await sql`insert into sends (id, team_id, environment, resource_type, resource_id, api_key_id, status,
        recipients, send_at, settled_at)
      values (${sendId}, ${team.id}, 'LIVE', 'newsletter', 'nl_x', 'key_x', 'SENT', ${size}, now(),
        now())`.execute(kysely(em.fork()));
    await sql`insert into send_recipients (send_id, seq, member_id, email)
      select ${sendId}, n, 'sub_x', n || '@example.com' from generate_series(1, ${size}::int) n`.execute(
      kysely(em.fork()),
    );
    let writing = true;
    const folding = (async () => {
      while (writing) {
        await Promise.all([foldCounts(em.fork(), sendId), foldCounts(em.fork(), sendId)]);
        const counts = await readCounts(em.fork(), tenant, sendId);
        assert.equal(
          Object.values(counts).reduce((sum, count) => sum + count, 0),
          size,
          "they add up at each moment",
        );
      }
    })();
    const write = async (writer: number) => {
      for (let round = 0; round < 30; round++) {
        const state = RECIPIENT_STATES[(round * 7 + writer) % RECIPIENT_STATES.length] ?? assert.fail();
        await sql`update send_recipients set state = ${state}
          where send_id = ${sendId} and seq % ${writers}::int = ${writer} and seq % 11 = ${round % 11}`.execute(
          kysely(em.fork()),
        );
      }
    };
    await Promise.all(Array.from({ length: writers }, (_, writer) => write(writer))).finally(() => {
      writing = false;
    });
    await folding;
    const counts = await readCounts(em, tenant, sendId);
    const nonzero = Object.fromEntries(Object.entries(counts).filter(([, count]) => count > 0));
    assert.deepEqual(nonzero, await countStates(em, sendId));
    await foldCounts(em, sendId);
    assert.deepEqual(await readCounts(em, tenant, sendId), counts);
  });
});

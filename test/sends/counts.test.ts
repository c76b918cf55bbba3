import assert from "node:assert/strict";
import { sql } from "kysely";
import { appRouter } from "../../api/router.ts";
import { RECIPIENT_STATES } from "../../db/entities/send.ts";
import { type EntityManager, kysely, type Tenant } from "../../db/orm.ts";
import { newId } from "../../domain/ids.ts";
import { foldCounts, readCounts } from "../../domain/sends/counts.ts";
import { countStates } from "../../domain/sends/ledger.ts";
import { api } from "../support/api.ts";
import { serveRoutes } from "../support/app.ts";
import { makeTeam } from "../support/factories.ts";
import { openRecordingOrm } from "../support/recording.ts";
import { ledgerStates, makeSender, people, sendAndWait, setFaults } from "../support/sending.ts";
import { stack } from "../support/stack.ts";

/** Rows of `send_counts` after a fold, and those that the end of a send may add. */
const FEW_ROWS = 2 * RECIPIENT_STATES.length;

const countRows = async (em: EntityManager, sendId: string): Promise<number> => {
  const { rows } = await sql<{ rows: number }>`
    select count(*)::int as rows from send_counts where send_id = ${sendId}`.execute(kysely(em.fork()));
  return rows[0]?.rows ?? Number.NaN;
};

describe("The counts of a newsletter", () => {
  afterEach(() => setFaults([]));

  it("are those of its ledger, and the ledger is not read for them", async () => {
    const sender = await makeSender({
      recipients: [
        ...people(250, "fine.counts.example"),
        ...people(30, "gone.counts.example"),
        ...people(5, "cut.counts.example"),
      ],
    });
    await setFaults([
      { stage: "rcpt", match: "@gone.counts", code: 550, message: "5.1.1 No such user" },
      { stage: "data", match: "@cut.counts", drop: true },
    ]);
    await sendAndWait(sender);

    const recording = await openRecordingOrm((await stack()).env.DATABASE_URL);
    const app = await serveRoutes(appRouter, { with: { orm: recording.orm } });
    try {
      const { body } = await api(sender.keys.live, app.base).get(`/newsletters/${sender.newsletterId}`);
      const ledger = await ledgerStates(sender);
      assert.deepEqual([ledger.SENT, ledger.REJECTED, ledger.UNKNOWN], [250, 30, 5]);
      assert.deepEqual(body.data.recipients, {
        total: 285,
        queued: 0,
        sending: 0,
        sent: 250,
        rejected: 30,
        deferred: 0,
        unknown: 5,
        expired: 0,
        suppressed: 0,
        cancelled: 0,
      });
      const reads = recording.statements.filter(({ text }) => text.includes("send_recipients"));
      assert.deepEqual(reads, []);
      const { rows } = await sql<{ id: string }>`
        select send_id as id from newsletters where id = ${sender.newsletterId}`.execute(kysely(sender.em));
      assert.ok((await countRows(sender.em, rows[0]?.id ?? "")) <= FEW_ROWS, "a slice leaves few rows to add up");
    } finally {
      await app.close();
    }
  });

  it("are those of the ledger while statements change it and rows are folded at the same time", async () => {
    const { em, team } = await makeTeam();
    const tenant: Tenant = { teamId: team.id, environment: "LIVE" };
    const sendId = newId("send");
    const size = 1_000;
    const writers = 5;
    // SENT and settled, so that no worker takes it up.
    await sql`insert into sends (id, team_id, environment, resource_type, resource_id, api_key_id, status,
        recipients, credits_reserved, cap_limit, cap_used_today, send_at, settled_at)
      values (${sendId}, ${team.id}, 'LIVE', 'newsletter', 'nl_x', 'key_x', 'SENT', ${size}, ${size}, 1, 0, now(),
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
    assert.ok((await countRows(em, sendId)) <= RECIPIENT_STATES.length);
  });
});

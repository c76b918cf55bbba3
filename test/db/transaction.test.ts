import assert from "node:assert/strict";
import { sql } from "kysely";
import { type EntityManager, kysely } from "../../db/orm.ts";
import { IsolationLevel, transaction } from "../../db/transaction.ts";
import { openRecordingOrm, type RecordingOrm } from "../support/recording.ts";
import { stack } from "../support/stack.ts";

describe("A transaction", () => {
  let recording: RecordingOrm;
  let em: EntityManager;

  before(async () => {
    const { env } = await stack();
    recording = await openRecordingOrm(env.DATABASE_URL, 1);
    em = recording.orm.em.fork();
    // The first one prepares the statement that begins the others.
    await transaction(em, (tx) => idOf(tx));
  });
  beforeEach(() => {
    recording.statements.length = 0;
  });
  after(() => recording.orm.close(true));

  async function idOf(tx: EntityManager): Promise<string> {
    const { rows } = await sql<{ id: string }>`select txid_current()::text as id where ${1}::int = 1`.execute(
      kysely(tx),
    );
    return rows[0]?.id ?? "";
  }
  const texts = () => recording.statements.map(({ text }) => text.replace(/^select.*/, "select"));

  it("begins with its first statement, in one round trip", async () => {
    const [first, second] = await transaction(em, async (tx) => [await idOf(tx), await idOf(tx)]);
    assert.equal(first, second);
    assert.notEqual(await idOf(em), first);
    assert.deepEqual(texts(), ["select", "select", "commit", "select"]);
  });

  it("begins before a first statement without values too", async () => {
    const id = await transaction(em, async (tx) => {
      const { rows } = await sql<{ id: string }>`select txid_current()::text as id`.execute(kysely(tx));
      assert.equal(rows[0]?.id, await idOf(tx));
      return rows[0]?.id;
    });
    assert.notEqual(await idOf(em), id);
  });

  it("sends nothing when it does nothing", async () => {
    await transaction(em, async () => {});
    await assert.rejects(
      transaction(em, async () => {
        throw new Error("changed its mind");
      }),
      /changed its mind/,
    );
    assert.deepEqual(texts(), []);
  });

  it("is rolled back after a first statement that fails, and the connection begins the next one", async () => {
    const failing = transaction(em, (tx) => sql`select 1 / ${0}::int`.execute(kysely(tx)));
    await assert.rejects(failing, /division by zero/);
    assert.deepEqual(texts(), ["select", "rollback"]);

    const [first, second] = await transaction(em, async (tx) => [await idOf(tx), await idOf(tx)]);
    assert.equal(first, second);
  });

  it("takes its level of isolation", async () => {
    const level = await transaction(
      em,
      async (tx) => {
        const { rows } = await sql<{ level: string }>`
          select current_setting('transaction_isolation') as level where ${1}::int = 1`.execute(kysely(tx));
        return rows[0]?.level;
      },
      { isolationLevel: IsolationLevel.REPEATABLE_READ },
    );
    assert.equal(level, "repeatable read");
  });
});

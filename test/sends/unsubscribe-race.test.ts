import assert from "node:assert/strict";
import { sql } from "kysely";
import { kysely } from "../../db/orm.ts";
import { unsubscribeUrl } from "../../domain/mail/links.ts";
import { openDispatch } from "../../domain/sends/lanes.ts";
import { stageBatch } from "../../domain/sends/staging.ts";
import { kindOf } from "../support/kinds.ts";
import { startUntaken, untilBlocked } from "../support/sending.ts";
import { stack } from "../support/stack.ts";

/** The ways in which a person unsubscribes over HTTP. */
const FORMS = ["List-Unsubscribe=One-Click", "scope=lists", "scope=all", ""];

const kind = kindOf();

describe(`An unsubscribe from a ${kind.type} that is being staged`, () => {
  /** A send that is SENDING and that no worker takes. */
  async function begun(recipients: number) {
    const sender = await kind.make({ recipients });
    const sendId = await startUntaken(sender);
    const { accountId, em, vault } = sender;
    const lane = (await openDispatch(em.fork(), { sendId, accountId }, 40_000)) ?? assert.fail("there is no such lane");
    const { origin } = await stack();
    return {
      em,
      sendId,
      stage: (afterSeq: number, limit: number) => stageBatch(em.fork(), lane, { afterSeq, limit }),
      /** Resolves once the unsubscribe is answered. */
      unsubscribe: async (seq: number) => {
        const url = unsubscribeUrl(vault, origin, { sendId, seq });
        const body = FORMS[seq % FORMS.length] ?? "";
        assert.equal((await fetch(url, { method: "POST", body })).status, 200);
      },
    };
  }

  it("that was answered before a batch began keeps its person out of the batch, in any order", async () => {
    const recipients = 240;
    const { stage, unsubscribe } = await begun(recipients);
    /** Counts what happened: the order of answers and of batches. */
    let moment = 0;
    let cursor = 0;
    const answered = new Map<number, number>();
    const batchOf = new Map<number, number>();
    const asked = new Set<number>();
    let wake = () => {};
    const nextAnswer = () => new Promise<void>((resolve) => (wake = resolve));
    const person = async () => {
      while (cursor < recipients) {
        // Recipients who are about to be staged.
        const next = Array.from({ length: 12 }, (_, i) => cursor + 1 + i);
        const open = next.filter((seq) => seq <= recipients && !asked.has(seq));
        const seq = open[Math.floor(Math.random() * open.length)];
        if (seq === undefined) {
          wake();
          await new Promise(setImmediate);
          continue;
        }
        asked.add(seq);
        await unsubscribe(seq);
        answered.set(seq, ++moment);
        wake();
      }
      wake();
    };
    const people = Array.from({ length: 6 }, person);
    /** Whether a recipient who is not staged yet has an answer. */
    const isAhead = () => [...answered.keys()].some((seq) => seq > cursor);
    for (let batches = 0; cursor < recipients; batches++) {
      while (batches % 2 === 0 && !isAhead()) await nextAnswer();
      const begunAt = ++moment;
      const { recipients: staged, lastSeq } = await stage(cursor, 4);
      for (const { seq } of staged) batchOf.set(seq, begunAt);
      cursor = lastSeq ?? recipients;
    }
    await Promise.all(people);
    for (const [seq, answeredAt] of answered) {
      const begunAt = batchOf.get(seq);
      assert.ok(begunAt === undefined || begunAt < answeredAt, `recipient ${seq} had unsubscribed`);
    }
    const left = [...answered.keys()].filter((seq) => !batchOf.has(seq));
    assert.ok(left.length >= 10 && batchOf.size > 0, `${left.length} of ${answered.size}, ${batchOf.size} staged`);
  });

  it("counts also when a command held the send as the batch was begun", async () => {
    const { em, sendId, stage, unsubscribe } = await begun(4);
    const staging = await em.fork().transactional(async (tx) => {
      await sql`select from sends where id = ${sendId} for update`.execute(kysely(tx));
      const batch = stage(0, 4);
      await Promise.race([untilBlocked({ em }, "%picked%"), batch]);
      for (const seq of [1, 2, 3, 4]) await unsubscribe(seq);
      return { batch };
    });
    assert.deepEqual((await staging.batch).recipients, []);
    const { recipients, suppressed } = await stage(0, 4);
    assert.deepEqual([recipients.length, suppressed], [0, 4]);
  });
});

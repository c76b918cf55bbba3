import assert from "node:assert/strict";
import { sql } from "kysely";
import { kysely } from "../../db/orm.ts";
import { unsubscribeUrl } from "../../domain/mail/links.ts";
import { openDispatch } from "../../domain/sends/ledger/lanes.ts";
import { stageBatch } from "../../domain/sends/ledger/moves.ts";
import { kindOf } from "../support/kinds.ts";
import { startUntaken, untilBlocked } from "../support/sending.ts";
import { stack } from "../support/stack.ts";

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

  it("that was answered before a batch began keeps its person out of the batch", async () => {
    const recipients = 40;
    const { stage, unsubscribe } = await begun(recipients);
    const unsubscribed: number[] = [];
    /** Two of the recipients of a batch, by each form in turn. */
    const unsubscribeFrom = (cursor: number) => {
      const first = cursor + 1 + ((cursor / 4) % 3);
      unsubscribed.push(first, first + 1);
      return Promise.all([unsubscribe(first), unsubscribe(first + 1)]);
    };
    const staged: number[] = [];
    let answered = unsubscribeFrom(0);
    for (let cursor = 0; cursor < recipients; cursor += 4) {
      await answered;
      // Those of the next batch unsubscribe while this one is staged.
      if (cursor + 4 < recipients) answered = unsubscribeFrom(cursor + 4);
      staged.push(...(await stage(cursor, 4)).recipients.map(({ seq }) => seq));
    }
    const all = Array.from({ length: recipients }, (_, i) => i + 1);
    assert.deepEqual(
      staged.sort((a, b) => a - b),
      all.filter((seq) => !unsubscribed.includes(seq)),
    );
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

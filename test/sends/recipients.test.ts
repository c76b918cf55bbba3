import assert from "node:assert/strict";
import { sql } from "kysely";
import type { RecipientState } from "../../db/entities/send.ts";
import { kysely } from "../../db/orm.ts";
import type { Scope } from "../../domain/access/scopes.ts";
import { api, codeOf, type Json } from "../support/api.ts";
import { recordSend } from "../support/factories.ts";
import { makeCampaignSender, makeSender, pathOf, people, sendAndWait, setFaults } from "../support/sending.ts";

describe("The recipients of a send", () => {
  it("are listed with their outcome and the code of the reply", async () => {
    const sender = await makeCampaignSender({
      recipients: [...people(2, "fine.recipients.example"), ...people(1, "gone.recipients.example")],
    });
    const list = (query = {}) => sender.client.get(`${pathOf(sender)}/recipients`, { query });
    assert.deepEqual((await list()).body.data, [], "none before the confirm");
    await setFaults([{ stage: "rcpt", match: "@gone.recipients", code: 550, message: "5.1.1 No such user" }]);
    await sendAndWait(sender).finally(() => setFaults([]));
    const { body } = await list({ order: "asc" });
    const shown = body.data.map((record: Json) => [record.status, record.reason, record.smtp_code, record.attempts]);
    assert.deepEqual(shown.sort(), [
      ["REJECTED", "mailbox_unknown:550_5.1.1", 550, 1],
      ["SENT", null, null, 1],
      ["SENT", null, null, 1],
    ]);
    const [refused, ...others] = (await list({ status: "REJECTED" })).body.data;
    assert.deepEqual([refused.email.split("@")[1], others], ["gone.recipients.example", []]);
    assert.deepEqual([refused.campaign_id, refused.newsletter_id], [sender.campaignId, null]);
    assert.ok((await sender.client.get(`/contacts/${refused.contact_id}`)).body.data.id);
  });

  describe("are paged", () => {
    async function ledger(...states: [state: RecipientState, count: number][]) {
      const sender = await makeSender({ recipients: 1 });
      const { em, team, newsletterId } = sender;
      const total = states.reduce((sum, [, count]) => sum + count, 0);
      const sendId = await recordSend(em, { teamId: team.id, environment: "LIVE" }, newsletterId, total);
      for (const [i, [state, count]] of states.entries()) {
        const before = states.slice(0, i).reduce((sum, [, each]) => sum + each, 0);
        await sql`insert into send_recipients (send_id, seq, member_id, email, state)
          select ${sendId}, ${before} + n, 'sub_' || n, n || '@example.com', ${state}
          from generate_series(1, ${count}::int) n`.execute(kysely(em.fork()));
      }
      await sql`update newsletters set send_id = ${sendId} where id = ${newsletterId}`.execute(kysely(em.fork()));
      const path = `${pathOf(sender)}/recipients`;
      /** The places of the recipients on each page. */
      const pages = async (query: Record<string, string | number>): Promise<number[][]> => {
        const found: number[][] = [];
        for (let cursor: string | null = ""; cursor !== null; ) {
          const { body, text } = await sender.client.get(path, { query: { ...query, ...(cursor && { cursor }) } });
          assert.ok(body.data, text);
          found.push(body.data.map(({ id }: Json) => Number.parseInt(id, 10)));
          cursor = body.meta.next_cursor;
          assert.equal(body.meta.has_more, cursor !== null);
        }
        return found;
      };
      return { sender, sendId, path, pages };
    }

    it("in either order, each once, and a cursor belongs to its filter", async () => {
      const { sender, path, pages } = await ledger(["SENT", 2], ["UNKNOWN", 1], ["SENT", 2]);
      assert.deepEqual(await pages({ limit: 2 }), [[5, 4], [3, 2], [1]]);
      assert.deepEqual(await pages({ limit: 2, order: "asc" }), [[1, 2], [3, 4], [5]]);
      assert.deepEqual(await pages({ limit: 2, status: "SENT" }), [
        [5, 4],
        [2, 1],
      ]);
      assert.deepEqual(await pages({ limit: 5 }), [[5, 4, 3, 2, 1]]);
      const cursor = (await sender.client.get(path, { query: { limit: 2 } })).body.meta.next_cursor;
      assert.equal(codeOf(await sender.client.get(path, { query: { cursor, status: "SENT" } })), "cursor_invalid");
    });

    it("by a walk of 10,000 at most, where a status is rare", async () => {
      const { pages } = await ledger(["UNKNOWN", 1], ["SENT", 10_000]);
      assert.deepEqual(await pages({ status: "UNKNOWN" }), [[], [1]]);
      assert.deepEqual(await pages({ status: "UNKNOWN", order: "asc" }), [[1], []]);
    });

    it("to keys that read both the send and its people, for as long as they are kept", async () => {
      const { sender, sendId, path } = await ledger(["SENT", 1]);
      for (const scope of ["newsletters:read", "subscribers:read"] as Scope[]) {
        const { key } = await sender.mint({ scopes: [scope] });
        assert.equal(codeOf(await api(key).get(path)), "insufficient_scope");
      }
      await sql`update sends set ledger_state = 'DELETED' where id = ${sendId}`.execute(kysely(sender.em.fork()));
      assert.equal(codeOf(await sender.client.get(path)), "resource_state_invalid");
    });
  });
});

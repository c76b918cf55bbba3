import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { sql } from "kysely";
import { columnsOf } from "../../db/columns.ts";
import { kysely } from "../../db/orm.ts";
import { transaction } from "../../db/transaction.ts";
import { newId } from "../../domain/ids.ts";
import { creditEntries } from "../../domain/retention/prunings.ts";
import { grantCredits, listCreditEntries } from "../../domain/teams/credits.ts";
import { RETENTION_ID } from "../../temporal/ids.ts";
import { eventually } from "../support/eventually.ts";
import { backdoor, execute, makeTeam, recordSend, type TestTeam, unique } from "../support/factories.ts";
import { prune } from "../support/retention.ts";
import { credits } from "../support/sending.ts";
import { temporalClient } from "../support/temporal.ts";

describe("Retention", () => {
  it("is stated by docs/operations/admin.md as the columns have it", async () => {
    const text = readFileSync(`${import.meta.dirname}/../../docs/operations/admin.md`, "utf8");
    const stated = new Map(
      [...text.matchAll(/^\| `(\w+)` \| (.*) \|$/gm)].map(([, name = "", kept = ""]) => [name, kept]),
    );
    for (const { table, retention } of columnsOf((await backdoor()).orm.em)) {
      // A remembered answer says itself when it expires.
      if (retention !== undefined && retention !== "0 s")
        assert.ok(stated.get(table)?.includes(retention), `${table}: ${stated.get(table)}`);
    }
  });

  it("is run by its schedule, with counts alone in its history", async () => {
    const { client, close } = await temporalClient();
    try {
      const jti = unique("jti");
      const em = (await backdoor()).orm.em.fork();
      await sql`insert into revoked_tokens (jti, expires_at) values (${jti}, now() - interval '2 days')`.execute(
        kysely(em),
      );
      await sql`insert into request_counts values (now() - interval '3 hours', ${jti}, 1)`.execute(kysely(em));
      await eventually(
        async () => {
          await client.schedule.getHandle(RETENTION_ID).trigger();
          const left = `select 1 from revoked_tokens where jti = '${jti}'
            union all select 1 from request_counts where caller_id = '${jti}'`;
          return (await execute(left)).length === 0;
        },
        { everyMs: 500, what: "the deletion" },
      );
      const { recentActions } = (await client.schedule.getHandle(RETENTION_ID).describe()).info;
      const run = recentActions.at(-1)?.action.workflow;
      assert.ok(run);
      const result = await client.workflow.getHandle(run.workflowId, run.firstExecutionRunId).result();
      assert.deepEqual(Object.keys(result).sort(), ["failed", "more", "rows"]);
    } finally {
      await close();
    }
  });

  describe("of single tables", () => {
    let team: TestTeam;
    before(async () => {
      team = await makeTeam();
    });
    const tenant = () => ({ team_id: team.team.id, environment: "LIVE" as const });
    const db = () => kysely(team.em.fork());
    const daysAgo = (days: number) => new Date(Date.now() - days * 86_400_000);

    it("keeps previews for a month", async () => {
      const made = async (expired: number) => {
        const id = newId("send");
        await sql`insert into send_previews (id, team_id, environment, resource_type, resource_id, api_key_id, plan_digest, total,
            ineligible, suppressed, eligible, tracked, cap_limit, cap_used_today, from_addresses, account_addresses,
            target_ids, complaint_rate, expires_at)
          values (${id}, ${team.team.id}, 'LIVE', 'newsletter', 'nl_x', 'key_x', '', 1, 0, 0, 1, 0, 1, 0, '{}', '{}', '{}', 0,
            ${daysAgo(expired)})`.execute(db());
        return id;
      };
      const previews = [await made(31), await made(29)];
      await prune();
      const left = await db()
        .selectFrom("send_previews")
        .select("id")
        .where("id", "in", previews)
        .orderBy("id")
        .execute();
      assert.deepEqual(
        left.map(({ id }) => id),
        previews.slice(1),
      );
    });

    it("keeps entries of the audit log for 400 days", async () => {
      for (const days of [401, 399]) {
        const entry = { id: newId("auditEntry"), ...tenant(), way: "COMMAND", act: `kept:${days}` } as const;
        await db()
          .insertInto("audit_entries")
          .values({ ...entry, created_at: daysAgo(days) })
          .execute();
      }
      await prune();
      const left = await db().selectFrom("audit_entries").select("act").where("team_id", "=", team.team.id).execute();
      assert.deepEqual(left, [{ act: "kept:399" }]);
    });

    it("adds up the credit entries of settled sends per month: balances and grants stay", async () => {
      const settled = [];
      for (let i = 0; i < 3; i++) {
        settled.push(await recordSend(team.em, { teamId: team.team.id, environment: "LIVE" }, "nl_x", 10));
      }
      const open = await recordSend(team.em, { teamId: team.team.id, environment: "LIVE" }, "nl_x", 10);
      const month = new Date(Date.UTC(new Date().getUTCFullYear() - 3, 4, 10));
      const enter = (kind: "GRANT" | "RESERVE" | "CONSUME" | "RELEASE", amount: number, send_id: string | null) =>
        db()
          .insertInto("credit_entries")
          .values({ id: newId("creditEntry"), ...tenant(), kind, amount, send_id, cause: "c", created_at: month })
          .execute();
      await transaction(team.em, (tx) => grantCredits(tx, { teamId: team.team.id, environment: "LIVE" }, 100, "first"));
      const before = await credits(team);
      await enter("GRANT", 50, null);
      for (const sendId of settled) {
        await enter("RESERVE", 10, sendId);
        await enter("CONSUME", 7, sendId);
        await enter("RELEASE", 3, sendId);
      }
      await enter("RESERVE", 10, open);
      await db()
        .updateTable("credit_balances")
        .set({ available: before.available + 50 - 21 - 10, reserved: before.reserved + 10 })
        .where("team_id", "=", team.team.id)
        .execute();
      await db().updateTable("sends").set({ settled_at: null }).where("id", "=", open).execute();
      const balance = await credits(team);
      assert.equal(balance.mismatch, false);
      for (let batch = 0; batch < 2; batch++) await prune({}, { prunings: [creditEntries], mostRows: 4 });
      assert.deepEqual(await credits(team), balance);
      const entries = await listCreditEntries(team.em, { teamId: team.team.id, environment: "LIVE" }, { limit: 100 });
      const old = entries.filter(({ at }) => at.startsWith(`${month.getUTCFullYear()}`));
      assert.deepEqual(old.map(({ kind, amount, sendId, cause }) => [kind, amount, sendId, cause]).sort(), [
        ["CONSUME", 21, null, "rolled_up"],
        ["GRANT", 50, null, "c"],
        ["RELEASE", 9, null, "rolled_up"],
        ["RESERVE", 10, open, "c"],
        ["RESERVE", 30, null, "rolled_up"],
      ]);
      await db().deleteFrom("sends").where("id", "=", open).execute();
    });
  });
});

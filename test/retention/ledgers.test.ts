import assert from "node:assert/strict";
import { sql } from "kysely";
import type { LedgerState } from "../../db/entities/send.ts";
import { type EntityManager, kysely } from "../../db/orm.ts";
import { transaction } from "../../db/transaction.ts";
import { type MailRef, unsubscribeUrl } from "../../domain/mail/links.ts";
import { type MailReport, recordReport } from "../../domain/reports/record.ts";
import { LEDGERS } from "../../domain/retention/ledgers.ts";
import { readOverdueSeconds } from "../../domain/retention/overdue.ts";
import type { Pruning } from "../../domain/retention/pruning.ts";
import { readCounts } from "../../domain/sends/ledger/counts.ts";
import { requeueUnknown } from "../../domain/sends/ledger/unknown.ts";
import { mailToken, trackedUrls } from "../../domain/tracking/links.ts";
import { recordHits } from "../../domain/tracking/record.ts";
import { accept, engage, makeLedger, report, type TestLedger } from "../analytics/ledger.ts";
import { mailLetter } from "../public/ledger.ts";
import { endWait, hit, settleAll } from "../public/tracking.ts";
import { mailed, reasonOf } from "../reports/mails.ts";
import { api } from "../support/api.ts";
import { refused } from "../support/command.ts";
import { eventually } from "../support/eventually.ts";
import { backdoor, makeTeam, type TestTeam, unique, uniqueEmail } from "../support/factories.ts";
import { testsOf } from "../support/long.ts";
import { recountFigures } from "../support/recount.ts";
import { SOFT_BOUNCE_POLICY } from "../support/reports.ts";
import { LEAST_LEDGER_DAYS, prune } from "../support/retention.ts";
import { anotherNewsletter, makeSender, preview, startSend, untilStatus } from "../support/sending.ts";
import { stack } from "../support/stack.ts";

const { it, longIt } = testsOf();

/** Shorter times than those of the stack, which prunes too: a send that ended 70 days ago is due here alone. */
const SHORT = { LEDGER_DAYS: 60, LEDGER_NAMES_DAYS: 30 };
const AT = "2026-03-01T10:00:00Z";

describe("The ledger of a send that has ended", () => {
  let team: TestTeam;
  let origin: string;
  before(async () => {
    team = await makeTeam();
    ({ origin } = await stack());
  });

  const db = () => kysely(team.em.fork());
  const endedDaysAgo = (sendId: string, days: number) =>
    db()
      .updateTable("sends")
      .set({ completed_at: new Date(Date.now() - days * 86_400_000) })
      .where("id", "=", sendId)
      .execute();
  const stateOf = async (sendId: string): Promise<LedgerState | undefined> =>
    (await db().selectFrom("sends").select("ledger_state").where("id", "=", sendId).executeTakeFirst())?.ledger_state;
  const rowsOf = (sendId: string) =>
    db().selectFrom("send_recipients").selectAll().where("send_id", "=", sendId).orderBy("seq").execute();
  const bounced = (mail: MailRef, kind: MailReport["kind"] = "bounce:hard") =>
    recordReport(team.em.fork(), { ...mail, kind }, SOFT_BOUNCE_POLICY);
  const pruneLedgers = (options: Parameters<typeof prune>[1] = {}) => prune(SHORT, { prunings: LEDGERS, ...options });

  /** A send with each kind of response to its mails. */
  async function answered(recipients: number): Promise<TestLedger> {
    const ledger = await makeLedger(team, recipients);
    const em = team.em.fork();
    const all = Array.from({ length: recipients }, (_, i) => i + 1);
    await accept(em, ledger, all, AT);
    await report(em, ledger, [1], ["bounce:hard"], AT);
    await report(em, ledger, [2], ["complaint"], AT);
    await engage(em, ledger, [3], "opened", 2);
    await sql`insert into marked_hits values (${ledger.sendId}, 3, 'clicked', 'program', 'machine', 1, now(), now())`.execute(
      db(),
    );
    await sql`insert into link_clicks values (${ledger.sendId}, 3, 'lnk_x', 1)`.execute(db());
    return ledger;
  }

  const factsOf = async ({ tenant, sendId, newsletterId }: TestLedger) => ({
    counts: await readCounts(team.em.fork(), tenant, sendId),
    shown: (await api(team.keys.live).get(`/newsletters/${newsletterId}`)).body.data.recipients,
    figures: (
      await api(team.keys.live).get("/analytics/overview", {
        query: { resource_id: newsletterId, from: "2026-02-01", to: "2026-12-31" },
      })
    ).body.data.totals,
  });
  /** Lets the last row of a ledger have been deleted so long ago that its late responses are, too. */
  const sweptLater = (sendId: string) =>
    transaction(team.em.fork(), async (tx) => {
      // Without the trigger that sets `updated_at`.
      await sql`set local session_replication_role = replica`.execute(kysely(tx));
      await sql`update sends set ledger_state = 'SWEEPING', updated_at = now() - interval '61 minutes'
        where id = ${sendId}`.execute(kysely(tx));
    });
  const responsesOf = async (sendId: string): Promise<number> => {
    await endWait(team.em, sql`s.id = ${sendId}`);
    const { rows } = await sql<{ count: number }>`select (
      (select count(*) from mail_reports where send_id = ${sendId}) +
      (select count(*) from engagements where send_id = ${sendId}) +
      (select count(*) from marked_hits where send_id = ${sendId}) +
      (select count(*) from link_clicks where send_id = ${sendId}))::int as count`.execute(db());
    return rows[0]?.count ?? 0;
  };

  it("loses names and custom fields, and after 13 months each link of a mail works and a late bounce finds its address", async () => {
    const mail = await mailLetter(team);
    const { sendId, seq } = mail;
    await db()
      .updateTable("send_recipients")
      .set({ first_name: "Ann", last_name: "Lee", fields: { city: "Bern" } })
      .where("send_id", "=", sendId)
      .execute();
    const [before] = await rowsOf(sendId);
    await endedDaysAgo(sendId, LEAST_LEDGER_DAYS - 1);
    await prune({ LEDGER_DAYS: LEAST_LEDGER_DAYS });
    assert.equal(await stateOf(sendId), "NAMELESS");
    assert.deepEqual(await rowsOf(sendId), [{ ...before, first_name: null, last_name: null, fields: null }]);

    const tracked = trackedUrls(team.vault, origin, sendId, mailToken(team.vault, mail));
    assert.equal((await hit(tracked.openUrl)).status, 200);
    const click = await hit(tracked.clickUrl("https://shop.example/"));
    assert.deepEqual([click.status, click.headers.get("location")], [302, "https://shop.example/"]);
    await eventually(async () => (await responsesOf(sendId)) >= 2, { what: "the open and the click" });

    const link = unsubscribeUrl(team.vault, origin, mail);
    assert.match(await (await fetch(link)).text(), /Unsubscribe from One, Two/);
    const leave = async (body: string) => (await fetch(link, { method: "POST", body })).status;
    assert.equal(await leave("scope=lists"), 200);
    assert.equal(await reasonOf(team, mail.email), undefined);
    assert.equal(await leave("List-Unsubscribe=One-Click"), 200);
    assert.equal(await reasonOf(team, mail.email), "UNSUBSCRIBED");
    const subscriber = await api(team.keys.live).get(`/subscribers/${mail.subscriberId}`);
    for (const { status } of subscriber.body.data.subscriptions) assert.equal(status, "UNSUBSCRIBED");
    assert.equal(await bounced({ sendId, seq }), "recorded");

    const late = { sendId: (await mailed(team, [uniqueEmail("late")])).sendId, seq: 1 };
    await endedDaysAgo(late.sendId, LEAST_LEDGER_DAYS - 1);
    await prune({ LEDGER_DAYS: LEAST_LEDGER_DAYS });
    assert.equal(await bounced(late), "recorded");
    assert.equal(await reasonOf(team, (await rowsOf(late.sendId))[0]?.email ?? ""), "bounce:hard");
  });

  it("is deleted after fourteen months with its responses: counts and figures stay, and late reports and hits change nothing", async () => {
    const ledger = await answered(5);
    const { tenant, sendId } = ledger;
    const facts = await factsOf(ledger);
    assert.deepEqual([facts.figures.bounced_hard, facts.figures.complained, facts.figures.opened], [1, 1, 2]);
    await endedDaysAgo(sendId, 430);
    await prune();
    assert.deepEqual([await stateOf(sendId), await rowsOf(sendId), await responsesOf(sendId)], ["SWEEPING", [], 0]);

    assert.equal(await bounced({ sendId, seq: 4 }), "not_mailed");
    const hit = { sendId, seq: 4, kind: "opened", at: Date.now(), url: null } as const;
    await recordHits(team.em.fork(), [{ ...hit, rule: null, early: false, source: "source" }]);
    await settleAll(team.em, sendId);
    assert.equal(await responsesOf(sendId), 0);
    assert.equal((await fetch(unsubscribeUrl(team.vault, origin, { sendId, seq: 4 }))).status, 404);
    assert.deepEqual(await factsOf(ledger), facts);
    assert.deepEqual(
      (await recountFigures(team.em.fork(), tenant, { repair: false })).filter(
        ({ resourceId }) => resourceId === ledger.newsletterId,
      ),
      [],
    );
    await refused(/are kept no longer: LEDGER_DAYS have passed/, "send:recipients", sendId, "--csv");
  });

  it("mails nobody again when its names are gone, not even recipients of whom Mailkeel does not know whether their mail arrived", async () => {
    const sender = await makeSender({ recipients: 2 });
    const { id } = (await startSend(sender)).data;
    await untilStatus(sender, ["SENT"]);
    await sql`update send_recipients set state = 'UNKNOWN', updated_at = now() - interval '1 day'
      where send_id = ${id}`.execute(db());
    const requeuedWhile = async (state: LedgerState) => {
      const tx = team.em.fork();
      await tx.begin();
      try {
        await sql`update sends set ledger_state = ${state} where id = ${id}`.execute(kysely(tx));
        return (await requeueUnknown(tx, id)).requeued;
      } finally {
        await tx.rollback();
      }
    };
    assert.deepEqual([await requeuedWhile("NAMELESS"), await requeuedWhile("COMPLETE")], [0, 2]);
  });

  it("is overdue until it is pruned", async () => {
    const { sendId } = await makeLedger(team, 1);
    const overdueDays = async () =>
      (await readOverdueSeconds(team.em.fork(), { ...(await stack()).env, ...SHORT })) / 86_400;
    // Those of other tests.
    await pruneLedgers();
    assert.ok((await overdueDays()) < 1);
    await endedDaysAgo(sendId, 80);
    assert.ok((await overdueDays()) > 49.9, "its names");
    await pruneLedgers();
    assert.ok((await overdueDays()) < 1);
  });

  it("is deleted of a response that came meanwhile an hour later, and of its lanes", async () => {
    const ledger = await makeLedger(team, 1);
    const { sendId } = ledger;
    await db().insertInto("send_lanes").values({ send_id: sendId, account_id: "acct_x" }).execute();
    await endedDaysAgo(sendId, 70);
    await pruneLedgers();
    await engage(team.em.fork(), ledger, [1], "clicked", 1);
    await pruneLedgers();
    assert.deepEqual([await stateOf(sendId), await responsesOf(sendId)], ["SWEEPING", 1]);
    await sweptLater(sendId);
    await pruneLedgers();
    assert.deepEqual([await stateOf(sendId), await responsesOf(sendId)], ["DELETED", 0]);
    const lanes = await db().selectFrom("send_lanes").select("account_id").where("send_id", "=", sendId).execute();
    assert.deepEqual(lanes, []);
  });

  it("is pruned in batches: a run that is cut off leaves whole batches, and the next one continues behind them", async () => {
    const ledger = await answered(250);
    const { tenant, sendId } = ledger;
    const facts = await factsOf(ledger);
    await endedDaysAgo(sendId, 70);
    /** The prunings of ledgers, with an act at the end of each batch, in its transaction. */
    const then = (act: (em: EntityManager) => unknown): Pruning[] =>
      LEDGERS.map((pruning) => ({
        ...pruning,
        prune: async (em, ...rest) => {
          const batch = await pruning.prune(em, ...rest);
          if (batch.rows > 0) await act(em);
          return batch;
        },
      }));
    // As Postgres sees a process that is killed.
    const dying = then((em) => sql`select pg_terminate_backend(pg_backend_pid())`.execute(kysely(em)));
    assert.equal((await pruneLedgers({ prunings: dying, mostRows: 100 })).failed, 1);
    assert.equal((await rowsOf(sendId)).length, 250);

    const stop = new AbortController();
    const stopped = await pruneLedgers({
      prunings: then(() => stop.abort()),
      mostRows: 100,
      stopping: stop.signal,
    });
    assert.deepEqual(stopped, { rows: 100, failed: 0, more: true });
    assert.deepEqual([await stateOf(sendId), (await rowsOf(sendId))[0]?.seq], ["DELETING", 101]);
    assert.equal(await responsesOf(sendId), 0);
    assert.deepEqual(await recountFigures(team.em.fork(), tenant, { repair: false }), []);
    assert.deepEqual(await pruneLedgers({ mostRows: 100 }), { rows: 150, failed: 0, more: false });
    assert.deepEqual([await stateOf(sendId), await rowsOf(sendId)], ["SWEEPING", []]);
    assert.deepEqual(await factsOf(ledger), facts);
  });

  longIt("does not wait for a row that another statement holds, nor do other prunings", async () => {
    const [held, key] = [await makeLedger(team, 3), unique("hash")];
    await endedDaysAgo(held.sendId, 70);
    const expired = { team_id: team.team.id, environment: "LIVE" as const, key_hash: key, attempt: 1 };
    await db()
      .insertInto("idempotency_records")
      .values({ ...expired, locked_at: new Date(0), expires_at: new Date(0) })
      .execute();
    await transaction(team.em.fork(), async (tx) => {
      await sql`select from send_recipients where send_id = ${held.sendId} and seq = 2 for update`.execute(kysely(tx));
      const { failed } = await prune(SHORT);
      assert.equal(failed, 1);
    });
    assert.equal((await rowsOf(held.sendId)).length, 3);
    const answers = await db()
      .selectFrom("idempotency_records")
      .select("key_hash")
      .where("key_hash", "=", key)
      .execute();
    assert.deepEqual(answers, []);
    await pruneLedgers();
    assert.deepEqual(await rowsOf(held.sendId), []);
  });

  it("stays while the send is not settled, mails again or may be mailed again", async () => {
    const kept: string[] = [];
    for (const change of [
      { settled_at: null },
      { status: "PAUSED" as const },
      { review_until: new Date(Date.now() + 3_600_000) },
    ]) {
      const { sendId } = await makeLedger(team, 1);
      await endedDaysAgo(sendId, 70);
      await db().updateTable("sends").set(change).where("id", "=", sendId).execute();
      kept.push(sendId);
    }
    await pruneLedgers();
    for (const sendId of kept)
      assert.deepEqual([await stateOf(sendId), (await rowsOf(sendId)).length], ["COMPLETE", 1]);
    // The reconciler would start a workflow for each.
    await db().deleteFrom("sends").where("id", "in", kept).execute();
  });

  it("leaves a person who opted out ineligible", async () => {
    const sender = await makeSender({ recipients: 3 });
    const [first] = await db()
      .selectFrom("subscribers")
      .select(["id", "email"])
      .where("team_id", "=", sender.team.id)
      .orderBy("id")
      .execute();
    const { sendId } = await mailed(sender, [first?.email ?? ""]);
    await db()
      .updateTable("send_recipients")
      .set({ member_id: first?.id ?? "" })
      .where("send_id", "=", sendId)
      .execute();
    const vault = (await backdoor()).vault;
    const left = await fetch(unsubscribeUrl(vault, origin, { sendId, seq: 1 }), { method: "POST" });
    assert.equal(left.status, 200);
    await endedDaysAgo(sendId, 70);
    await pruneLedgers();
    assert.deepEqual(await rowsOf(sendId), []);
    const { recipients } = (await preview(await anotherNewsletter(sender))).body.data;
    assert.deepEqual([recipients.total, recipients.eligible], [3, 2]);
  });
});

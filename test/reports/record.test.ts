import assert from "node:assert/strict";
import { sql } from "kysely";
import { MAIL_REPORT_KINDS, type MailReportKind } from "../../db/entities/engagement.ts";
import { RECIPIENT_STATES } from "../../db/entities/send.ts";
import { kysely } from "../../db/orm.ts";
import { makePlaceholder } from "../../domain/erasure/erased-addresses.ts";
import type { MailRef } from "../../domain/mail/links.ts";
import { type MailReport, recordReport, recordReports } from "../../domain/reports/record.ts";
import { readCounts } from "../../domain/sends/ledger/counts.ts";
import { api, tally } from "../support/api.ts";
import { makeTeam, type TestTeam, uniqueEmail } from "../support/factories.ts";
import { SOFT_BOUNCE_POLICY } from "../support/reports.ts";
import { snapshotTables } from "../support/tables.ts";
import { emitted, listen } from "../webhooks/outbox.ts";
import { live, mailed, mailTo, reasonOf, recordedKinds } from "./mails.ts";

describe("A report about a mail", () => {
  let team: TestTeam;
  before(async () => {
    team = await makeTeam();
    await listen(team, {
      events: ["email.bounced", "email.complained", "email.rejected", "suppression.added", "contact.updated"],
    });
  });

  const record = (mail: MailRef, kind: MailReportKind, fault: Pick<MailReport, "isSendersFault"> = {}) =>
    recordReport(team.em, { ...mail, kind, ...fault }, SOFT_BOUNCE_POLICY);
  const softBounces = async (email: string, count: number) => {
    const mails = await Promise.all(Array.from({ length: count }, () => mailTo(team, email)));
    return mails;
  };
  const rowOf = async ({ sendId }: MailRef) =>
    kysely(team.em).selectFrom("send_recipients").selectAll().where("send_id", "=", sendId).execute();

  it("of a hard bounce suppresses the address, makes its contact INVALID and leaves the ledger's row", async () => {
    const email = uniqueEmail("gone");
    const client = api(team.keys.live);
    const { body } = await client.post("/contacts", { email });
    const mail = await mailTo(team, email);
    const row = await rowOf(mail);
    const since = emitted(team);
    await since();
    assert.equal(await record(mail, "bounce:hard"), "recorded");
    assert.equal(await reasonOf(team, email), "bounce:hard");
    assert.deepEqual(await recordedKinds(team, mail.sendId), ["1 bounce:hard"]);
    assert.deepEqual(await rowOf(mail), row);
    assert.equal((await client.get(`/contacts/${body.data.id}`)).body.data.email_status, "INVALID");
    const events = await since();
    assert.deepEqual(events.map(({ type }) => type).sort(), ["contact.updated", "email.bounced", "suppression.added"]);
    const bounced = events.find(({ type }) => type === "email.bounced")?.object;
    assert.deepEqual(
      [bounced.id, bounced.email, bounced.status, bounced.reason],
      [`1.${mail.sendId}`, email, "BOUNCED", "bounce:hard"],
    );
  });

  it("counts once, however many processes record it at once", async () => {
    const email = uniqueEmail("once");
    const mail = await mailTo(team, email);
    const since = emitted(team);
    await since();
    const outcomes = await Promise.all(Array.from({ length: 20 }, () => record(mail, "complaint")));
    assert.deepEqual(tally(outcomes), { recorded: 1, known: 19 });
    assert.deepEqual((await since()).map(({ type }) => type).sort(), ["email.complained", "suppression.added"]);
    assert.equal(await reasonOf(team, email), "bounce:complaint");
  });

  it("that is given twice in one call counts once", async () => {
    const { sendId } = await mailed(team, [uniqueEmail(), uniqueEmail()]);
    const report = { sendId, seq: 2, kind: "bounce:soft" } as const;
    assert.deepEqual(await recordReports(team.em, [report, report, { ...report, seq: 3 }], SOFT_BOUNCE_POLICY), [
      "recorded",
      "recorded",
      "not_mailed",
    ]);
    assert.deepEqual(await recordedKinds(team, sendId), ["2 bounce:soft"]);
  });

  describe("of a soft bounce", () => {
    it("suppresses the address with the last of the number that the settings allow", async () => {
      const email = uniqueEmail("full");
      const mails = await softBounces(email, SOFT_BOUNCE_POLICY.SOFT_BOUNCES_TO_SUPPRESS);
      for (const [i, mail] of mails.entries()) {
        assert.equal(await reasonOf(team, email), undefined, `after ${i}`);
        await record(mail, "bounce:soft");
        await record(mail, "bounce:soft");
      }
      assert.equal(await reasonOf(team, email), "bounce:soft");
    });

    it("counts for the days of the window alone", async () => {
      const email = uniqueEmail("window");
      const [last, ...mails] = await softBounces(email, SOFT_BOUNCE_POLICY.SOFT_BOUNCES_TO_SUPPRESS);
      assert.ok(last);
      await recordReports(
        team.em,
        mails.map((mail) => ({ ...mail, kind: "bounce:soft" as const })),
        SOFT_BOUNCE_POLICY,
      );
      await sql`update mail_reports set created_at = now() - interval '31 days'
        where send_id = ${mails[0]?.sendId} and email = ${email}`.execute(kysely(team.em));
      await record(last, "bounce:soft");
      assert.equal(await reasonOf(team, email), undefined);
    });

    it("counts since the last mail that came through", async () => {
      const limit = SOFT_BOUNCE_POLICY.SOFT_BOUNCES_TO_SUPPRESS;
      /** Sent an hour apart: `b` bounced, `d` was delivered, `x` came back for the sender's sake, `?` is unknown. */
      const reasonAfter = async (history: string) => {
        const email = uniqueEmail("now-and-then");
        const mails = await softBounces(email, history.length);
        for (const [i, { sendId }] of mails.entries()) {
          await sql`update send_recipients set state = ${history[i] === "?" ? "UNKNOWN" : "SENT"},
            updated_at = now() - make_interval(hours => ${history.length - i}) where send_id = ${sendId}`.execute(
            kysely(team.em),
          );
          await sql`update sends set send_at = now() - make_interval(hours => ${history.length - i + 1})
            where id = ${sendId}`.execute(kysely(team.em));
        }
        const of = (kind: string) => mails.filter((_, i) => history[i] === kind);
        for (const mail of of("x")) await record(mail, "bounce:soft", { isSendersFault: true });
        for (const mail of of("b")) await record(mail, "bounce:soft");
        return reasonOf(team, email);
      };
      const bounced = "b".repeat(limit - 1);
      assert.equal(await reasonAfter(`${bounced}b`), "bounce:soft");
      assert.equal(await reasonAfter(`${bounced}db`), undefined);
      assert.equal(await reasonAfter(`bd${bounced}`), undefined);
      assert.equal(await reasonAfter(`bd${bounced}b`), "bounce:soft");
      assert.equal(await reasonAfter(`d${bounced}b`), "bounce:soft");
      // They may yet come back.
      assert.equal(await reasonAfter(`${bounced}bdd`), "bounce:soft");
      assert.equal(await reasonAfter(`${bounced}x?b`), "bounce:soft");
    });

    it("that is the sender's fault counts against no address", async () => {
      const email = uniqueEmail("blocked");
      for (const mail of await softBounces(email, SOFT_BOUNCE_POLICY.SOFT_BOUNCES_TO_SUPPRESS)) {
        assert.equal(await record(mail, "bounce:soft", { isSendersFault: true }), "recorded");
      }
      assert.equal(await reasonOf(team, email), undefined);
    });
  });

  it("is recorded for an erased person, and suppresses no address", async () => {
    const [own, email] = [await makeTeam(), makePlaceholder()];
    const refs = await Promise.all(Array.from({ length: 5 }, () => mailTo(own, email)));
    const reports = refs.flatMap((mail) => MAIL_REPORT_KINDS.map((kind) => ({ ...mail, kind })));
    assert.deepEqual(
      await recordReports(own.em, reports, SOFT_BOUNCE_POLICY),
      reports.map(() => "recorded"),
    );
    assert.deepEqual((await api(own.keys.live).get("/suppressions")).body.data, []);
  });

  it("that its provider dropped rejects the mail once, unless it came back, and suppresses the address", async () => {
    const [email, returned] = [uniqueEmail("dropped"), await mailTo(team, uniqueEmail())];
    const mail = await mailTo(team, email);
    await record(returned, "bounce:soft");
    const since = emitted(team);
    await since();
    const drop = (ref: MailRef) => ({ ...ref, kind: "dropped_by_provider", suppressAs: "UNSUBSCRIBED" }) as const;
    const both = () => recordReports(team.em, [drop(mail), drop(returned)], SOFT_BOUNCE_POLICY);
    assert.deepEqual(
      [await both(), await both()],
      [
        ["recorded", "known"],
        ["known", "known"],
      ],
    );
    assert.equal(await reasonOf(team, email), "UNSUBSCRIBED");
    const [[row], [kept]] = [await rowOf(mail), await rowOf(returned)];
    assert.deepEqual([row?.state, row?.reason, kept?.state], ["REJECTED", "dropped_by_provider", "SENT"]);
    const [rejected, added] = await since();
    assert.deepEqual(
      [rejected?.type, rejected?.object.reason, added?.type],
      ["email.rejected", row?.reason, "suppression.added"],
    );
  });

  it("leaves a suppression that exists as it is", async () => {
    const email = uniqueEmail("manual");
    await api(team.keys.live).post("/suppressions", { emails: [email] });
    const suppression = await api(team.keys.live).get(`/suppressions/${email}`);
    assert.equal(await record(await mailTo(team, email), "bounce:hard"), "recorded");
    assert.deepEqual((await api(team.keys.live).get(`/suppressions/${email}`)).body.data, suppression.body.data);
  });

  it("that is replayed after its suppression was lifted changes nothing, and a new one suppresses again", async () => {
    const email = uniqueEmail("lifted");
    const mail = await mailTo(team, email);
    await record(mail, "bounce:hard");
    const { body } = await api(team.keys.live).get(`/suppressions/${email}`);
    const lifted = await api(team.keys.cleanup).delete(`/suppressions/${body.data.id}`);
    assert.equal(lifted.status, 200, lifted.text);
    const before = await snapshotTables(team.em, mail.sendId);
    assert.equal(await record(mail, "bounce:hard"), "known");
    assert.deepEqual(await snapshotTables(team.em, mail.sendId), before);
    assert.equal(await reasonOf(team, email), undefined);
    assert.equal(await record(await mailTo(team, email), "complaint"), "recorded");
    assert.equal(await reasonOf(team, email), "bounce:complaint");
  });

  for (const state of RECIPIENT_STATES) {
    const expected =
      state === "SENT" || state === "UNKNOWN" ? "recorded" : state === "SENDING" ? "unsettled" : "not_mailed";
    it(`that is ${state} is ${expected}, and the mail keeps its state`, async () => {
      const email = uniqueEmail("state");
      const mail = await mailTo(team, email, state);
      const counts = await readCounts(team.em, live(team), mail.sendId);
      const row = await rowOf(mail);
      assert.equal(await record(mail, "bounce:hard"), expected);
      assert.equal(await reasonOf(team, email), expected === "recorded" ? "bounce:hard" : undefined);
      // Figures of the mail move with it, should it get another outcome.
      assert.deepEqual(
        await rowOf(mail),
        row.map((one) => ({ ...one, responded: state === "UNKNOWN" })),
      );
      assert.deepEqual(await readCounts(team.em, live(team), mail.sendId), counts);
      assert.equal((await recordedKinds(team, mail.sendId)).length, expected === "recorded" ? 1 : 0);
    });
  }

  it("changes nothing for a mail of another team, or one that does not exist", async () => {
    const other = await makeTeam();
    const email = uniqueEmail("theirs");
    const { sendId } = await mailTo(other, email);
    const reports = [
      { sendId, seq: 1, kind: "bounce:hard" },
      { sendId, seq: 2, kind: "complaint" },
      { sendId: "send_none", seq: 1, kind: "complaint" },
    ] as const;
    assert.deepEqual(
      await recordReports(team.em, reports, SOFT_BOUNCE_POLICY, { tenant: live(team) }),
      reports.map(() => "not_mailed"),
    );
    assert.deepEqual(await recordedKinds(other, sendId), []);
    assert.equal(await reasonOf(other, email), undefined);
    const [first] = await recordReports(team.em, reports, SOFT_BOUNCE_POLICY);
    assert.equal(first, "recorded", "without a tenant each report is recorded for the mail's own");
    assert.equal(await reasonOf(other, email), "bounce:hard");
    assert.equal(await reasonOf(team, email), undefined);
  });

  it("is one of 3,000 that come at once, from several sides, and none is lost", async () => {
    const flooded = await makeTeam();
    const domain = `${flooded.team.id.replace("_", "-")}.example`;
    const emails = Array.from({ length: 3_000 }, (_, i) => `p${i}@${domain}`);
    const { sendId } = await mailed(flooded, emails);
    const kinds: MailReportKind[] = ["bounce:hard", "complaint", "bounce:soft"];
    const reports = emails.map((_, i) => ({ sendId, seq: i + 1, kind: kinds[i % 3] ?? ("complaint" as const) }));
    // A third twice, at the same time, the second time in the opposite order.
    const sides = [reports.slice(0, 2_000), reports.slice(1_000).reverse()];
    const outcomes = await Promise.all(sides.map((side) => recordReports(flooded.em, side, SOFT_BOUNCE_POLICY)));
    assert.deepEqual(tally(outcomes.flat()), { recorded: 3_000, known: 1_000 });
    const { rows } = await sql<{ kind: string; count: number }>`
      select kind, count(*)::int as count from mail_reports where send_id = ${sendId} group by kind order by kind`.execute(
      kysely(flooded.em),
    );
    assert.deepEqual(rows, [
      { kind: "bounce:hard", count: 1_000 },
      { kind: "bounce:soft", count: 1_000 },
      { kind: "complaint", count: 1_000 },
    ]);
    const suppressed = await sql<{ reason: string; count: number }>`
      select reason, count(*)::int as count from suppressions where team_id = ${flooded.team.id}
      group by reason order by reason`.execute(kysely(flooded.em));
    assert.deepEqual(suppressed.rows, [
      { reason: "bounce:complaint", count: 1_000 },
      { reason: "bounce:hard", count: 1_000 },
    ]);
  });
});

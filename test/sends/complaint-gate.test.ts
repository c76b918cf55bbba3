import assert from "node:assert/strict";
import { generateKeyPairSync } from "node:crypto";
import { sql } from "kysely";
import type { RecipientState } from "../../db/entities/send.ts";
import { kysely } from "../../db/orm.ts";
import type { MailRef } from "../../domain/mail/links.ts";
import { recordReport } from "../../domain/reports/record.ts";
import { addSource, pathOfSource } from "../../domain/reports/source.ts";
import { readComplaintFigures } from "../../domain/sends/complaint-rate.ts";
import {
  pauseForComplaints,
  pauseSend,
  readSend,
  resumeForClient,
  resumeSend,
} from "../../domain/sends/ledger/lifecycle.ts";
import { PAUSE_REASONS } from "../../domain/sends/pause-reasons.ts";
import { DETAILS } from "../../workflows/send-messages.ts";
import { live, mailTo } from "../reports/mails.ts";
import { sendGridComplaint, sendGridRequest } from "../reports/payloads.ts";
import { eventually } from "../support/eventually.ts";
import { makeTeam, recordSend, type TestTeam, uniqueEmail } from "../support/factories.ts";
import { useSendWorkflows } from "../support/send-workflows.ts";
import {
  type AnySender,
  addSubscribers,
  anotherNewsletter,
  beginToday,
  caughtMails,
  credits,
  ledgerStates,
  makeCampaignSender,
  makeSender,
  people,
  setFaults,
  startSend,
  startTomorrow,
  untilStatus,
} from "../support/sending.ts";
import { stack } from "../support/stack.ts";
import { readLogs } from "../webhooks/observing.ts";

/** Sets the team's figures of a day, today unless given. */
const setFigures = ({ em, team }: TestTeam, sent: number, complaints: number, daysAgo = 0) =>
  sql`insert into analytics_days (team_id, environment, resource_id, day, sent, complaints_received)
    values (${team.id}, 'LIVE', '', (now() at time zone 'UTC')::date - ${daysAgo}::int, ${sent}, ${complaints})
    on conflict (team_id, environment, resource_id, day)
      do update set sent = excluded.sent, complaints_received = excluded.complaints_received`.execute(
    kysely(em.fork()),
  );

const countOf = (states: Partial<Record<RecipientState, number>>, ...some: RecipientState[]): number =>
  some.reduce((sum, state) => sum + (states[state] ?? 0), 0);

describe("The complaint gate of sends under way", () => {
  const { command, needsOperator, statusShown, untilDetails } = useSendWorkflows();
  afterEach(() => setFaults([]));

  const untilPaused = async (sendId: string) => {
    await untilDetails(sendId, ["Paused: complaints are", "update: resume"]);
    assert.deepEqual([await statusShown(sendId), await needsOperator(sendId)], ["PAUSED", true]);
  };

  const postComplaint = async (team: TestTeam, ...mails: MailRef[]): Promise<Response> => {
    const { privateKey, publicKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
    const source = await addSource(team.em, team.vault, live(team), "SENDGRID", {
      publicKey: publicKey.export({ format: "der", type: "spki" }).toString("base64"),
    });
    const { body, headers } = sendGridRequest(mails.map(sendGridComplaint), privateKey);
    const url = `${(await stack()).origin}${pathOfSource(team.vault, source)}`;
    return fetch(url, { method: "POST", body, headers });
  };

  it("pauses every send of a team in a storm of complaints, continues at a resume, and pauses again in the next storm", async () => {
    const campaign = await makeCampaignSender({
      recipients: 120,
      furtherAccounts: [{}],
      account: { maxConnections: 2 },
    });
    const { client, audience, campaignId: _, ...rest } = campaign;
    const listId: string = (await client.post("/lists", { name: "Readers", optin: "SINGLE" })).body.data.id;
    await addSubscribers(campaign, listId, people(40, `second.${audience}`));
    const letter = await anotherNewsletter({ ...rest, client, audience, listId, newsletterId: "" });
    await setFaults([{ stage: "data", match: audience, delayMs: 300 }]);
    const sendIds = [(await startSend(campaign)).data.id, (await startSend(letter)).data.id] as const;
    const [campaignSend] = sendIds;
    const both = [campaign, letter] as const;
    const statesOf = () => Promise.all(both.map(ledgerStates));
    const untilSent = (sender: AnySender, count: number) =>
      eventually(async () => countOf(await ledgerStates(sender), "SENT") >= count, { what: `${count} mails` });

    /** @returns the rows that were staged when the reports were answered */
    const storm = async (): Promise<number[]> => {
      const { rows } = await sql<{ seq: number }>`select r.seq from send_recipients r
        where r.send_id = ${campaignSend} and r.state = 'SENT' and not r.responded`.execute(kysely(campaign.em.fork()));
      const mails = rows.map(({ seq }) => ({ sendId: campaignSend, seq }));
      assert.equal((await postComplaint(campaign, ...mails)).status, 204);
      return (await statesOf()).map((states) => countOf(states, "SENT", "SENDING"));
    };

    await untilSent(campaign, 8);
    await untilSent(letter, 1);
    const staged = await storm();
    for (const id of sendIds) await untilPaused(id);
    for (const [i, states] of (await statesOf()).entries()) {
      assert.deepEqual(Object.keys(states).sort(), ["QUEUED", "SENT"]);
      assert.ok(countOf(states, "SENT") <= (staged[i] ?? 0), "only mails in flight leave after the answer");
    }
    assert.equal((await client.get(`/newsletters/${letter.newsletterId}`)).body.data.status, "PAUSED");
    const shown = (await client.get(`/campaigns/${campaign.campaignId}`)).body.data;
    assert.deepEqual([shown.status, shown.status_reason], ["PAUSED", "complaint_rate_exceeded"]);

    const before = countOf(await ledgerStates(campaign), "SENT");
    assert.equal(await command(campaignSend, "resume"), "continues");
    await untilSent(campaign, before + 15);
    const [again = 0] = await storm();
    await untilPaused(campaignSend);
    assert.ok(countOf(await ledgerStates(campaign), "SENT") <= again);

    await setFaults([]);
    for (const id of sendIds) assert.equal(await command(id, "resume"), "continues");
    for (const sender of both) await untilStatus(sender, ["SENT"]);
    const addresses = [campaign, { audience: `second.${audience}` }].map(async (each) =>
      (await caughtMails(each)).flatMap(({ to }) => to),
    );
    const mailed = (await Promise.all(addresses)).flat();
    assert.deepEqual([mailed.length, new Set(mailed).size], [160, 160]);
    assert.equal((await credits(campaign)).reserved, 0);
  });

  it("pauses a send before its first mail when its team crossed the limit while the send waited for its day", async () => {
    const sender = await makeSender({ recipients: 2 });
    const { data } = await startTomorrow(sender);
    await setFigures(sender, 1_000, 2);
    await beginToday(sender, data.id);
    await untilPaused(data.id);
    assert.deepEqual(await ledgerStates(sender), { QUEUED: 2 });
    await untilDetails(data.id, DETAILS.pausedForComplaints(0.002));
    await command(data.id, "resume");
    await untilStatus(sender, ["SENT"]);
    assert.deepEqual(await ledgerStates(sender), { SENT: 2 });
  });

  describe("limits", () => {
    let team: TestTeam;
    let sendId: string;
    const em = () => team.em.fork();
    beforeEach(async () => {
      team = await makeTeam();
      sendId = await recordSend(em(), live(team), "nl_none", 1);
      await setStatus("SENDING");
    });
    const setStatus = (status: string) =>
      sql`update sends set status = ${status} where id = ${sendId}`.execute(kysely(em()));
    /** @returns the send's status once the team's figures are these */
    const statusAt = async (sent: number, complaints: number) => {
      await setFigures(team, sent, complaints);
      await pauseForComplaints(em(), live(team));
      const { status, pauseReason } = (await readSend(em(), sendId)) ?? assert.fail();
      return pauseReason === null ? status : `${status} ${pauseReason}`;
    };
    const PAUSED = "PAUSED complaint_rate_exceeded";
    /** An operator's command. */
    const resume = () => resumeSend(em(), sendId);

    it("are 0.20 %, and 0.05 points more than at each resume", async () => {
      assert.equal(await statusAt(10_000, 19), "SENDING");
      assert.equal(await statusAt(10_000, 20), PAUSED);
      // The rate at which it is resumed counts, not the one at which it was paused.
      await setFigures(team, 10_000, 30);
      assert.equal((await resume()).changed, true);
      assert.equal(await statusAt(10_000, 34), "SENDING");
      assert.equal((await resume()).changed, true, "a resume of a send that is not paused changes no limit");
      assert.equal(await statusAt(10_000, 35), PAUSED);
      assert.equal((await resume()).changed, true);
      assert.equal(await statusAt(10_000, 39), "SENDING");
      assert.equal(await statusAt(10_000, 40), PAUSED);
      // Below the first limit, it is the first one again.
      await setFigures(team, 30_000, 45);
      await resume();
      assert.equal(await statusAt(30_000, 59), "SENDING");
      assert.equal(await statusAt(30_000, 60), PAUSED);
    });

    it("pause it again for good where an operator's resume is tried once more after its answer was lost", async () => {
      assert.equal(await statusAt(10_000, 20), PAUSED);
      const { resumes } = (await readSend(em(), sendId)) ?? assert.fail();
      const attempt = async () => {
        const { changed, state } = await resumeSend(em(), sendId, false, resumes);
        return [changed, state?.status];
      };
      assert.deepEqual(await attempt(), [true, "SENDING"]);
      assert.deepEqual(await attempt(), [true, "SENDING"]);
      assert.equal(await statusAt(10_000, 25), PAUSED);
      assert.deepEqual(await attempt(), [true, "PAUSED"]);
      assert.equal(await statusAt(10_000, 25), PAUSED);
    });

    it("are reached no more once the days of the complaints have left the window", async () => {
      const inDays = (days: number) => new Date(Date.now() + days * 86_400_000).toISOString().slice(0, 10);
      await setFigures(team, 1_000, 9, 30);
      await setFigures(team, 600, 0, 29);
      await setFigures(team, 400, 2, 10);
      const figures = { complaints: 2, delivered: 1_000, rate: 0.002 };
      assert.deepEqual(await readComplaintFigures(em(), live(team)), { ...figures, belowFrom: inDays(20) });
      await setFigures(team, 600, 1, 29);
      await setFigures(team, 400, 1, 10);
      assert.equal((await readComplaintFigures(em(), live(team))).belowFrom, inDays(20));
      await setFigures(team, 900, 1, 10);
      assert.equal((await readComplaintFigures(em(), live(team))).belowFrom, inDays(0));
      await setFigures(team, 100, 1, 29);
      assert.equal((await readComplaintFigures(em(), live(team))).belowFrom, inDays(1));
    });

    it("are met by the very complaint that makes 0.05 points, also where floats add up to more", async () => {
      for (let complaints = 20; complaints < 60; complaints += 5) {
        assert.equal(await statusAt(10_000, complaints), PAUSED);
        // Each one a rate of its own, as 0.0037 + 0.0005 > 0.0042.
        await setFigures(team, 10_000, complaints + 2);
        await resume();
        assert.equal(await statusAt(10_000, complaints + 6), "SENDING");
        assert.equal(await statusAt(10_000, complaints + 7), PAUSED, `from ${complaints + 2}`);
        await setFigures(team, 10_000, complaints);
        await resume();
      }
    });

    it("stay where an operator's resume left them when a client pauses and resumes", async () => {
      assert.equal(await statusAt(10_000, 20), PAUSED);
      await resume();
      await setFigures(team, 10_000, 24);
      await pauseSend(em(), sendId, PAUSE_REASONS.client);
      assert.equal((await resumeForClient(em(), sendId)).state?.status, "SENDING");
      assert.equal(await statusAt(10_000, 25), PAUSED);
    });

    it("stay the reason of a pause when the send is paused for another reason too", async () => {
      assert.equal(await statusAt(10_000, 20), PAUSED);
      for (const reason of [null, "login_refused", PAUSE_REASONS.workflowEnded]) {
        assert.equal((await pauseSend(em(), sendId, reason)).changed, true);
        const { pauseReason, complaintRate } = (await readSend(em(), sendId)) ?? assert.fail();
        assert.deepEqual([pauseReason, complaintRate], ["complaint_rate_exceeded", 0.002]);
      }
      await resume();
      await pauseSend(em(), sendId, "login_refused");
      assert.equal((await readSend(em(), sendId))?.pauseReason, "login_refused");
    });

    it("are logged by the process that takes the complaint, with the rate and without the address", async () => {
      const expected = { sendId, teamId: team.team.id, from: "SENDING", status: "PAUSED" };
      const reason = "complaint_rate_exceeded";
      const email = uniqueEmail("complains");
      await setFigures(team, 1_000, 1);
      assert.equal((await postComplaint(team, await mailTo(team, email))).status, 204);
      const ofSend = () =>
        readLogs()
          .split("\n")
          .filter((line) => line.includes(sendId));
      await eventually(() => ofSend().length > 0, { what: "the line in the log" });
      const [line = "{}", ...more] = ofSend();
      assert.deepEqual(more, []);
      const { level, time, ...logged } = JSON.parse(line);
      const message = { ...expected, reason, msg: "a send is PAUSED" };
      assert.deepEqual(logged, { service: "api", ...message, complaintRate: 0.002 });
    });

    it("are compared again by a report that is repeated, as after a kill between report and pause", async () => {
      const mail = await mailTo(team, uniqueEmail());
      const complain = async () => recordReport(em(), { ...mail, kind: "complaint" }, (await stack()).env);
      await setStatus("SCHEDULED");
      assert.equal(await complain(), "recorded");
      await setStatus("SENDING");
      assert.equal(await complain(), "known");
      assert.equal((await readSend(em(), sendId))?.pauseReason, "complaint_rate_exceeded");
    });

    it("have no minimum volume, and touch neither sends that are not mailing nor other teams", async () => {
      const other = await makeTeam();
      await setFigures(other, 1, 1);
      await pauseForComplaints(em(), live(other));
      assert.equal((await readSend(em(), sendId))?.status, "SENDING");
      await setStatus("SCHEDULED");
      assert.equal(await statusAt(10, 1), "SCHEDULED");
      await setStatus("PAUSED");
      assert.equal(await statusAt(10, 1), "PAUSED");
      await setStatus("SENDING");
      assert.equal(await statusAt(10, 1), PAUSED);
    });
  });
});

import assert from "node:assert/strict";
import { sql } from "kysely";
import { type EntityManager, forTenant, kysely } from "../../db/orm.ts";
import { transaction } from "../../db/transaction.ts";
import { foldChanges } from "../../domain/analytics/fold.ts";
import { countConditions } from "../../domain/audience/segments/segments.ts";
import { readResourceContent } from "../../domain/sends/ledger/content.ts";
import { cancelSend, finishSend, pauseSend } from "../../domain/sends/ledger/lifecycle.ts";
import { showSequence } from "../../domain/sequences/progress.ts";
import { changeTracking, deleteSequence, resumeSequence, stopSequence } from "../../domain/sequences/sequences.ts";
import { pauseSequence, readRunning } from "../../domain/sequences/state.ts";
import { saveSteps } from "../../domain/sequences/steps.ts";
import { advanceWaves, claimWave, leaveIneligible } from "../../domain/sequences/waves.ts";
import { sequenceWorkflowId } from "../../temporal/ids.ts";
import { sequenceStart } from "../../temporal/starts.ts";
import { live } from "../reports/mails.ts";
import { declareFields } from "../support/contacts.ts";
import { eventually } from "../support/eventually.ts";
import { tenantOf } from "../support/factories.ts";
import {
  addContacts,
  caughtMails,
  makeCampaignSender,
  makeSender,
  readMail,
  type Sender,
  type SenderOptions,
  untilBlocked,
} from "../support/sending.ts";
import {
  addPerson,
  enrolmentsOf,
  makeDue,
  makeSequence,
  soon,
  stateOf,
  step,
  untilEnrolled,
} from "../support/sequences.ts";
import { temporalClient, untilDetails } from "../support/temporal.ts";

interface Scene {
  em: EntityManager;
  sender: Sender;
  id: string;
  /** Members, in the order of their enrolment. */
  people: string[];
  run(query: ReturnType<typeof sql>): Promise<unknown>;
  /** Not so soon after the wave before. */
  claim(knownWave?: number): ReturnType<typeof claimWave>;
  /** Gives all mails of a wave an outcome. */
  settle(sendId: string, state: string, reason?: string): Promise<void>;
  /** Where the people are, as `state step`. */
  where(): Promise<string[]>;
}

/** A sequence of three people who are due, in a transaction that is rolled back: no workflow sees it. */
async function scene(
  work: (scene: Scene) => Promise<void>,
  options: SenderOptions = {},
  steps = [soon("a"), soon("b")],
) {
  const sender = await makeSender({ recipients: 3, ...options });
  const play = async (em: EntityManager) => {
    const id = await makeSequence({ ...sender, em }, { steps, includeMembers: true });
    const run = (query: ReturnType<typeof sql>) => query.execute(kysely(em));
    const people = (await enrolmentsOf(em, id)).map(({ memberId }) => memberId);
    assert.equal(people.length, 3);
    await work({
      em,
      sender,
      id,
      people,
      run,
      claim: async (knownWave = 0) => {
        await run(sql`update sequences set claimed_at = null where campaign_id = ${id}`);
        return claimWave(em, id, knownWave);
      },
      settle: async (sendId, state, reason) => {
        await run(
          sql`update send_recipients set state = ${state}, reason = ${reason ?? null},
            updated_at = date_trunc('milliseconds', now()) where send_id = ${sendId}`,
        );
      },
      where: async () => (await enrolmentsOf(em, id)).map(({ state, step: waited }) => `${state} ${waited}`).sort(),
    });
  };
  await transaction(sender.em, play, { isRolledBack: true });
}

const thrice = (text: string) => [text, text, text];

describe("A wave", () => {
  it("holds those who are due in the ledger of a send with their credits and cap, each once", () =>
    scene(async ({ em, id, claim, where, run }) => {
      const { sendId = "" } = await claim();
      const { rows } = (await run(sql`select s.status, s.recipients,
          (select amount::int from credit_entries e where e.send_id = s.id) as credits,
          (select used from daily_send_usage u join api_keys k on k.lineage_id = u.lineage_id where k.id = s.api_key_id) as used,
          (select count(*)::int from send_recipients r where r.send_id = s.id and r.list_id is not null) as rows,
          (select count(*)::int from send_lanes l where l.send_id = s.id) as lanes from sends s where s.id = ${sendId}`)) as {
        rows: unknown[];
      };
      assert.deepEqual(rows, [{ status: "SCHEDULED", recipients: 3, credits: 3, used: 3, rows: 3, lanes: 1 }]);
      assert.deepEqual(await claim(), { isBusy: true, isBlocked: false });
      assert.deepEqual(await where(), thrice("ACTIVE a"));
      assert.deepEqual(await stateOf(em, id), { status: "ACTIVE", reason: null, wave: 1, waves: [sendId] });
    }));

  it("has the team's present brand below its mails", () =>
    scene(async ({ claim, em, id, run, sender }) => {
      const { sendId = "" } = await claim();
      const resource = { type: "campaign", id } as const;
      for (const address of ["1 High Street", "2 Low Street"]) {
        await run(sql`update teams set postal_address = ${address} where id = ${sender.team.id}`);
        const { footer } = await readResourceContent(em, live(sender), resource, sendId);
        const brand = { language: "en", mailFooter: null, postalAddress: address };
        assert.deepEqual(footer, { ...brand, isToList: true, isOnWeb: false });
      }
    }));

  it("counts opens and clicks as its sequence says when it is claimed, else as its team does", () =>
    scene(
      async ({ claim, settle, em, id, run, sender }) => {
        const modes: unknown[] = [];
        for (const tracking of [true, false, null]) {
          await changeTracking(em, tenantOf(sender), id, tracking, () => {});
          const { sendId = "" } = await claim();
          await settle(sendId, "SENT");
          await advanceWaves(em, id);
          await changeTracking(em, tenantOf(sender), id, !tracking, () => {});
          modes.push(
            ...((await run(sql`select tracking from sends where id = ${sendId}`)) as { rows: unknown[] }).rows,
          );
          await run(sql`update teams set tracking = 'AGREED' where id = ${sender.team.id}`);
        }
        assert.deepEqual(modes, [{ tracking: "ALL" }, { tracking: "OFF" }, { tracking: "AGREED" }]);
      },
      {},
      [soon("a"), soon("b"), soon("c")],
    ));

  it("takes the least of what is due, what the cap and what the credits allow", async () => {
    for (const options of [{ credits: 2 }, { dailySendCap: 2 }]) {
      await scene(async ({ claim, settle, em, id }) => {
        const { sendId = "" } = await claim();
        await settle(sendId, "SENT");
        await advanceWaves(em, id);
        assert.equal((await enrolmentsOf(em, id)).filter(({ passed }) => passed === "a").length, 2);
        const next = await claim();
        const { status, reason } = await stateOf(em, id);
        if (options.credits) assert.deepEqual([next, status, reason], [{}, "PAUSED", "credits"]);
        else assert.ok((next.capMs ?? 0) > 0 && status === "ACTIVE");
      }, options);
    }
  });

  it("takes 50,000 at once, and the others later", () =>
    scene(
      async ({ claim, run, id, where }) => {
        await run(sql`insert into sequence_enrolments (campaign_id, address_hash, member_id, state, step_id, due_at)
          select ${id}, n, 'sub_' || n, 'ACTIVE', 'a', now() - interval '1 hour' from generate_series(1, 50001) n`);
        assert.deepEqual(await claim(), {}, "these are no subscribers");
        assert.equal((await where()).filter((at) => at === "ACTIVE a").length, 4);
      },
      { credits: 60_000, dailySendCap: 60_000 },
    ));

  it("holds no person when another send takes the rest of the cap at that moment", () =>
    scene(
      async ({ em, id, claim, sender }) => {
        const other = sender.em.fork();
        await other.begin();
        await sql`insert into daily_send_usage (lineage_id, day, used)
          values (${sender.liveKey.record.lineageId}, (now() at time zone 'UTC')::date, 2)`.execute(kysely(other));
        const claiming = claim();
        await untilBlocked(sender, "%daily_send_usage%");
        await other.commit();
        assert.ok(((await claiming).capMs ?? 0) > 0);
        const { rows } =
          await sql`select from sequence_enrolments where campaign_id = ${id} and send_id is not null`.execute(
            kysely(em),
          );
        assert.equal(rows.length, 0);
        assert.equal((await stateOf(em, id)).status, "ACTIVE");
      },
      { dailySendCap: 2 },
    ));

  for (const [reason, close] of [
    [
      "api_key_revoked",
      ({ sender, run }: Scene) =>
        run(sql`update api_keys set revoked_at = now() where id = ${sender.liveKey.record.id}`),
    ],
    [
      "account_not_active",
      ({ sender, run }: Scene) =>
        run(sql`update email_accounts set status = 'ERROR' where team_id = ${sender.team.id}`),
    ],
    [
      "domain_not_allowed",
      ({ sender, run }: Scene) =>
        run(sql`update api_keys set send_domains = '{other.example}' where id = ${sender.liveKey.record.id}`),
    ],
    [
      "complaint_rate_exceeded",
      ({ sender, run }: Scene) =>
        run(sql`insert into analytics_days (team_id, environment, resource_id, day, sent, complaints_received)
        values (${sender.team.id}, 'LIVE', '', (now() at time zone 'UTC')::date, 100, 2)`),
    ],
  ] as const) {
    it(`is not claimed and pauses the sequence when a gate refuses it: ${reason}`, () =>
      scene(async (stage) => {
        await close(stage);
        assert.deepEqual(await stage.claim(), {});
        assert.deepEqual(await stateOf(stage.em, stage.id), { status: "PAUSED", reason, wave: 0, waves: [] });
        assert.deepEqual(await stage.where(), thrice("ACTIVE a"));
      }));
  }

  it("is named with its status by its sequence, and by the refusal of a resume", () =>
    scene(async ({ em, sender, id, claim, run, settle }) => {
      const { sendId = "" } = await claim();
      await settle(sendId, "UNKNOWN");
      await run(sql`update sends set status = 'PAUSED', pause_reason = 'account_not_active' where id = ${sendId}`);
      const { waves, unknown } = await showSequence(em, tenantOf(sender), id);
      assert.deepEqual(waves, [{ id: sendId, status: "PAUSED", reason: "account_not_active" }]);
      assert.deepEqual(unknown, { a: 3 });
      const message = `It is ACTIVE: its wave ${sendId} is PAUSED: send:resume ${sendId}.`;
      await assert.rejects(resumeSequence(em, id), { code: "resource_state_invalid", message });
      await assert.rejects(deleteSequence(em, id), { message: /it has mailed/ });
    }));

  it("lets people pass the step whose mail was sent, may have been sent, or came too late", () =>
    scene(async ({ em, id, claim, settle, where }) => {
      for (const [outcome, then] of [
        ["SENT", thrice("ACTIVE b")],
        ["UNKNOWN", thrice("COMPLETED null")],
      ] as const) {
        const { sendId = "" } = await claim();
        await advanceWaves(em, id);
        assert.ok((await where()).every((at) => at.startsWith("ACTIVE")));
        await settle(sendId, outcome);
        await advanceWaves(em, id);
        assert.deepEqual(await where(), then);
        assert.deepEqual(await claimWave(em, id, 0), {}, "within three seconds of the wave before");
      }
      assert.deepEqual((await stateOf(em, id)).waves, []);
    }));

  it("does not delay others by DEFERRED people, who continue later", () =>
    scene(async ({ em, id, claim, settle, where, run, people }) => {
      const { sendId = "" } = await claim();
      await settle(sendId, "SENT");
      await run(
        sql`update send_recipients set state = 'DEFERRED' where send_id = ${sendId} and member_id = ${people[0]}`,
      );
      await advanceWaves(em, id);
      assert.deepEqual(await where(), ["ACTIVE a", "ACTIVE b", "ACTIVE b"]);
      await run(sql`update sends set status = 'SENDING' where id = ${sendId}`);
      const second = await claim();
      assert.ok(second.sendId && second.sendId !== sendId);
      await settle(sendId, "EXPIRED");
      await advanceWaves(em, id);
      assert.deepEqual((await stateOf(em, id)).waves, [second.sendId]);
      assert.deepEqual(await where(), thrice("ACTIVE b"));
    }));

  it("makes those leave whom it could not mail, and hard bounces", () =>
    scene(async ({ em, id, claim, settle, run, people, sender }) => {
      const { sendId = "" } = await claim();
      await settle(sendId, "SUPPRESSED", "opted_out");
      await run(
        sql`update send_recipients set state = 'REJECTED' where send_id = ${sendId} and member_id <> ${people[0]}`,
      );
      await run(sql`insert into suppressions (id, team_id, environment, email, reason)
        select 'supp_x', ${sender.team.id}, 'LIVE', email, 'bounce:hard' from subscribers where id = ${people[1]}`);
      await advanceWaves(em, id);
      const left = new Map(
        (await enrolmentsOf(em, id)).map(({ memberId, state, reason }) => [memberId, `${state} ${reason}`]),
      );
      assert.deepEqual(
        people.map((person) => left.get(person)),
        ["LEFT opted_out", "LEFT bounced", "ACTIVE null"],
      );
    }));

  it("counts a mail as sent also when that is known later, and who opened it", () =>
    scene(async ({ em, id, claim, settle, run, people, sender }) => {
      const { sendId = "" } = await claim();
      await settle(sendId, "UNKNOWN");
      await advanceWaves(em, id);
      await settle(sendId, "SENT");
      await run(sql`insert into engagements (send_id, seq, kind, team_id, environment, resource_id, email, count, first_at, last_at)
        select send_id, seq, 'opened', ${sender.team.id}, 'LIVE', ${id}, email, 2, now(), now()
        from send_recipients where send_id = ${sendId} and member_id = ${people[0]}`);
      while ((await foldChanges(em, 10_000)) === 10_000);
      const { steps } = await showSequence(em, tenantOf(sender), id);
      assert.deepEqual(
        steps.map(({ sent, opened, clicked }) => [sent, opened, clicked]),
        [
          [3, 1, 0],
          [0, 0, 0],
        ],
      );
    }));

  it("leaves each contact once in a segment of the mails of the sequence", () =>
    scene(async ({ em, id, claim, settle, run, sender }) => {
      for (const _step of ["a", "b"]) {
        const { sendId = "" } = await claim();
        await settle(sendId, "SENT");
        await advanceWaves(em, id);
      }
      await run(sql`insert into contacts (id, team_id, environment, email, email_spelling, fields, email_status)
        select 'ct_' || id, team_id, environment, email, email_spelling, '{}', 'ACTIVE' from subscribers where team_id = ${sender.team.id}`);
      const tenant = tenantOf(sender);
      const { contacts } = await countConditions(forTenant(em, tenant), tenant, { event: "received", resource: id });
      assert.equal(contacts, 3);
    }));

  it("lets no person wait after it when the sequence was stopped meanwhile", () =>
    scene(async ({ em, id, claim, settle, where }) => {
      const { sendId = "" } = await claim();
      await stopSequence(em, id);
      await settle(sendId, "SENT");
      await advanceWaves(em, id);
      assert.deepEqual(await where(), thrice("LEFT b"));
    }));

  it("gives its people back when it is cancelled, and pauses the sequence", () =>
    scene(async ({ em, id, claim, where, sender }) => {
      const { sendId = "" } = await claim();
      await saveSteps(em, tenantOf(sender), id, [soon("b")]);
      await pauseSend(em, sendId);
      assert.deepEqual(await claim(), { isBusy: true, isBlocked: true });
      await cancelSend(em, sendId);
      await finishSend(em, sendId);
      await advanceWaves(em, id);
      assert.deepEqual(await where(), thrice("ACTIVE b"), "the step of the wave was removed meanwhile");
      assert.deepEqual(await stateOf(em, id), { status: "PAUSED", reason: "wave_cancelled", wave: 1, waves: [] });
      await resumeSequence(em, id);
      assert.ok((await claim()).sendId);
    }));

  it("is not claimed by a Postgres that is behind its workflow, nor while the sequence is paused", () =>
    scene(async ({ em, id, claim }) => {
      await pauseSequence(em, id, null);
      assert.deepEqual(await claim(), {});
      assert.deepEqual(await claim(7), {});
      assert.deepEqual(await stateOf(em, id), { status: "PAUSED", reason: "database_restored", wave: 7, waves: [] });
    }));

  it("leaves out people who have become ineligible: they leave, at the claim or at the sweep", () =>
    scene(async ({ em, id, claim, run, people, sender }) => {
      await run(sql`delete from subscriptions where subscriber_id = ${people[0]}`);
      await run(sql`delete from subscribers where id = ${people[1]}`);
      assert.ok((await claim()).sendId);
      await run(sql`insert into suppressions (id, team_id, environment, email, reason)
        select 'supp_y', ${sender.team.id}, 'LIVE', email, 'MANUAL' from subscribers where id = ${people[2]}`);
      await run(sql`update sequence_enrolments set send_id = null where campaign_id = ${id}`);
      const isToSweep = async () => {
        for await (const page of readRunning(em)) {
          if (page.some((each) => each.id === id && each.sweep !== "none")) return true;
        }
        return false;
      };
      assert.equal(await isToSweep(), true);
      await leaveIneligible(em, id);
      assert.equal(await isToSweep(), false, "not again within a quarter of an hour");
      const reasons = new Map((await enrolmentsOf(em, id)).map(({ memberId, reason }) => [memberId, reason]));
      assert.deepEqual(
        people.map((person) => reasons.get(person)),
        ["opted_out", "subscriber_deleted", "suppressed"],
      );
    }));

  it("looks at the conditions of its step when it is due: stop_if ends, skip_if passes the step unmailed", () => {
    const opened = { event: "opened" };
    const steps = [
      soon("a"),
      soon("b", { stop_if: opened, skip_if: { field: "first_name", op: "eq", value: "First2" } }),
    ];
    return scene(
      async ({ em, id, claim, settle, run, people, sender }) => {
        const { sendId = "" } = await claim();
        await settle(sendId, "SENT");
        await advanceWaves(em, id);
        await run(sql`insert into engagements (send_id, seq, kind, team_id, environment, resource_id, email, count, first_at, last_at)
          select send_id, seq, 'opened', ${sender.team.id}, 'LIVE', ${id}, email, 1, now(), now()
          from send_recipients where send_id = ${sendId} and member_id = ${people[0]}`);
        assert.ok((await claim()).sendId);
        const rows = await enrolmentsOf(em, id);
        const named = rows.map(({ state, reason }) => `${state} ${reason}`).sort();
        assert.deepEqual(named, ["ACTIVE null", "COMPLETED null", "LEFT stop_if"]);
        assert.equal(rows.find(({ memberId }) => memberId === people[0])?.reason, "stop_if");
      },
      {},
      steps,
    );
  });
});

describe("A sequence", () => {
  it("is not held up by another one whose workflow cannot be woken", async () => {
    const sender = await makeSender({ recipients: [] });
    const { em } = sender;
    const id = await makeSequence(sender, { steps: [soon("a")] });
    // Temporal takes no id of that length.
    const broken = `cmp_0${"0".repeat(1_000)}`;
    await sql`insert into campaigns (id, team_id, environment, name, status, is_drip)
      values (${broken}, ${sender.team.id}, 'LIVE', 'Broken', 'ACTIVE', true)`.execute(kysely(em));
    await sql`insert into sequence_wakes (campaign_id) values (${broken})`.execute(kysely(em));
    await addPerson(sender, `first@${sender.audience}`);
    await untilEnrolled(sender, id, (rows) => rows.length === 1 && rows.every(({ state }) => state === "COMPLETED"));
    const { rows } = await sql`select from sequence_wakes where campaign_id = ${broken}`.execute(kysely(em));
    await sql`delete from campaigns where id = ${broken}`.execute(kysely(em));
    assert.equal(rows.length, 1);
  });

  it("mails each step once to those who come onto its list, by the rules of the list, until they leave it", async () => {
    const sender = await makeSender({ recipients: [] });
    const body = '<p>Welcome to {{ list_name }} in {{ fields.city | default: "your city" }}</p>';
    await declareFields(sender, { city: "text" });
    await addContacts(sender, [{ email: `p1@${sender.audience}`, fields: { city: "Rome" } }]);
    const id = await makeSequence(sender, { steps: [soon("a", { body }), soon("b"), step("later")] });
    const people = [];
    for (let n = 0; n < 3; n++) people.push(await addPerson(sender, `p${n}@${sender.audience}`));
    await untilEnrolled(sender, id, (rows) => rows.length === 3 && rows.every(({ passed }) => passed === "b"));
    const mails = await caughtMails(sender);
    assert.deepEqual(mails.map(({ to, subject }) => `${to[0]?.split("@")[0]} ${subject.at(-1)}`).sort(), [
      "p0 a",
      "p0 b",
      "p1 a",
      "p1 b",
      "p2 a",
      "p2 b",
    ]);
    const firstOf = async (name: string) =>
      readMail(mails.find(({ to }) => to[0]?.startsWith(name))?.id ?? assert.fail(name));
    const { html, headers } = await firstOf("p0");
    assert.match(html ?? "", /Welcome to Readers in your city/);
    assert.match((await firstOf("p1")).html ?? "", /Welcome to Readers in Rome/);
    const link = headers.find(({ key }) => key === "list-unsubscribe")?.value.match(/<(http[^>]+)>/)?.[1] ?? "";
    assert.equal(
      (await fetch(link, { method: "POST", body: new URLSearchParams({ "List-Unsubscribe": "One-Click" }) })).status,
      200,
    );
    await makeDue(sender, id);
    const rows = await untilEnrolled(sender, id, (all) =>
      all.every(({ state }) => state === "COMPLETED" || state === "LEFT"),
    );
    assert.equal(rows.filter(({ state }) => state === "LEFT").length, 1);
    assert.equal((await caughtMails(sender)).length, 8);
  });

  it("mails contacts of a segment with their fields, and shows operators where it is", async () => {
    const sender = await makeCampaignSender({ recipients: 2 });
    const id = await makeSequence(sender, { steps: [soon("a")], includeMembers: true });
    await untilEnrolled(sender, id, (rows) => rows.length === 2 && rows.every(({ state }) => state === "COMPLETED"));
    const handle = (await temporalClient()).client.workflow.getHandle(sequenceWorkflowId(id));
    const answer = await handle.executeUpdate("pause");
    assert.match(String(answer), /^PAUSED/);
    assert.equal((await stateOf(sender.em, id)).status, "PAUSED");
    assert.match(String(await handle.executeUpdate("stop")), /^STOPPED/);
    await handle.result();
    assert.equal((await caughtMails(sender)).length, 2);
  });

  it("is PAUSED, with its reason, when its runs have failed for an hour", async () => {
    const sender = await makeSender({ recipients: [] });
    const { em } = sender;
    const id = await makeSequence(sender, { steps: [step("a"), step("b")] });
    await addPerson(sender);
    const { client } = await temporalClient();
    const handle = client.workflow.getHandle(sequenceWorkflowId(id));
    const setTime = (time: string | null) =>
      sql`update sequence_step_versions set time_of_day = ${time} where campaign_id = ${id} and step_id = 'b'`.execute(
        kysely(em),
      );
    // No person can be given a time for the step.
    await setTime("?");
    await makeDue(sender, id);
    await untilDetails(handle, /failed three times/);
    assert.equal((await stateOf(em.fork(), id)).status, "ACTIVE");
    const failingSince = Date.now() - 3_600_000;
    await client.workflow.start("sequenceWorkflow", {
      ...sequenceStart({ campaignId: id, teamId: sender.team.id, wave: 0, failingSince }),
      workflowIdConflictPolicy: "TERMINATE_EXISTING",
    });
    await eventually(async () => (await stateOf(em.fork(), id)).reason === "claim_failed", { what: "the pause" });
    await setTime(null);
    await eventually(async () => (await enrolmentsOf(em.fork(), id))[0]?.passed === "a", { what: "the next step" });
    await handle.executeUpdate("stop");
    await handle.result();
  });

  it("comes back PAUSED when its workflow is terminated, and continues after a resume", async () => {
    const sender = await makeSender({ recipients: [] });
    const id = await makeSequence(sender, { steps: [soon("a")] });
    await addPerson(sender, `first@${sender.audience}`);
    await untilEnrolled(sender, id, (rows) => rows.length === 1 && rows.every(({ state }) => state === "COMPLETED"));
    const handle = (await temporalClient()).client.workflow.getHandle(sequenceWorkflowId(id));
    await handle.terminate();
    await addPerson(sender, `second@${sender.audience}`);
    await eventually(async () => (await stateOf(sender.em.fork(), id)).reason === "workflow_ended", {
      what: "the pause",
    });
    await resumeSequence(sender.em.fork(), id);
    await untilEnrolled(sender, id, (rows) => rows.length === 2 && rows.every(({ state }) => state === "COMPLETED"));
    await pauseSequence(sender.em.fork(), id, null);
    assert.equal((await caughtMails(sender)).length, 2);
  });
});

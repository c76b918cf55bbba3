import assert from "node:assert/strict";
import { sql } from "kysely";
import { kysely } from "../../db/orm.ts";
import { listSends } from "../../domain/sends/operators/inspection.ts";
import { sendWorkflowId } from "../../temporal/ids.ts";
import { app, inProcess, runApp } from "../support/command.ts";
import { makeTeam, recordSend, uniqueEmail } from "../support/factories.ts";
import {
  addAccount,
  type CampaignSender,
  makeCampaignSender,
  makeSender,
  type Sender,
  startTomorrow,
} from "../support/sending.ts";
import { temporalClient } from "../support/temporal.ts";
import { makeEndpoint } from "../support/webhooks.ts";

describe("The commands for sends", () => {
  /** Its send has ended with an unknown outcome, past the service. */
  let ended: Sender;
  let endedId: string;
  /** Its send over two accounts waits for tomorrow. */
  let scheduled: CampaignSender;
  let scheduledId: string;

  before(async () => {
    ended = await makeSender({ recipients: 0 });
    const { em, team, newsletterId, accountId } = ended;
    endedId = await recordSend(em, { teamId: team.id, environment: "LIVE" }, newsletterId, 3);
    for (const statement of [
      sql`update newsletters set status = 'SENT', send_id = ${endedId}, send_days = '{1,5}' where id = ${newsletterId}`,
      sql`update sends set review_until = now() + interval '7 days' where id = ${endedId}`,
      sql`insert into send_lanes (send_id, account_id) values (${endedId}, ${accountId})`,
      sql`insert into send_recipients (send_id, seq, member_id, email)
        select ${endedId}, n, 'sub_' || n, 'p' || n || '@a.example' from generate_series(1, 3) n`,
      // Changes of states are counted.
      sql`update send_recipients set state = case seq when 3 then 'UNKNOWN' else 'SENT' end,
        reason = case seq when 3 then 'worker_lost' end where send_id = ${endedId}`,
    ]) {
      await statement.execute(kysely(em));
    }

    scheduled = await makeCampaignSender({ recipients: 2, credits: 10, furtherAccounts: [{}] });
    scheduledId = (await startTomorrow(scheduled)).data.id;
  });

  it("show a send by its newsletter's id, with its reason, counts, account and workflow", async () => {
    const { text, data } = await inProcess("send:show", ended.newsletterId);
    const send = data["send"] as Record<string, unknown>;
    assert.deepEqual(
      [send["id"], send["newsletter"], send["status"], send["needs_operator"], send["send_days"], send["workflow"]],
      [endedId, ended.newsletterId, "SENT", "unknown_outcomes", [1, 5], `send/${endedId}`],
    );
    const counts = { queued: 0, sending: 0, sent: 2, rejected: 0, deferred: 0, unknown: 1 };
    assert.deepEqual(send["recipients"], { total: 3, ...counts, expired: 0, suppressed: 0, cancelled: 0 });
    assert.deepEqual(send["accounts"], [
      { id: ended.accountId, status: "ACTIVE", last_error: null, refusal: null, recipients: { sent: 2, unknown: 1 } },
    ]);
    assert.match(text, /needs you +unknown outcomes: send:unknown, send:settle, /);
    assert.match(text, /send days +mon, fri in UTC/);
    assert.match(text, /recipients +3: 2 SENT, 1 UNKNOWN/);
  });

  it("show a campaign's send over two accounts, one of which its server refuses, and the workflow's details", async () => {
    const [first = "", second = ""] = scheduled.accountIds.toSorted();
    await sql`insert into account_refusals (account_id, count, since, reason, temporary, retry_at)
      values (${second}, 3, now(), 'login_refused', false, now() + interval '1 minute')`.execute(kysely(scheduled.em));
    const { text, data } = await inProcess("send:show", scheduledId);
    const send = data["send"] as { accounts: { id: string; refusal: { reason: string } | null }[]; details: string };
    assert.deepEqual(Object.fromEntries(send.accounts.map(({ id, refusal }) => [id, refusal?.reason])), {
      [first]: undefined,
      [second]: "login_refused",
    });
    assert.match(text, new RegExp(`${second} ACTIVE: none; refused 3 times since 20.*login_refused`));
    assert.match(send.details, /0 of 2 sent; SCHEDULED since 20.*Z\.\n\nIts send_at is 20.*Z \(\w{3} in UTC\)\./);
    assert.match(send.details, new RegExp(`Accounts: ${first}, ${second}\\.`));
    assert.deepEqual((await inProcess("send:show", scheduled.campaignId)).data, data);
  });

  it("say that the workflow of a send was terminated, and how it comes back", async () => {
    const sender = await makeSender({ recipients: 1 });
    const { data } = await startTomorrow(sender);
    const { client, close } = await temporalClient();
    try {
      await client.workflow.getHandle(sendWorkflowId(data.id)).terminate("by mistake");
    } finally {
      await close();
    }
    // The reconciler may have come first.
    const { text } = await inProcess("send:show", data.id);
    assert.match(text, /details +Its workflow (is TERMINATED\. The reconciler starts it again|was terminated)/);
  });

  it("list those that need an operator first, of a team and of some statuses", async () => {
    const all = (await inProcess("send:list", "--limit", "10000")).data["sends"] as {
      id: string;
      needs_operator: string | null;
    }[];
    const firstWithout = all.findIndex(({ needs_operator }) => needs_operator === null);
    assert.ok(all.slice(firstWithout).every(({ needs_operator }) => needs_operator === null));
    assert.ok(all.some(({ id }) => id === endedId) && all.some(({ id }) => id === scheduledId));
    const { data, text } = await inProcess("send:list", "--team", ended.team.id, "--status", "sent,failed");
    assert.deepEqual(data["sends"], [
      {
        ...{ id: endedId, resource: ended.newsletterId, team: ended.team.id, environment: "LIVE", status: "SENT" },
        ...{ name: "Issue one", per_minute: null, minutes_left: null },
        ...{ needs_operator: "unknown_outcomes", sent: 2, recipients: 3, accounts: [ended.accountId] },
        send_at: all.flatMap((send) => (send.id === endedId && "send_at" in send ? [send.send_at] : []))[0],
      },
    ]);
    assert.match(text, /^SEND .* NEEDS YOU\nsend_.* SENT +2 of 3 .* unknown_outcomes$/);
    assert.equal((await inProcess("send:list", "--team", ended.team.id, "--status", "PAUSED")).text, "No send");
  });

  it("list a send under way with its rate by the last mails, and the time left at that rate", async () => {
    const tx = ended.em.fork();
    await tx.begin();
    try {
      for (const statement of [
        sql`update sends set status = 'SENDING' where id = ${endedId}`,
        sql`update send_lanes set after_seq = 2 where send_id = ${endedId}`,
        sql`update send_recipients set updated_at = now() - (2 - seq) * interval '1 minute',
          state = case seq when 3 then 'QUEUED' else state end where send_id = ${endedId}`,
      ]) {
        await statement.execute(kysely(tx));
      }
      const [send] = await listSends(tx, { teamId: ended.team.id, limit: 1 });
      assert.deepEqual([send?.perMinute, send?.minutesLeft], [2, 1]);
    } finally {
      await tx.rollback();
    }
  });

  it("list sends of the same kind with the newest first, and not by their ids", async () => {
    const { em, team } = await makeTeam();
    const tenant = { teamId: team.id, environment: "LIVE" } as const;
    const ids: string[] = [];
    while (ids.length < 3) ids.push(await recordSend(em, tenant, "nl_none", 1));
    const oldestFirst = ids.toSorted().reverse();
    await sql`update sends s set created_at = now() + o.days * interval '1 day'
      from unnest(${oldestFirst}::text[]) with ordinality o (id, days) where s.id = o.id`.execute(kysely(em));
    const listed = async (...args: string[]) =>
      ((await inProcess("send:list", "--team", team.id, ...args)).data["sends"] as { id: string }[]).map(
        ({ id }) => id,
      );
    assert.deepEqual(await listed(), oldestFirst.toReversed());
    assert.deepEqual(await listed("--limit", "1"), oldestFirst.slice(-1));
  });

  it("list the endpoints that fail first, then those that the platform switched off, without paths of URLs", async () => {
    const team = await makeTeam();
    const add = (path: string, set = {}) => makeEndpoint(team, { url: `https://receiver.example${path}?token=t`, set });
    const ids = [
      await add("/unproven"),
      await add("/off", { active: false, disabled_reason: "delivery_failures", disabled_at: new Date() }),
      await add("/failing"),
    ].map(({ id }) => id);
    await sql`update webhook_health set consecutive_failures = 7, failing_since = now() where webhook_id = ${ids[2]}`.execute(
      kysely(team.em),
    );
    const listed = (...args: string[]) => inProcess("webhook:list", "--team", team.team.id, ...args);
    const { data, text } = await listed();
    const webhooks = data["webhooks"] as Record<string, unknown>[];
    const told = webhooks.map(({ id, state, disabled_reason: why, consecutive_failures: failures }) =>
      [id, state, why, failures].join(" "),
    );
    assert.deepEqual(told, [`${ids[2]} failing  7`, `${ids[1]} off delivery_failures 0`, `${ids[0]} unproven  0`]);
    assert.match(text, /https:\/\/receiver\.example +failing +20\S+ +7\n/);
    assert.match(text, /off \(delivery_failures\)/);
    assert.doesNotMatch(text + JSON.stringify(data), /token|\/failing/);
    const only = (await listed("--state", "unproven,off", "--limit", "1")).data["webhooks"] as { id: string }[];
    assert.deepEqual([only.length, only[0]?.id], [1, ids[1]]);
  });

  it("print recipients with their Message-IDs as CSV and as JSON", async () => {
    const recipients = ["send:recipients", ended.newsletterId, "--state", "unknown"];
    const [csv, lines] = await Promise.all([app(...recipients, "--csv"), app(...recipients, "--json")]);
    assert.deepEqual([csv.code, lines.code], [0, 0], csv.stderr + lines.stderr);
    const messageId = `3.${endedId}@${ended.domain}`;
    const [header, row, ...more] = csv.stdout.split("\r\n");
    assert.equal(header, "message_id,email,state,reason,attempts,account,updated_at", csv.stderr);
    assert.match(String(row), new RegExp(`^${messageId},p3@a.example,UNKNOWN,worker_lost,0,${ended.accountId},20`));
    assert.deepEqual(more, [""]);
    assert.deepEqual([lines.json.message_id, lines.json.state], [messageId, "UNKNOWN"]);
  });

  it("settle unknown outcomes by the lines that send:unknown prints, once their outcome is filled in", async () => {
    const unknown = () => app("send:unknown", ended.newsletterId, "--csv");
    const settle = (input: string) => runApp(["send:settle", ended.newsletterId, "--file", "-"], { input });
    const line = `3,p3@a.example,3.${endedId}@${ended.domain},`;
    const { stdout } = await unknown();
    assert.equal(stdout, `row,email,message_id,outcome\r\n${line}\r\n`);
    assert.match((await settle(stdout)).stderr, /fill in the last column/);
    const settled = await settle(stdout.replace(line, `${line}not_sent`));
    assert.match(settled.stdout, /^0 sent, 1 not sent\. 1 are unknown now: send:resend-unknown/, settled.stderr);
    assert.ok((await unknown()).stdout.includes(`${line}not_sent\r\n`));
  });

  it("give the workflow the updates of the Temporal UI, and account for the credits of a cancelled send", async () => {
    const { campaignId } = scheduled;
    const given = async (name: string) => {
      const { data } = await inProcess(name, campaignId);
      return [data["update"], data["answer"], data["status"]];
    };
    assert.deepEqual(await given("send:pause"), ["pause", "PAUSED", "PAUSED"]);
    assert.deepEqual(await given("send:resume"), ["resume", "continues", "SCHEDULED"]);
    assert.deepEqual((await given("send:retry"))[1], "looks again now: the details say what is due");
    assert.deepEqual((await given("send:resend-unknown"))[1], "nothing to resend: no outcome is unknown");
    assert.deepEqual(await given("send:cancel"), ["cancel", "CANCELLED", "CANCELLED"]);
    const { data } = await inProcess("credits:show", "--send", campaignId);
    assert.deepEqual(data["credits"], { available: 10, reserved: 0, consumed: 0 });
    const ofSend = ["credits:show", "--send", campaignId, "--team", scheduled.team.id, "--environment", "live"];
    assert.deepEqual((await inProcess(...ofSend)).data, data);
    const movements = data["movements"] as { kind: string; amount: number; send: string }[];
    const told = movements.map(({ kind, amount, send }) => `${kind} ${amount} ${send}`);
    assert.deepEqual(told, [`RELEASE 2 ${scheduledId}`, `RESERVE 2 ${scheduledId}`]);
  });

  it("list failing accounts first, and show one with its limits and open sends", async () => {
    const failing = await addAccount(ended, {
      ...{ email: uniqueEmail(), status: "ERROR", lastError: "login_refused", hourlyLimit: 100 },
    });
    const { data, text } = await inProcess("account:list", "--team", ended.team.id);
    const listed = data["accounts"] as { id: string; last_error: string | null }[];
    const errors = listed.map(({ id, last_error }) => `${id} ${last_error}`);
    assert.deepEqual(errors, [`${failing} login_refused`, `${ended.accountId} null`]);
    assert.match(text, /ERROR \(login_refused\)/);
    const shown = await inProcess("account:show", failing);
    assert.match(shown.text, /mails +0 of 100 this hour, no limit this UTC day\nopen sends +none/);
    const { accounts } = (await inProcess("account:list", "--status", "error")).data;
    assert.ok((accounts as { id: string }[]).some(({ id }) => id === failing));
  });

  it("change an account, and disconnect it", async () => {
    const id = await addAccount(ended, { email: uniqueEmail(), hourlyLimit: 100 });
    const update = (...args: string[]) => inProcess("account:update", "--account", id, ...args);
    await assert.rejects(update(), /Name what to change/);
    // The mail catcher offers no TLS.
    await assert.rejects(update("--security", "starttls", "--hourly-limit", "7"), /cannot be used \(tls_failed\)/);
    assert.match((await update("--hourly-limit", "none", "--daily-limit", "9")).text, /is ACTIVE/);
    const { text } = await inProcess("account:show", id);
    assert.match(text, /mails +no limit this hour, 0 of 9 this UTC day/);
    assert.match((await inProcess("account:disconnect", "--account", id)).text, /is disconnected/);
    await assert.rejects(inProcess("account:show", id), /There is no sending account/);
  });

  it("refuse wrong ids, drafts and times with a sentence", async () => {
    const draft = await makeSender({ recipients: 0 });
    const refusals: [() => Promise<unknown>, RegExp][] = [
      [
        () => inProcess("send:show", "acct_x"),
        /acct_x is no id of a newsletter \(nl_…\), a campaign \(cmp_…\) or a send/,
      ],
      [() => inProcess("send:show", "nl_none"), /There is no newsletter nl_none\./],
      [() => inProcess("send:show", draft.newsletterId), /is DRAFT and has no send: none was confirmed/],
      [() => inProcess("send:pause", scheduledId), /No workflow of send_\w+ runs: the send is CANCELLED\.$/],
      [() => inProcess("send:list", "--status", "LOST"), /It is one of: SCHEDULED/],
      [() => inProcess("send:list", "--status", ","), /Name one at least, of: SCHEDULED/],
      [() => inProcess("send:recipients", ended.newsletterId, "--state", ""), /Name one at least, of: QUEUED/],
      [
        () => inProcess("credits:show", "--send", endedId, "--team", draft.team.id),
        new RegExp(`${endedId} is a send of team ${ended.team.id}, live: leave out --team`),
      ],
      [() => inProcess("credits:show", "--send", endedId, "--environment", "test"), /live: leave out --team/],
      [() => inProcess("credits:grant", "--team", draft.team.id, "--amount", "1", "--cause", " "), /It is empty/],
      [
        () => inProcess("credits:grant", "--team", draft.team.id, "--amount", "1000000000000001"),
        /A team may hold 1000000000000000 email credits: grant fewer\./,
      ],
      [
        () => inProcess("delivery:retry", "dlv_none", "--webhook", "whk_none"),
        /Name either deliveries or, with --webhook, their endpoint\. Both are named\./,
      ],
    ];
    for (const [refused, why] of refusals) await assert.rejects(refused, why, String(why));
  });

  it("print errors as JSON with --json: of the command, of its options and of a file", async () => {
    const errorOf = async (...args: string[]) => {
      const { code, stdout, stderr } = await app(...args, "--json");
      assert.deepEqual([code, stdout], [1, ""], stderr);
      return JSON.parse(stderr).error;
    };
    assert.deepEqual(
      await Promise.all([
        errorOf("send:show", "nl_none"),
        errorOf("send:list", "--limit", "0"),
        errorOf("import", "--contacts", "none.csv", "--team", ended.team.id),
        errorOf("credits:show", "--environment", "none"),
      ]),
      [
        { code: "not_found", message: "There is no newsletter nl_none." },
        {
          code: "validation_failed",
          message: "option '--limit <number>' argument '0' is invalid. It is a whole number from 1 to 10000.",
        },
        { code: "failed", message: "There is no file none.csv." },
        {
          code: "validation_failed",
          message: "option '--environment <name>' argument 'none' is invalid. It is one of: LIVE, TEST.",
        },
      ],
    );
  });
});

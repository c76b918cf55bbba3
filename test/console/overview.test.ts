import assert from "node:assert/strict";
import { TRPCClientError } from "@trpc/client";
import { sql } from "kysely";
import { kysely } from "../../db/orm.ts";
import { transaction } from "../../db/transaction.ts";
import { newId } from "../../domain/ids.ts";
import { attachList } from "../../domain/sends/drafts/drafts.ts";
import { grantCredits } from "../../domain/teams/credits.ts";
import { accept, engage, makeLedger, optOut, report, setState } from "../analytics/ledger.ts";
import { consoleClient, refusalCodeOf, signIn } from "../support/console.ts";
import { makeMember, makeTeam, unique, uniqueEmail } from "../support/factories.ts";
import {
  addSubscribers,
  type CampaignSender,
  freshKey,
  makeCampaignSender,
  makeSender,
  people,
  startUntaken,
} from "../support/sending.ts";
import { webhookBody } from "../support/webhooks.ts";

const clientOf = async (teamId: string, memberId: string) => consoleClient(await signIn(memberId), teamId);
type Client = Awaited<ReturnType<typeof clientOf>>;

const readGates = async (client: Client, kind: "newsletter" | "campaign", id: string) =>
  (await client.app.overview.gates.query({ body: { kind, id } })).data;

describe("The gates of a draft in the console", () => {
  it("show every gate at once, and the API refuses by the first that is not met", async () => {
    const sender = await makeSender({ recipients: 0, credits: 0, account: { status: "ERROR" } });
    const { em, team, listId, fromEmail } = sender;
    const tenant = { teamId: team.id, environment: "LIVE" as const };
    const client = await clientOf(team.id, sender.owner.id);
    const draft = await sender.client.post("/newsletters", { name: "Issue two" });
    const newsletterId: string = draft.body.data.id;
    const params = { newsletterId };
    const run = (statement: ReturnType<typeof sql>) => statement.execute(kysely(em));
    const patch = (body: object) => client.api.newsletters.drafts.update.mutate({ params, body });
    const setCap = (cap: number) =>
      run(sql`update api_keys set daily_send_cap = ${cap} where team_id = ${team.id} and for_sessions`);
    const preview = () =>
      client.api.newsletters.sends.sendPreview
        .mutate({ params }, { context: { idempotencyKey: freshKey() } })
        .catch((error) => (error instanceof TRPCClientError ? error : assert.fail(String(error))));

    await readGates(client, "newsletter", newsletterId);
    await setCap(0);
    await run(sql`insert into analytics_days (team_id, environment, resource_id, day, complaints_received)
      values (${team.id}, 'LIVE', '', (now() at time zone 'UTC')::date, 9)`);
    await run(sql`update newsletters set send_at = now() where id = ${newsletterId}`);
    const repairs: [gate: string, repair: () => Promise<unknown>][] = [
      ["subject", () => patch({ subject: "{{ nothing }}" })],
      ["body", () => patch({ body: "<p>Dear {{ first_name }}</p>" })],
      ["sender", () => patch({ from_email: "news@unknown.example" })],
      ["content", () => patch({ subject: "News" })],
      ["targets", () => transaction(em, (tx) => attachList(tx, newsletterId, listId))],
      ["account", () => patch({ from_email: fromEmail })],
      ["time", () => run(sql`update newsletters set send_at = null where id = ${newsletterId}`)],
      ["recipients", () => addSubscribers(sender, listId, people(2, sender.audience))],
      ["account", () => run(sql`update email_accounts set status = 'ACTIVE' where team_id = ${team.id}`)],
      ["cap", () => setCap(10)],
      ["complaints", () => run(sql`delete from analytics_days where team_id = ${team.id}`)],
      ["credits", () => transaction(em, (tx) => grantCredits(tx, tenant, 2, unique("grant")))],
    ];
    const all = await readGates(client, "newsletter", newsletterId);
    const named = (isMet: boolean | null) =>
      all.gates.filter((state) => state.is_met === isMet).map(({ gate }) => gate);
    assert.deepEqual(named(false), ["subject", "body", "sender", "targets", "time", "complaints"]);
    assert.deepEqual(named(null), ["content", "account", "recipients", "domains", "cap", "credits"]);
    for (const [gate, repair] of repairs) {
      const { gates } = await readGates(client, "newsletter", newsletterId);
      const first = gates.find((state) => state.is_met === false);
      const refused = await preview();
      assert.ok(refused instanceof TRPCClientError, `a preview before the repair of ${gate}`);
      assert.deepEqual([first?.gate, first?.code], [gate, refused.data.code]);
      assert.ok(first?.message && refused.message.startsWith(first.message), refused.message);
      await repair();
    }
    const { gates, recipients, credits_available } = await readGates(client, "newsletter", newsletterId);
    assert.deepEqual(
      gates.filter(({ is_met }) => is_met !== true),
      [],
    );
    assert.deepEqual([recipients?.eligible, credits_available], [2, 2]);
    assert.ok(!((await preview()) instanceof TRPCClientError));
  });

  it("name the segment of a campaign that cannot be evaluated, and a revoked key of the session", async () => {
    const sender: CampaignSender = await makeCampaignSender();
    const { em, team, owner, campaignId } = sender;
    const client = await clientOf(team.id, owner.id);
    await readGates(client, "campaign", campaignId);
    await sql`update segments set conditions = '{"field":"gone","op":"exists","value":true}' where id = ${sender.segmentId}`.execute(
      kysely(em),
    );
    await sql`update api_keys set revoked_at = now() where team_id = ${team.id} and for_sessions`.execute(kysely(em));
    const { gates } = await readGates(client, "campaign", campaignId);
    const unmet = gates.filter(({ is_met }) => is_met === false).map(({ gate, code }) => [gate, code]);
    assert.deepEqual(unmet, [
      ["permission", "api_key_revoked"],
      ["targets", "filter_unsupported"],
    ]);
  });

  it("show an EDITOR the gates that need no key", async () => {
    const { em, team, newsletterId } = await makeSender();
    const editor = await makeMember(em, team.id, "EDITOR");
    const { gates, send_cap } = await readGates(await clientOf(team.id, editor.id), "newsletter", newsletterId);
    const others = gates.filter(({ is_met }) => is_met !== true).map(({ gate, code }) => [gate, code]);
    assert.deepEqual(others, [
      ["permission", "role_insufficient"],
      ["domains", null],
      ["cap", null],
    ]);
    assert.equal(send_cap, null);
  });
});

describe("The overview of the console", () => {
  it("counts the recipients of the sends that go out, of the own team alone", async () => {
    const sender = await makeSender();
    const sendId = await startUntaken(sender);
    const { team, owner, newsletterId } = sender;
    const client = await clientOf(team.id, owner.id);
    const { data } = await client.app.overview.progress.query({ body: {} });
    assert.deepEqual(
      data.map(({ id, resource_id, name, status, recipients }) => [id, resource_id, name, status, recipients.total]),
      [[sendId, newsletterId, "Issue one", "SENDING", 3]],
    );
    const own = await client.app.overview.progress.query({ body: { resource_id: newsletterId } });
    assert.deepEqual(own.data, data);
    const other = await makeTeam();
    const foreign = await clientOf(other.team.id, other.owner.id);
    assert.deepEqual((await foreign.app.overview.progress.query({ body: { resource_id: newsletterId } })).data, []);
  });

  it("names what needs a person, and the first steps of a team", async () => {
    const sender = await makeSender({ credits: 1 });
    const { em, team, owner, newsletterId, accountId } = sender;
    const client = await clientOf(team.id, owner.id);
    const webhook = await sender.client.post("/webhooks", webhookBody());
    await sender.client.post("/subscribers", { email: uniqueEmail() });
    const run = (statement: ReturnType<typeof sql>) => statement.execute(kysely(em));
    await sql`
      with account as (update email_accounts set status = 'ERROR', last_error = 'login_refused' where id = ${accountId}),
      webhook as (update webhook_endpoints set active = false, disabled_reason = 'delivery_failures'
        where id = ${webhook.body.data.id}),
      send as (insert into sends (id, team_id, environment, resource_type, resource_id, api_key_id, status, recipients,
          send_at, pause_reason)
        values (${unique("send")}, ${team.id}, 'LIVE', 'newsletter', ${newsletterId}, '', 'PAUSED', 1, now(),
          'paused_by_client'))
      insert into credit_entries (id, team_id, environment, kind, amount, send_id, cause)
      values (${unique("credit")}, ${team.id}, 'LIVE', 'CONSUME', 8, ${unique("send")}, 'settle')`.execute(kysely(em));
    const {
      items,
      steps,
      credits,
      people: size,
      new_subscribers: added,
    } = (await client.app.overview.attention.query({})).data;
    assert.deepEqual(
      items.map(({ kind, id, reason }) => [kind, id, reason]),
      [
        ["send", newsletterId, "paused_by_client"],
        ["account", accountId, "login_refused"],
        ["webhook", webhook.body.data.id, "delivery_failures"],
        ["credits", "", null],
      ],
    );
    assert.deepEqual(credits, { available: 1, used_in_a_week: 8 });
    assert.deepEqual([size, added], [1, { count: 4, has_more: false }]);
    assert.deepEqual(steps, { account: false, domain: false, list: true, people: true, draft: true });
    const empty = await makeTeam();
    const { data } = await (await clientOf(empty.team.id, empty.owner.id)).app.overview.attention.query({});
    assert.deepEqual([data.items, Object.values(data.steps)], [[], [false, false, false, false, false]]);
    await run(sql`delete from sends where team_id = ${team.id}`);
    await run(sql`delete from credit_entries where team_id = ${team.id} and kind = 'CONSUME'`);
  });
});

describe("The responses of a send in the console", () => {
  it("are counted by the hours from its start to the last one with a response, in the first two days", async () => {
    const team = await makeTeam();
    const { tenant, newsletterId, sendId } = await makeLedger(team, 3);
    const client = await clientOf(team.team.id, team.owner.id);
    const read = async () =>
      (await client.app.overview.hours.query({ body: { resource_id: newsletterId } })).data.hours;
    assert.deepEqual(await read(), []);
    await sql`update sends set started_at = '2026-01-05T10:40:00Z' where id = ${sendId}`.execute(kysely(team.em));
    for (const [seq, kind, at] of [
      [1, "opened", "2026-01-05T10:59:00Z"],
      [1, "clicked", "2026-01-05T12:00:00Z"],
      [2, "opened", "2026-01-05T12:30:00Z"],
      [3, "opened", "2026-01-07T10:00:00Z"],
    ]) {
      await sql`insert into engagements (send_id, seq, kind, team_id, environment, resource_id, email, count, first_at, last_at)
        values (${sendId}, ${seq}, ${kind}, ${tenant.teamId}, 'LIVE', ${newsletterId}, 'a@example.com', 1, ${at}, ${at})`.execute(
        kysely(team.em),
      );
    }
    assert.deepEqual(await read(), [
      { hour: "2026-01-05T10:00:00.000Z", opened: 1, clicked: 0 },
      { hour: "2026-01-05T11:00:00.000Z", opened: 0, clicked: 0 },
      { hour: "2026-01-05T12:00:00.000Z", opened: 1, clicked: 1 },
    ]);
    const move = sql`interval '1 hour' * floor(extract(epoch from now() - '2026-01-05T10:40:00Z'::timestamptz) / 3600)`;
    for (const [table, column] of [
      ["sends", "started_at"],
      ["engagements", "first_at"],
    ] as const) {
      await sql`update ${sql.table(table)} set ${sql.ref(column)} = ${sql.ref(column)} + ${move}
        where team_id = ${tenant.teamId}`.execute(kysely(team.em));
    }
    const minutes = (await read()).map(({ hour, opened, clicked }) => [hour.slice(14, 16), opened, clicked]);
    assert.deepEqual(minutes.slice(0, 5), [
      ["40", 0, 0],
      ["45", 0, 0],
      ["50", 0, 0],
      ["55", 1, 0],
      ["00", 0, 0],
    ]);
  });

  it("are shown by the domains of the recipients, for as long as these are kept", async () => {
    const team = await makeTeam();
    const ledger = await makeLedger(team, 4);
    const client = await clientOf(team.team.id, team.owner.id);
    const read = async () =>
      (await client.app.overview.domains.query({ body: { resource_id: ledger.newsletterId } })).data.domains;
    await sql`update send_recipients set email = seq || '@' || case when seq < 4 then 'one' else 'two' end || '.example'
      where send_id = ${ledger.sendId}`.execute(kysely(team.em));
    await accept(team.em, ledger, [1, 2], "2026-01-05T10:00:00Z");
    await setState(team.em, ledger, [3], "SENDING", "2026-01-05T10:00:00Z");
    await setState(team.em, ledger, [3], "REJECTED", "2026-01-05T10:00:00Z");
    await report(team.em, ledger, [2], ["bounce:hard"], "2026-01-05T10:00:00Z");
    assert.deepEqual(await read(), [
      { domain: "one.example", delivered: 1, bounced: 1, rejected: 1 },
      { domain: "two.example", delivered: 0, bounced: 0, rejected: 0 },
    ]);
    await sql`update sends set ledger_state = 'DELETING' where id = ${ledger.sendId}`.execute(kysely(team.em));
    assert.equal(await read(), null);
    await sql`update sends set ledger_state = 'COMPLETE' where id = ${ledger.sendId}`.execute(kysely(team.em));
  });

  it("stand beside those of the last ten sends that ended before", async () => {
    const team = await makeTeam();
    const client = await clientOf(team.team.id, team.owner.id);
    const ended = async (day: number, sent: number, opened: number) => {
      const { newsletterId } = await makeLedger(team, 1);
      await sql`update newsletters set status = 'SENT', completed_at = make_timestamptz(2026, 1, ${day}, 0, 0, 0)
        where id = ${newsletterId}`.execute(kysely(team.em));
      await sql`insert into analytics_days (team_id, environment, resource_id, day, sent, tracked, opened_unique)
        values (${team.team.id}, 'LIVE', ${newsletterId}, '2026-01-01', ${sent}, ${sent}, ${opened})`.execute(
        kysely(team.em),
      );
      return newsletterId;
    };
    const read = async (id: string) => (await client.app.overview.earlier.query({ body: { resource_id: id } })).data;
    const first = await ended(1, 1_000, 1_000);
    for (let day = 2; day <= 11; day++) await ended(day, 10, day === 2 ? 10 : 1);
    const last = await ended(12, 7, 7);
    await ended(13, 1_000, 0);
    const { sends, rates } = await read(last);
    assert.deepEqual([sends, rates.opened, rates.bounced], [10, 19 / 100, 0]);
    const now = (await client.app.overview.earlier.query({ body: {} })).data;
    assert.deepEqual(
      [now.sends, now.last?.name, now.last?.type, now.last?.counts.sent],
      [10, "Letter", "newsletter", 1_000],
    );
    assert.deepEqual([now.last?.rates.opened, now.rates.opened], [0, 15 / 1_087]);
    const { drafts } = (await client.app.content.page.query({ query: { type: "newsletter" } })).data;
    const shown = drafts.filter(({ id }) => id === last || id === first);
    assert.deepEqual(
      shown.map(({ sent, opened }) => [sent, opened]),
      [
        [7, 1],
        [1_000, 1],
      ],
    );
    assert.deepEqual([(await read(first)).sends, (await read(newId("newsletter"))).sends], [0, 0]);
  });

  it("are saved as CSV, of all recipients or of those with an activity", async () => {
    const team = await makeTeam();
    const ledger = await makeLedger(team, 3);
    const client = await clientOf(team.team.id, team.owner.id);
    await sql`update newsletters set send_id = ${ledger.sendId} where id = ${ledger.newsletterId}`.execute(
      kysely(team.em),
    );
    await sql`update send_recipients set email = '=cmd@example.com' where send_id = ${ledger.sendId} and seq = 2`.execute(
      kysely(team.em),
    );
    await accept(team.em, ledger, [1, 2], "2026-01-05T10:00:00Z");
    await engage(team.em, ledger, [2], "clicked", 1);
    await optOut(team.em, ledger, [1], "2026-01-05T11:00:00Z");
    await sql`update send_recipients set first_name = '=1+1', last_name = 'O"Neil' where send_id = ${ledger.sendId} and seq = 2`.execute(
      kysely(team.em),
    );
    await sql`update engagements set first_at = '2026-01-05T12:00:00Z', last_at = '2026-01-06T12:00:00Z' where send_id = ${ledger.sendId}`.execute(
      kysely(team.em),
    );
    const one = { type: "newsletter", id: ledger.newsletterId } as const;
    const read = async (query: object) =>
      (await client.app.content.exportRecipients.query({ query: { ...one, ...query } })).data;
    const { csv, rows, after } = await read({});
    assert.deepEqual(
      [csv.split("\r\n").map((line) => line.split(",")[0]), rows, after],
      [["email", "1@example.com", "'=cmd@example.com", "3@example.com", ""], 3, null],
    );
    const clicked = await read({ activity: "clicked" });
    assert.deepEqual(clicked.csv.split("\r\n"), [
      "email,first_name,last_name,status,reason,smtp_code,updated_at,opened_at,clicked_at,unsubscribed",
      `'=cmd@example.com,'=1+1,"O""Neil",SENT,,,2026-01-05T10:00:00.000Z,,2026-01-06T12:00:00.000Z,false`,
      "",
    ]);
    assert.equal(csv.split("\r\n")[1], "1@example.com,,,SENT,,,2026-01-05T10:00:00.000Z,,,true");
    assert.equal((await read({ after: "3" })).csv, "");
    for (const query of [{}, { activity: "opened" }])
      assert.equal(await refusalCodeOf(read({ ...query, link: newId("trackedLink") })), "validation_failed");
  });
});

import assert from "node:assert/strict";
import { sql } from "kysely";
import { pino } from "pino";
import { openTransport, sendDue } from "../../activities/system-mail.ts";
import type { Env } from "../../config/env.ts";
import { type EntityManager, kysely, type MikroORM } from "../../db/orm.ts";
import { transaction } from "../../db/transaction.ts";
import { claimInvites } from "../../domain/access/member-mails.ts";
import { claimedUntil } from "../../domain/mail/system-mail.ts";
import { claimNotices } from "../../domain/webhooks/notices.ts";
import { backdoor, makeTeam } from "../support/factories.ts";
import { makeEndpoint } from "../support/webhooks.ts";
import { type Fault, type Received, type Sink, type SinkOptions, startSink } from "./smtp-sink.ts";

const MAIL = { from: "no-reply@mailkeel.example", to: "jane.doe@example.org", subject: "Hello", text: "Hello" };

describe("The service's own mail", () => {
  const sinks: Sink[] = [];
  let logins = 0;
  beforeEach(() => {
    logins = 0;
  });
  afterEach(async () => {
    for (const sink of sinks.splice(0)) await sink.close();
  });

  const sinkWith = async (options: SinkOptions): Promise<Sink> => {
    const sink = await startSink({
      allowInsecureAuth: true,
      onAuth: ({ username }, _session, done) => {
        logins++;
        done(null, { user: username });
      },
      ...options,
    });
    sinks.push(sink);
    return sink;
  };

  const send = async (url: string) => {
    const transport = openTransport({
      SYSTEM_SMTP_URL: url,
      SMTP_HELO_NAME: "mail.example.com",
      SMTP_TIMEOUT_MS: 2_000,
    });
    await transport.sendMail(MAIL).finally(() => transport.close());
  };

  it("is sent with a login over TLS only, whatever the URL's options say", async () => {
    const plain = await sinkWith({ hideSTARTTLS: true, disabledCommands: ["STARTTLS"] });
    for (const options of ["", "?ignoreTLS=true", "?requireTLS=false", "?opportunisticTLS=true&requireTLS=false"]) {
      await assert.rejects(send(`smtp://me:secret@127.0.0.1:${plain.port}/${options}`), { code: "ETLS" }, options);
    }
    assert.deepEqual([logins, plain.received.length], [0, 0]);
  });

  it("is sent with a login over STARTTLS, and over TLS from the start", async () => {
    for (const secure of [false, true]) {
      const sink = await sinkWith({ secure });
      const scheme = secure ? "smtps" : "smtp";
      await send(`${scheme}://me:secret@127.0.0.1:${sink.port}/?tls.rejectUnauthorized=false`);
      assert.equal(sink.received.length, 1);
    }
    assert.equal(logins, 2);
  });

  it("is sent in clear text without a login, as a relay of the same network takes it", async () => {
    const sink = await sinkWith({ hideSTARTTLS: true, disabledCommands: ["STARTTLS"] });
    await send(`smtp://127.0.0.1:${sink.port}`);
    assert.deepEqual([logins, sink.received.map(({ name }) => name)], [0, ["mail.example.com"]]);
  });

  interface Mail {
    to: string;
    team: string;
  }
  const mails = (count: number, teamOf: (n: number) => string): Mail[] =>
    Array.from({ length: count }, (_, n) => ({ to: `person${n}@${teamOf(n)}.example`, team: teamOf(n) }));
  /** Sends due mails of teams. @returns what became of each, and the lines of the log */
  async function sendAll(due: Mail[], options: Pick<SinkOptions, "mail" | "rcpt" | "dot">) {
    const sink = await sinkWith({ hideSTARTTLS: true, ...options });
    const outcomes = new Map<string, string>();
    const lines: string[] = [];
    const left = [...due];
    const env = {
      SYSTEM_SMTP_URL: `smtp://127.0.0.1:${sink.port}`,
      SYSTEM_FROM: `Mailkeel <${MAIL.from}>`,
      SMTP_TIMEOUT_MS: 2_000,
    } as Env;
    const sent = await sendDue<Mail>(
      {
        env,
        orm: { em: { fork: () => undefined } } as unknown as MikroORM,
        log: pino({ level: "warn" }, { write: (line) => void lines.push(line) }),
        stopping: new AbortController().signal,
      },
      {
        claim: async (_, limit) => left.splice(0, limit),
        settle: async (_, { to }, outcome) => void outcomes.set(to, outcome),
        keep: async (_, { to }, failure) => void outcomes.set(to, failure ? "kept" : "untried"),
        groupOf: ({ team }) => team,
        compose: ({ to }) => ({ ...MAIL, to }),
        aboutOf: ({ team }) => ({ team }),
      },
    );
    const count = (outcome: string) => [...outcomes.values()].filter((one) => one === outcome).length;
    return { sent, outcomes, lines, count };
  }

  const REPLIES: [outcome: string, stage: "mail" | "rcpt" | "dot", fault: Fault][] = [
    ["refused", "rcpt", { code: 550, text: "5.1.1 No such user here" }],
    ["refused", "rcpt", { code: 552, text: "5.2.2 Mailbox full" }],
    ["kept", "rcpt", { code: 550, text: "Domain mail.example has exceeded the max emails per hour (100/100) allowed" }],
    ["kept", "rcpt", { code: 550, text: "5.1.0 <no-reply@mailkeel.example> sender rejected" }],
    ["kept", "rcpt", { code: 554, text: "5.7.1 Relay access denied" }],
    ["kept", "rcpt", { code: 550, text: "Not today" }],
    ["kept", "rcpt", { code: 450, text: "4.2.0 Greylisted" }],
    ["kept", "mail", { code: 553, text: "5.7.1 Not yours" }],
    ["kept", "mail", { code: 530, text: "5.7.0 Authentication required" }],
    ["kept", "dot", { code: 554, text: "5.7.1 Daily sending quota exceeded" }],
    ["kept", "dot", { code: 550, text: "5.1.1" }],
  ];
  for (const [outcome, stage, fault] of REPLIES) {
    const reply = fault === "drop" || fault === "hang" ? fault : `${fault.code} ${fault.text}`;
    it(`is ${outcome} after "${reply}" to ${stage}`, async () => {
      const { outcomes } = await sendAll(
        mails(1, () => "team"),
        { [stage]: () => fault },
      );
      assert.deepEqual([...outcomes.values()], [outcome]);
    });
  }

  it("asks a relay that refuses the account three times, and keeps all mails of all teams", async () => {
    const over = { code: 550, text: "5.4.5 Daily user sending limit exceeded" };
    const { sent, count } = await sendAll(
      mails(120, (n) => `team${n}`),
      { rcpt: () => over },
    );
    assert.deepEqual([sent, count("kept"), count("untried")], [0, 3, 117]);
  });

  it("sends what the relay takes until it reaches its limit", async () => {
    let taken = 0;
    const over = { code: 550, text: "5.4.5 Daily user sending limit exceeded" };
    const { sent, count } = await sendAll(
      mails(120, (n) => `team${n % 2}`),
      { rcpt: () => (++taken > 30 ? over : undefined) },
    );
    assert.equal(sent, 30);
    assert.ok(count("kept") < 10, `${count("kept")} tries after the limit`);
    assert.equal(count("kept") + count("untried"), 90);
  });

  it("of one team, refused for what it says, holds up no other team's", async () => {
    const spam = { code: 554, text: "5.7.1 Message looks like spam" };
    const isOfLoud = ({ to }: Received) => to.endsWith("@loud.example");
    const { sent, outcomes, count } = await sendAll(
      mails(90, (n) => (n % 10 === 0 ? "quiet" : "loud")),
      { dot: (message) => (isOfLoud(message) ? spam : undefined) },
    );
    assert.equal(sent, 9);
    assert.ok([...outcomes].every(([to, outcome]) => (outcome === "sent") === to.endsWith("@quiet.example")));
    assert.ok(count("kept") < 10, `${count("kept")} tries of the refused team`);
  });

  it("to one person whose server refuses it holds up none to the others of the team", async () => {
    const { sent, outcomes } = await sendAll(
      mails(40, () => "team"),
      { rcpt: (to) => (to.startsWith("person7@") ? { code: 550, text: "5.7.1 Blocked" } : undefined) },
    );
    assert.deepEqual([sent, outcomes.get("person7@team.example")], [39, "kept"]);
  });

  it("leaves the server's reply in the log, without an address", async () => {
    const { lines } = await sendAll(
      mails(1, () => "team"),
      {
        rcpt: (to) => ({ code: 550, text: `5.7.1 <${to}>: not from <${MAIL.from}>` }),
      },
    );
    const { code, reply, team } = JSON.parse(lines[0] ?? "{}");
    assert.deepEqual([code, reply, team], [550, "550 5.7.1 [address]: not from [address]", "team"]);
    assert.equal(lines.length, 1);
  });

  it("is tried again after minutes, then after as long as it has been tried, and at least each hour", async () => {
    const { orm } = await backdoor();
    const minutesAfter = async (minutes: number) => {
      const until = claimedUntil(sql`clock_timestamp() - make_interval(mins => ${minutes})`, 10);
      const { rows } = await sql<{ after: number; second: number }>`
        select extract(epoch from ${until} - clock_timestamp())::float8 / 60 as after,
          extract(second from ${until})::float8 as second`.execute(kysely(orm.em.fork()));
      assert.ok(rows[0] && rows[0].second < 1, "those that wait are tried together");
      return rows[0].after;
    };
    for (const [tried, next] of [
      [0, 10],
      [9, 10],
      [25, 25],
      [59, 59],
      [61, 60],
      [1_200, 60],
    ] as const) {
      const after = await minutesAfter(tried);
      assert.ok(after > next - 0.1 && after < next + 1.1, `after ${tried} minutes: ${after}`);
    }
  });

  it("to a member or an owner is tried for a day", async () => {
    const team = await makeTeam();
    const { id } = await makeEndpoint(team, { url: "https://hooks.example/" });
    const dueAfter = async (em: EntityManager, hours: number) => {
      const since = sql`now() - make_interval(hours => ${hours})`;
      await sql`update webhook_endpoints set notice_due_at = now(), disabled_at = ${since} where id = ${id}`.execute(
        kysely(em),
      );
      await sql`update members set invite_due_at = now(), created_at = ${since} where team_id = ${team.team.id}`.execute(
        kysely(em),
      );
      const notices = await claimNotices(em, 1_000);
      const invites = await claimInvites(em, 1_000);
      const { rows } = await sql<{ minutes: number }>`
        select extract(epoch from due - now())::float8 / 60 as minutes from (
          select notice_due_at as due from webhook_endpoints where id = ${id}
          union all select invite_due_at from members where team_id = ${team.team.id}) d`.execute(kysely(em));
      const isOwn = ({ teamId }: { teamId: string }) => teamId === team.team.id;
      // A time is stored in whole milliseconds, so that one of now may stand a little before it.
      const inFives = rows.map(({ minutes }) => Math.floor((minutes + 1) / 5) * 5);
      return [notices.some(isOwn), invites.some(isOwn), ...inFives];
    };
    await transaction(
      team.em,
      async (em) => {
        assert.deepEqual(await dueAfter(em, 23), [true, true, 60, 60]);
        assert.deepEqual(await dueAfter(em, 25), [false, false, 0, 0]);
      },
      { isRolledBack: true },
    );
  });
});

import assert from "node:assert/strict";
import { generateKeyPairSync } from "node:crypto";
import { once } from "node:events";
import { copyFileSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { connect, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { connect as connectTls } from "node:tls";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { sql } from "kysely";
import { pino } from "pino";
import { Registry } from "prom-client";
import type { Env } from "../../config/env.ts";
import { claimPort } from "../../config/ports.ts";
import { kysely, type MikroORM, openDatabase } from "../../db/orm.ts";
import { dkimSigner } from "../../domain/mail/dkim.ts";
import { type MailRef, returnPath } from "../../domain/mail/links.ts";
import { openVault } from "../../domain/secrets/crypto.ts";
import { INTAKE_TIMES, startIntake } from "../../workers/intake.ts";
import { app } from "../support/command.ts";
import { startDnsServer } from "../support/dns-server.ts";
import { eventually } from "../support/eventually.ts";
import { makeTeam, type TestTeam, unique } from "../support/factories.ts";
import { COMPLAINT, HARD, RETURN_PATH_DOMAIN } from "../support/reports.ts";
import { makeSender, preview } from "../support/sending.ts";
import { stack } from "../support/stack.ts";
import { giveMail, type MailClient, mailed, mailTo, reasonOf, recordedKinds } from "./mails.ts";

/** A client of its own: the whole network 127.0.0.0/8 is this machine. */
const OTHER_ADDRESS = "127.0.0.2";

setFlagsFromString("--expose-gc");
const collectGarbage: () => void = runInNewContext("gc");

/** Bytes that this process uses, without garbage. */
function memoryInUse(): number {
  collectGarbage();
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external;
}

interface Intake {
  port: number;
  /** Values of a counter of the intake by its label, without those that are 0. */
  counts(name: "reports" | "refusals"): Promise<Record<string, number>>;
  connections(): Promise<number>;
  close(): Promise<void>;
}

describe("The intake, among hostile clients,", () => {
  let team: TestTeam;
  let orm: MikroORM;
  let env: Env;
  let intake: Intake;
  let pathOf: (ref: MailRef) => string;

  before(async () => {
    ({ env } = await stack());
    team = await makeTeam();
    orm = await openDatabase(env.DATABASE_URL, { poolMax: 4 });
    pathOf = (ref) => returnPath(openVault(env), RETURN_PATH_DOMAIN, ref);
  });
  after(() => orm.close(true));
  afterEach(() => intake.close());

  async function open(
    changes: Partial<Env> = {},
    times: Partial<typeof INTAKE_TIMES> = {},
    dnsServers?: string[],
  ): Promise<void> {
    const port = await claimPort();
    const registry = new Registry();
    const settings = { ...env, RETURN_PATH_DOMAIN, INTAKE_SMTP_PORT: port, ...changes };
    const deps = { env: settings, orm, vault: openVault(env), log: pino({ level: "silent" }) };
    const { listen, close } = startIntake(deps, registry, { ...INTAKE_TIMES, checkMs: 20, ...times }, dnsServers);
    await listen();
    const valuesOf = async (name: string) => (await registry.getSingleMetric(name)?.get())?.values ?? [];
    intake = {
      port,
      counts: async (name) => {
        const values = await valuesOf(`mailkeel_intake_${name}_total`);
        const named = values.map(({ labels, value }) => [String(Object.values(labels)[0]), value] as const);
        return Object.fromEntries(named.filter(([, value]) => value > 0));
      },
      connections: async () => (await valuesOf("mailkeel_intake_connections"))[0]?.value ?? -1,
      close,
    };
  }

  const give = (to: string, raw: string | Buffer, client?: MailClient) => giveMail(intake.port, to, raw, client);

  /** A connection over which a test sends any bytes. */
  function call(localAddress = "127.0.0.1") {
    const socket: Socket = connect({ port: intake.port, host: "127.0.0.1", localAddress });
    let answers = "";
    socket.on("error", () => {});
    socket.setEncoding("latin1").on("data", (text: string) => {
      answers += text;
    });
    const closed = new Promise<void>((resolve) => socket.once("close", () => resolve()));
    return {
      socket,
      closed,
      /** Codes of the last lines of all answers so far. */
      codes: () => [...answers.matchAll(/^(\d{3}) /gm)].map(([, code]) => Number(code)),
      answers: () => answers,
      /** Sends bytes and waits until there are this many answers in all. */
      async say(bytes: string, answersInAll: number): Promise<void> {
        socket.write(bytes, "latin1");
        await this.answered(answersInAll);
      },
      answered(count: number): Promise<unknown> {
        return eventually(() => this.codes().length >= count, {
          what: `answer ${count}`,
          everyMs: 5,
        });
      },
    };
  }
  const envelope = (to: string) => `MAIL FROM:<>\r\nRCPT TO:<${to}>\r\nDATA\r\n`;
  const crlf = (text: string) => text.replaceAll(/\r?\n/g, "\r\n");

  it("counts a complaint towards the rate only of a feedback loop or an allowed server; an operator withdraws it", async () => {
    const dns = await startDnsServer();
    const keys = generateKeyPairSync("rsa", { modulusLength: 1_024 });
    const publicKey = keys.publicKey.export({ format: "der", type: "spki" }).toString("base64");
    const signed = async (
      from: string,
      domain: string,
      { to = `complaints@${RETURN_PATH_DOMAIN}`, except = [] as "To"[] } = {},
    ) => {
      dns.names.set(`s1._domainkey.${domain}`, { txt: [`v=DKIM1; k=rsa; p=${publicKey}`] });
      const mail = Buffer.from(crlf(`To: <${to}>\n${COMPLAINT}`.replace("fbl@provider.example", from)));
      const sign = dkimSigner([{ domain, selector: "s1", algorithm: "rsa", privateKey: keys.privateKey }], except);
      return Buffer.concat([await sign(mail), mail]);
    };
    const YAHOO = ["feedback@arf.mail.yahoo.com", "arf.mail.yahoo.com"] as const;
    const sender = await makeSender({ recipients: 1 });
    const mail = async () => {
      const email = `${unique("spam")}@to.example`;
      const { sendId, newsletterId } = await mailed(sender, [email]);
      return { sendId, newsletterId, email, seq: 1 };
    };
    const refusal = async () => (await preview(sender)).body.error;

    await open({ FEEDBACK_LOOP_ADDRESSES: [OTHER_ADDRESS] }, {}, [dns.address]);
    const genuine = await signed(...YAHOO);
    const forgeries = {
      unsigned: COMPLAINT.replace("fbl@provider.example", YAHOO[0]),
      "of a domain that is no feedback loop": await signed("x@forger.example", "forger.example"),
      "of a person at a provider": await signed("person@hotmail.com", "hotmail.com"),
      "to another sender of mails": await signed(...YAHOO, { to: "complaints@other.example" }),
      "with a To that is not signed": await signed(...YAHOO, { except: ["To"] }),
      "with another text": genuine.toString("latin1").replace("Hello", "Hallo"),
      "with a second sender": `From: <staff@hotmail.com>\r\n${await signed("person@hotmail.com", "hotmail.com")}`,
    };
    for (const [what, raw] of Object.entries(forgeries)) {
      const about = await mail();
      assert.equal(await give(pathOf(about), raw), 250, what);
      assert.deepEqual(await recordedKinds(sender, about.sendId), ["1 complaint:unknown"], what);
      assert.equal(await reasonOf(sender, about.email), "bounce:complaint", what);
    }
    assert.equal(await refusal(), undefined);
    assert.equal(dns.queries("s1._domainkey.forger.example"), 0);

    for (const [raw, localAddress] of [
      [genuine, undefined],
      [await signed("staff@hotmail.com", "hotmail.com"), undefined],
      [COMPLAINT, OTHER_ADDRESS],
    ] as const) {
      const about = await mail();
      assert.equal(await give(pathOf(about), raw, localAddress ? { localAddress } : {}), 250);
      assert.deepEqual(await recordedKinds(sender, about.sendId), ["1 complaint"]);
      const { code, message } = await refusal();
      assert.equal(code, "complaint_rate_exceeded");
      assert.match(
        message,
        /Complaints: 1; delivered: 0; rate: 100\.00 %; threshold: 0\.20 %\. .* on \d{4}-\d\d-\d\d \(UTC\)/,
      );
      const withdraw = ["complaint:withdraw", "--newsletter", about.newsletterId, "--email", about.email];
      const { json, stderr } = await app(...withdraw, "--reason", "forged", "--json");
      assert.deepEqual(json, { newsletter: about.newsletterId, withdrawn: true });
      const { sendId, seq, reason, msg } = JSON.parse(stderr);
      assert.deepEqual([sendId, seq, reason, msg], [about.sendId, 1, "forged", "a complaint is withdrawn"]);
      assert.equal(await refusal(), undefined);
    }
    const { rows } = await sql<{ reason: string }>`select distinct reason from mail_reports
      where team_id = ${sender.team.id} and reason is not null`.execute(kysely(sender.em));
    assert.deepEqual(rows, [{ reason: "forged" }]);

    dns.close();
    const about = await mail();
    assert.equal(await give(pathOf(about), genuine), 451, "DNS does not answer");
    assert.equal(await reasonOf(sender, about.email), "bounce:complaint");
    assert.equal((await intake.counts("refusals"))["unverified"], 1);
    await intake.close();
    const again = await startDnsServer(Object.fromEntries(dns.names));
    await open({}, {}, [again.address]);
    assert.equal(await give(pathOf(about), genuine), 250);
    assert.deepEqual(await recordedKinds(sender, about.sendId), ["1 complaint", "1 complaint:unknown"]);
    again.close();
  });

  it("survives hundreds of connections of one client, and serves the others meanwhile", async () => {
    await open({ INTAKE_MAX_CONNECTIONS: 20 });
    const ref = await mailTo(team, `${unique("many")}@to.example`);
    const held = 5;
    const calls: ReturnType<typeof call>[] = [];
    for (let round = 0; round < 4; round++) {
      const some = Array.from({ length: 100 }, () => call(OTHER_ADDRESS));
      calls.push(...some);
      await eventually(() => calls.filter(({ socket }) => !socket.closed).length <= held, {
        what: "the share of one client",
      });
    }
    assert.equal(calls.filter(({ socket }) => !socket.closed).length, held);
    assert.deepEqual(await intake.counts("refusals"), { connections: calls.length - held });
    assert.equal(await give(pathOf(ref), HARD), 250);
    assert.deepEqual(await recordedKinds(team, ref.sendId), ["1 bounce:hard"]);
    for (const { socket } of calls) socket.destroy();
    await eventually(async () => (await intake.connections()) === 0, { what: "no connection" });
    assert.equal(await give(pathOf(ref), HARD, { localAddress: OTHER_ADDRESS }), 250);
  });

  it("closes connections that bring no mail in time, though they never idle", async () => {
    await open({}, { mailMs: 2_000 });
    const ref = await mailTo(team, `${unique("slow")}@to.example`);
    const inCommand = call(OTHER_ADDRESS);
    const inMail = call(OTHER_ADDRESS);
    await inMail.answered(1);
    await inMail.say("EHLO x\r\n", 2);
    await inMail.say(envelope(pathOf(ref)), 5);
    const drips = setInterval(() => {
      for (const { socket } of [inCommand, inMail]) if (!socket.destroyed) socket.write("x");
    }, 20);
    await eventually(async () => (await give(pathOf(ref), HARD)) === 250, { what: "the mail of another client" });
    await Promise.all([inCommand.closed, inMail.closed]);
    clearInterval(drips);
    assert.equal((await intake.counts("refusals"))["slow"], 2);
    assert.deepEqual(await recordedKinds(team, ref.sendId), ["1 bounce:hard"]);
  });

  it("serves others beside connections that send commands without end, or a mail, and closes both", async () => {
    await open({}, { mailMs: 2_000 });
    const ref = await mailTo(team, `${unique("endless")}@to.example`);
    const commands = call(OTHER_ADDRESS);
    await commands.answered(1);
    await commands.say("EHLO x\r\n", 2);
    const pour = (socket: Socket, bytes: string) => {
      const more = () => {
        while (!socket.destroyed && socket.write(bytes));
      };
      socket.on("drain", more);
      more();
    };
    pour(commands.socket, "NOOP\r\n".repeat(1_000));
    assert.equal(await give(pathOf(ref), HARD), 250);
    await commands.closed;
    assert.deepEqual(await intake.counts("refusals"), { slow: 1 });

    // The mail has to reach the limit of its size, on a busy machine too.
    await intake.close();
    await open();
    const endless = call(OTHER_ADDRESS);
    await endless.answered(1);
    await endless.say("EHLO x\r\n", 2);
    await endless.say(envelope(pathOf(ref)), 5);
    pour(endless.socket, `${"x".repeat(998)}\r\n`.repeat(64));
    await endless.closed;
    assert.deepEqual(await intake.counts("refusals"), { size: 1 });
    assert.equal(await give(pathOf(ref), HARD), 250);
  });

  it("keeps no more than the beginning of a mail in memory, however short its lines are", async () => {
    await open();
    const ref = await mailTo(team, `${unique("short")}@to.example`);
    const lines = Buffer.alloc(400_000, "..\r\n");
    // More bytes than the kernel buffers: once they are written, the intake has read the lines before them.
    const filler = Buffer.alloc(20_000_000, `${"x".repeat(998)}\r\n`);
    const clients = Array.from({ length: 3 }, () => call());
    for (const client of clients) {
      await client.answered(1);
      await client.say("EHLO x\r\n", 2);
      await client.say(envelope(pathOf(ref)), 5);
    }
    const before = memoryInUse();
    for (const { socket } of clients) {
      socket.write(lines);
      await new Promise<void>((taken) => socket.write(filler, () => taken()));
    }
    await eventually(() => memoryInUse() - before < 15_000_000, { what: "the memory of three beginnings" });
    for (const client of clients) {
      await client.say("\r\n.\r\n", 6);
      assert.equal(client.codes().at(-1), 250);
      client.socket.destroy();
    }
  });

  it("refuses a mail by the size that its client declares, before it is sent", async () => {
    await open();
    const client = call();
    await client.answered(1);
    await client.say("EHLO x\r\n", 2);
    await client.say("MAIL FROM:<> SIZE=52428800\r\n", 3);
    assert.equal(client.codes()[2], 552);
    client.socket.destroy();
  });

  it("does not read a second mail out of the lines of a first one", async () => {
    await open();
    const { sendId } = await mailed(team, [`${unique("first")}@to.example`, `${unique("second")}@to.example`]);
    const [first, second] = [1, 2].map((seq) => pathOf({ sendId, seq }));
    assert.ok(first !== undefined && second !== undefined);
    for (const end of ["\n.\n", "\r\n.\n", "\n.\r\n", "\r.\r", "\r\n.\r", "\r.\r\n", "\r\n\0.\r\n"]) {
      const client = call();
      await client.answered(1);
      await client.say("EHLO x\r\n", 2);
      await client.say(envelope(first), 5);
      await client.say(`${crlf(HARD)}${end}${envelope(second)}${crlf(HARD)}\r\n.\r\n`, 6);
      await client.say("QUIT\r\n", 7);
      assert.deepEqual(client.codes(), [220, 250, 250, 250, 354, 250, 221], JSON.stringify(end));
    }
    assert.deepEqual(await recordedKinds(team, sendId), ["1 bounce:hard"]);
  });

  it("counts the reports that it records and the mails that it refuses", async () => {
    await open({ INTAKE_MAILS_PER_MINUTE: 6 });
    const ref = await mailTo(team, `${unique("counted")}@to.example`);
    const queued = await mailTo(team, `${unique("counted")}@to.example`, "QUEUED");
    const sending = await mailTo(team, `${unique("counted")}@to.example`, "SENDING");
    const forged = pathOf(ref).replace(/-[0-9a-f]{24}@/, `-${"0".repeat(24)}@`);
    const given: [string, string, number][] = [
      [pathOf(ref), HARD, 250],
      [pathOf(ref), HARD, 250],
      [pathOf(ref), "Subject: Hello\n\nHello", 250],
      [pathOf(queued), HARD, 250],
      [pathOf(sending), HARD, 451],
      [forged, HARD, 550],
      [pathOf(ref), HARD, 450],
    ];
    for (const [to, raw, code] of given) assert.equal(await give(to, raw), code);
    assert.deepEqual(await intake.counts("reports"), { recorded: 1, known: 1, none: 1, not_mailed: 1, unsettled: 1 });
    assert.deepEqual(await intake.counts("refusals"), { unsettled: 1, recipient: 1, mails: 1 });
  });

  it("asks the client to try again while Postgres is away, and counts that", async () => {
    const away = await openDatabase("postgres://127.0.0.1:1/none", { poolMax: 1 });
    const there = orm;
    orm = away;
    try {
      await open();
      assert.equal(await give(pathOf(await mailTo(team, `${unique("away")}@to.example`)), HARD), 451);
      assert.deepEqual(await intake.counts("refusals"), { unavailable: 1 });
    } finally {
      orm = there;
      await away.close(true);
    }
  });

  it("takes no mail without RETURN_PATH_DOMAIN", async () => {
    await open({ RETURN_PATH_DOMAIN: undefined });
    assert.equal(await give(`bounces@${RETURN_PATH_DOMAIN}`, HARD), undefined);
  });

  describe("with STARTTLS", () => {
    let folder: string;
    const install = (name: "tls" | "sns") => {
      for (const file of ["key.pem", "cert.pem"])
        copyFileSync(`${import.meta.dirname}/../data/${name}/${file}`, `${folder}/${file}`);
    };
    const files = () => ({
      INTAKE_TLS_KEY_FILE: `${folder}/key.pem`,
      INTAKE_TLS_CERTIFICATE_FILE: `${folder}/cert.pem`,
    });
    beforeEach(() => {
      folder = mkdtempSync(`${tmpdir()}/mailkeel-intake-`);
      install("tls");
    });
    afterEach(() => rmSync(folder, { recursive: true }));

    /** Begins TLS. @returns the name in the certificate */
    async function shownName(): Promise<string> {
      const client = call();
      await client.answered(1);
      await client.say("EHLO x\r\n", 2);
      await client.say("STARTTLS\r\n", 3);
      client.socket.removeAllListeners("data");
      const secure = connectTls({ socket: client.socket, rejectUnauthorized: false });
      await once(secure, "secureConnect");
      const { CN } = secure.getPeerCertificate().subject;
      secure.destroy();
      return String(CN);
    }

    it("takes reports over it, shows a renewed certificate without a restart, and keeps the old one while the files are wrong", async () => {
      await open({ ...files(), INTAKE_MAX_CONNECTIONS: 8 }, { certificateMs: 20 });
      const ref = await mailTo(team, `${unique("tls")}@to.example`);
      // More than the client may hold at once: each is counted until it is closed, also in TLS.
      for (let i = 0; i < 5; i++) assert.equal(await give(pathOf(ref), HARD, { isEncrypted: true }), 250);
      assert.deepEqual(await recordedKinds(team, ref.sendId), ["1 bounce:hard"]);
      assert.equal(await shownName(), "Mailkeel tests");
      writeFileSync(`${folder}/cert.pem`, "no certificate");
      install("sns");
      await eventually(async () => (await shownName()) === "sns.amazonaws.com", {
        withinMs: 10_000,
        what: "the other",
      });
      writeFileSync(`${folder}/key.pem`, "no key");
      assert.equal(await shownName(), "sns.amazonaws.com");
      assert.equal(await give(pathOf(ref), HARD), 250);
    });

    it("does not start with a key and a certificate that do not belong together, or are not there", async () => {
      copyFileSync(`${import.meta.dirname}/../data/sns/key.pem`, `${folder}/key.pem`);
      await assert.rejects(open(files()), /they must hold a key and its certificate/);
      rmSync(`${folder}/key.pem`);
      await assert.rejects(open(files()), /INTAKE_TLS_KEY_FILE: its file cannot be read \(ENOENT\)/);
      await open();
      const client = call();
      await client.answered(1);
      await client.say("EHLO x\r\n", 2);
      assert.doesNotMatch(client.answers(), /STARTTLS/);
      client.socket.destroy();
    });
  });
});

import assert from "node:assert/strict";
import { type ChildProcess, execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createConnection } from "node:net";
import { promisify } from "node:util";
import { sql } from "kysely";
import nodemailer from "nodemailer";
import { claimPort } from "../../config/ports.ts";
import { forTenant, kysely } from "../../db/orm.ts";
import { activateKey, addKey } from "../../domain/sending-domains/keys.ts";
import { dkimRecord } from "../../domain/sending-domains/records.ts";
import { reservePorts } from "../../stack/infra.ts";
import { verifyDkim } from "../mail/dkim.ts";
import { startSink } from "../mail/smtp-sink.ts";
import { live, reasonOf } from "../reports/mails.ts";
import { eventually } from "../support/eventually.ts";
import { unique } from "../support/factories.ts";
import { openNamespace } from "../support/namespace.ts";
import { needs } from "../support/programs.ts";
import { openReceiver } from "../support/receiver.ts";
import { COMPLAINT, RETURN_PATH_DOMAIN } from "../support/reports.ts";
import {
  anotherNewsletter,
  ledgerStates,
  makeSender,
  people,
  preview,
  startSend,
  untilStatus,
} from "../support/sending.ts";
import { makeEndpoint } from "../support/webhooks.ts";

const run = promisify(execFile);

const ACCEPTED = 300;
const REFUSED = 20;
const DELAYED = 20;

/** The ports of 127.0.0.1 to which a Postfix passes mail on. */
interface Onward {
  /** The mail server of every recipient */
  remote: number;
  /** Domains whose mail goes elsewhere, such as that of the return paths */
  others: Record<string, number>;
}

/** The services that a Postfix needs, as master.cf lists them. */
const SERVICES = [
  "cleanup unix n - n - 0 cleanup",
  "qmgr unix n - n 300 1 qmgr",
  "rewrite unix - - n - - trivial-rewrite",
  "bounce unix - - n - 0 bounce",
  "defer unix - - n - 0 bounce",
  "trace unix - - n - 0 bounce",
  "verify unix - - n - 1 verify",
  "proxymap unix - - n - - proxymap",
  "anvil unix - - n - 1 anvil",
  "error unix - - n - - error",
  "retry unix - - n - - error",
  "discard unix - - n - - discard",
  "smtp unix - - n - - smtp",
  "scache unix - - n - 1 scache",
  "postlog unix-dgram n - n - 1 postlogd",
];

/** A Postfix of the test's own on a port of 127.0.0.1. */
class Postfix {
  readonly folder = mkdtempSync("/var/tmp/mailkeel-postfix-");
  readonly port: number;
  readonly #program: string;
  #child: ChildProcess | undefined;

  constructor(program: string, port: number) {
    this.#program = program;
    this.port = port;
  }

  /** `refusals` are lines of a regexp table; `onward` is where accepted mail goes, which is discarded unless given. */
  async start(refusals: string[], onward?: Onward): Promise<void> {
    chmodSync(this.folder, 0o755);
    for (const name of ["config", "spool", "data"]) mkdirSync(`${this.folder}/${name}`);
    await run("chown", ["postfix", `${this.folder}/data`]);
    const others = Object.entries(onward?.others ?? {});
    const to = (port: number) => `smtp:[127.0.0.1]:${port}`;
    const settings = {
      compatibility_level: "3.6",
      queue_directory: `${this.folder}/spool`,
      data_directory: `${this.folder}/data`,
      inet_interfaces: "127.0.0.1",
      inet_protocols: "ipv4",
      myhostname: "relay.example",
      mydestination: "",
      mynetworks: "127.0.0.0/8",
      default_transport: onward ? to(onward.remote) : "discard",
      // An inline table is not empty.
      transport_maps:
        others.length === 0
          ? ""
          : `inline:{ ${others.map(([domain, port]) => `{ ${domain} = ${to(port)} }`).join(" ")} }`,
      disable_dns_lookups: "yes",
      // A mail that the next server puts off comes back at the first try instead of after days.
      maximal_queue_lifetime: "0",
      // One whose delivery a reload interrupts is tried again at once, not after five minutes.
      queue_run_delay: "1s",
      minimal_backoff_time: "1s",
      maximal_backoff_time: "1s",
      relay_transport: "discard",
      alias_maps: "",
      maillog_file: this.#logFile,
      maillog_file_prefixes: this.folder,
      smtpd_relay_restrictions: "permit_mynetworks, reject",
      smtpd_recipient_restrictions: `check_recipient_access regexp:${this.folder}/config/refusals, permit_mynetworks, reject`,
    };
    const lines = Object.entries(settings).map(([name, value]) => `${name} = ${value}`);
    writeFileSync(`${this.folder}/config/main.cf`, `${lines.join("\n")}\n`);
    const services = [`127.0.0.1:${this.port} inet n - n - - smtpd`, ...SERVICES];
    writeFileSync(`${this.folder}/config/master.cf`, `${services.join("\n")}\n`);
    this.#refuse(refusals);
    const child = spawn(this.#program, ["-c", `${this.folder}/config`, "start-fg"], { stdio: "ignore" });
    this.#child = child;
    const greets = async () => {
      assert.equal(child.exitCode, null, this.log());
      const socket = createConnection(this.port, "127.0.0.1");
      try {
        const [greeting] = await once(socket, "data");
        return String(greeting).startsWith("220 ");
      } finally {
        socket.destroy();
      }
    };
    await eventually(greets, { what: "Postfix to greet" }).catch((error) => {
      throw new Error(`Postfix did not start: ${this.log()}`, { cause: error });
    });
  }

  get #logFile(): string {
    return `${this.folder}/log`;
  }

  log(): string {
    return existsSync(this.#logFile) ? readFileSync(this.#logFile, "utf8") : "";
  }

  #refuse(refusals: string[]): void {
    writeFileSync(`${this.folder}/config/refusals`, `${refusals.join("\n")}\n`);
  }

  async refuseOthers(refusals: string[]): Promise<void> {
    this.#refuse(refusals);
    await run(this.#program, ["-c", `${this.folder}/config`, "reload"]);
  }

  /** Recipients whose mail it took and passed on. */
  passedOn(): string[] {
    return [...this.log().matchAll(/ to=<([^>]+)>.* status=sent/g)].map(([, recipient = ""]) => recipient);
  }

  async stop(): Promise<void> {
    const child = this.#child;
    if (child && child.exitCode === null) {
      const gone = once(child, "exit");
      await run(this.#program, ["-c", `${this.folder}/config`, "stop"]).catch(() => child.kill("SIGKILL"));
      await gone;
    }
    rmSync(this.folder, { recursive: true, force: true });
  }
}

/** The refusals of the recipients' mail server, by the beginning of the address. */
const REMOTE_REFUSALS = new Map([
  ["vanished", { code: 550, text: "5.1.1 No such user here" }],
  ["overfull", { code: 552, text: "5.2.2 Mailbox full" }],
  ["busy", { code: 451, text: "4.2.2 Mailbox is busy" }],
]);

describe("A send through Postfix", () => {
  const program = needs("postfix");
  let postfix: Postfix;

  beforeEach(async () => {
    const { relay } = await reservePorts({ relay: { port: 0 } });
    postfix = new Postfix(program(), relay);
  });
  afterEach(function () {
    if (this.currentTest?.state === "failed") console.log(postfix.log());
    return postfix.stop();
  });

  it("ends with each recipient as Postfix answered: SENT, REJECTED for good, DEFERRED and then SENT", async () => {
    const gone = "/^gone[0-9]+@/ 550 5.1.1 No such user here";
    await postfix.start([gone, "/^full[0-9]+@/ 452 4.2.2 Mailbox is full"]);
    const audience = `to-${Date.now()}.example`;
    const named = (name: string, count: number) =>
      people(count, audience).map(({ email, ...person }) => ({
        ...person,
        email: email.replace("person", name),
      }));
    const sender = await makeSender({
      recipients: [...named("person", ACCEPTED), ...named("gone", REFUSED), ...named("full", DELAYED)],
      account: { host: "127.0.0.1", port: postfix.port, maxConnections: 10 },
    });
    await startSend(sender);

    const states = { SENT: ACCEPTED, REJECTED: REFUSED, DEFERRED: DELAYED };
    await eventually(async () => assert.deepEqual(await ledgerStates(sender), states) === undefined, {
      what: "the answers of Postfix in the ledger",
    });

    await postfix.refuseOthers([gone]);
    await untilStatus(sender, ["SENT"]);
    assert.deepEqual(await ledgerStates(sender), { SENT: ACCEPTED + DELAYED, REJECTED: REFUSED });
    const expected = [...named("person", ACCEPTED), ...named("full", DELAYED)].map(({ email }) => email);
    await eventually(() => postfix.passedOn().length >= expected.length, { what: "Postfix's queue" });
    assert.deepEqual(postfix.passedOn().sort(), expected.sort());
  });

  it("has Postfix's reports in suppressions, ledger, events and analytics, and its signatures intact", async () => {
    const remote = await startSink({
      rcpt: (address) => REMOTE_REFUSALS.get(/^[a-z]+/.exec(address)?.[0] ?? ""),
    });
    const receiver = await openReceiver();
    const namespace = await openNamespace();
    try {
      const intake = await claimPort();
      await postfix.start(["/^gone/ 550 5.1.1 No such user here", "/^full/ 452 4.2.2 Mailbox is full"], {
        remote: remote.port,
        others: { [RETURN_PATH_DOMAIN]: intake },
      });
      await Promise.all([
        namespace.startWorker("sends"),
        namespace.startWorker("dispatch", { RETURN_PATH_DOMAIN }),
        namespace.startWorker("intake", {
          ...{ RETURN_PATH_DOMAIN, INTAKE_SMTP_PORT: String(intake), FEEDBACK_LOOP_ADDRESSES: "127.0.0.1" },
        }),
      ]);
      const audience = `${unique("to")}.example`;
      const names = ["person1", "person2", "person3", "gone", "full", "vanished", "overfull", "busy"];
      const sender = namespace.within(
        await makeSender({
          recipients: names.map((name) => ({ email: `${name}@${audience}`, firstName: `Zoë ${name}` })),
          account: { host: "127.0.0.1", port: postfix.port, maxConnections: 5 },
        }),
      );
      const tenant = live(sender);
      const em = forTenant(sender.em, tenant);
      const key = await addKey(em, tenant, sender.vault, { domain: sender.domain, algorithm: "rsa", isFirst: true });
      await activateKey(em, tenant, key.id);
      await makeEndpoint(sender, {
        url: `${receiver.origin}/events`,
        events: ["email.bounced", "email.complained", "suppression.added"],
      });
      const { data: send } = await startSend(sender);
      await eventually(async () => (await ledgerStates(sender)).DEFERRED === 1, {
        what: "the deferral",
      });
      // A reload amid a delivery leaves its mail in the queue for good: six mails and three reports are to be gone.
      await eventually(() => (postfix.log().match(/ removed$/gm) ?? []).length >= 9, { what: "an empty queue" });
      await postfix.refuseOthers(["/^gone/ 550 5.1.1 No such user here"]);
      await untilStatus(sender, ["SENT"]);
      assert.deepEqual(await ledgerStates(sender), { SENT: names.length - 1, REJECTED: 1 });

      const taken = ["full", "person1", "person2", "person3"];
      const takenBy = () => remote.received.map(({ to }) => to.split("@")[0]).sort();
      await eventually(() => remote.received.length >= taken.length, { what: "the mails passed on" });
      assert.deepEqual(takenBy(), taken);
      const record = dkimRecord(key);
      for (const { raw } of remote.received) {
        const [signature, ...more] = await verifyDkim(raw, new Map([[record.name, record.value]]));
        assert.deepEqual([signature?.result, signature?.selector, more], ["pass", key.selector, []]);
      }

      const complained = remote.received.find(({ to }) => to.startsWith("person1@"));
      const fromProvider = nodemailer.createTransport({ host: "127.0.0.1", port: postfix.port, ignoreTLS: true });
      const envelope = { from: "fbl@provider.example", to: complained?.from ?? "" };
      await fromProvider.sendMail({ envelope, raw: COMPLAINT });

      const reports = async () => {
        const { rows } = await sql<{ name: string; kind: string }>`
          select split_part(r.email, '@', 1) as name, m.kind from mail_reports m
          join send_recipients r on r.send_id = m.send_id and r.seq = m.seq
          where m.send_id = ${send.id} order by 1`.execute(kysely(sender.em));
        return rows.map(({ name, kind }) => `${name} ${kind}`);
      };
      const expected = ["busy bounce:soft", "overfull bounce:soft", "person1 complaint", "vanished bounce:hard"];
      await eventually(async () => (await reports()).length >= expected.length, { what: "reports" });
      assert.deepEqual(await reports(), expected);

      const reasons = await Promise.all(
        names.map(async (name) => [name, await reasonOf(sender, `${name}@${audience}`)]),
      );
      assert.deepEqual(Object.fromEntries(reasons.filter(([, reason]) => reason !== undefined)), {
        gone: "bounce:hard",
        vanished: "bounce:hard",
        person1: "bounce:complaint",
      });
      const events = (await receiver.until("/events", 7)).map(({ body }) => {
        const { type, data } = JSON.parse(body);
        return `${type} ${data.object.email.split("@")[0]} ${data.object.reason}`;
      });
      assert.deepEqual(events.sort(), [
        "email.bounced busy bounce:soft",
        "email.bounced overfull bounce:soft",
        "email.bounced vanished bounce:hard",
        "email.complained person1 complaint",
        "suppression.added gone bounce:hard",
        "suppression.added person1 bounce:complaint",
        "suppression.added vanished bounce:hard",
      ]);

      const { body } = await sender.client.get("/analytics/overview");
      const { sent, delivered, rejected, bounced_hard, bounced_soft, complained: complaints } = body.data.totals;
      assert.deepEqual([sent, delivered, rejected, bounced_hard, bounced_soft, complaints], [7, 4, 1, 1, 2, 1]);

      // One complaint about four delivered mails is more than a team may have.
      const refused = await preview(await anotherNewsletter(sender));
      assert.deepEqual([refused.status, refused.body.error.code], [403, "complaint_rate_exceeded"]);
    } finally {
      await namespace.close();
      await receiver.close();
      await remote.close();
    }
  });
});

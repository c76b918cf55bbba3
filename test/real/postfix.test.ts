import assert from "node:assert/strict";
import { type ChildProcess, execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createConnection } from "node:net";
import { promisify } from "node:util";
import { reservePorts } from "../../stack/infra.ts";
import { eventually } from "../support/eventually.ts";
import { ledgerStates, makeSender, people, startSend, untilStatus } from "../support/sending.ts";
import { needs } from "./programs.ts";

const run = promisify(execFile);

const ACCEPTED = 300;
const REFUSED = 20;
const DELAYED = 20;

/** The services that a Postfix which only receives and discards needs, as master.cf lists them. */
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
  "postlog unix-dgram n - n - 1 postlogd",
];

/** A Postfix of the test's own on a port of 127.0.0.1. It discards the mail that it accepts. */
class Postfix {
  readonly folder = mkdtempSync("/var/tmp/mailkeel-postfix-");
  readonly port: number;
  readonly #program: string;
  #child: ChildProcess | undefined;

  constructor(program: string, port: number) {
    this.#program = program;
    this.port = port;
  }

  /** @param refusals lines of a regexp table: which recipients get which answer */
  async start(refusals: string[]): Promise<void> {
    chmodSync(this.folder, 0o755);
    for (const name of ["config", "spool", "data"]) mkdirSync(`${this.folder}/${name}`);
    await run("chown", ["postfix", `${this.folder}/data`]);
    const settings = {
      compatibility_level: "3.6",
      queue_directory: `${this.folder}/spool`,
      data_directory: `${this.folder}/data`,
      inet_interfaces: "127.0.0.1",
      inet_protocols: "ipv4",
      myhostname: "relay.example",
      mydestination: "",
      mynetworks: "127.0.0.0/8",
      default_transport: "discard",
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
      assert.equal(child.exitCode, null, this.#log());
      const socket = createConnection(this.port, "127.0.0.1");
      try {
        const [greeting] = await once(socket, "data");
        return String(greeting).startsWith("220 ");
      } finally {
        socket.destroy();
      }
    };
    await eventually(greets, { withinMs: 20_000, what: "Postfix to greet" }).catch((error) => {
      throw new Error(`Postfix did not start: ${this.#log()}`, { cause: error });
    });
  }

  get #logFile(): string {
    return `${this.folder}/log`;
  }

  #log(): string {
    return existsSync(this.#logFile) ? readFileSync(this.#logFile, "utf8") : "";
  }

  #refuse(refusals: string[]): void {
    writeFileSync(`${this.folder}/config/refusals`, `${refusals.join("\n")}\n`);
  }

  /** Answers recipients by other rules from now on. */
  async refuseOthers(refusals: string[]): Promise<void> {
    this.#refuse(refusals);
    await run(this.#program, ["-c", `${this.folder}/config`, "reload"]);
  }

  /** Recipients whose mail it took and passed on. */
  passedOn(): string[] {
    return [...this.#log().matchAll(/ to=<([^>]+)>.* status=sent/g)].map(([, recipient = ""]) => recipient);
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

describe("A send through Postfix", function () {
  this.timeout(120_000);
  const program = needs("postfix");
  let postfix: Postfix;

  beforeEach(async () => {
    const { relay } = await reservePorts({ relay: { port: 0 } });
    postfix = new Postfix(program(), relay);
  });
  afterEach(() => postfix.stop());

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
      withinMs: 60_000,
      what: "the answers of Postfix in the ledger",
    });

    await postfix.refuseOthers([gone]);
    await untilStatus(sender, ["SENT"], 60_000);
    assert.deepEqual(await ledgerStates(sender), { SENT: ACCEPTED + DELAYED, REJECTED: REFUSED });
    const expected = [...named("person", ACCEPTED), ...named("full", DELAYED)].map(({ email }) => email);
    await eventually(() => postfix.passedOn().length >= expected.length, { withinMs: 20_000, what: "Postfix's queue" });
    assert.deepEqual(postfix.passedOn().sort(), expected.sort());
  });
});

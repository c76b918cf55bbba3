import assert from "node:assert/strict";
import { startSink } from "../mail/smtp-sink.ts";
import { app } from "../support/command.ts";
import { eventually } from "../support/eventually.ts";
import { useSendWorkflows } from "../support/send-workflows.ts";
import {
  anotherNewsletter,
  confirm,
  ledgerStates,
  makeSender,
  preview,
  type Sender,
  setLogin,
  startSend,
  tokenOf,
  untilStatus,
} from "../support/sending.ts";

/** Connections to an account's server after its first refusal, until an operator has repaired the account. */
const MOST_AFTER_REFUSAL = 2;

interface Refusing {
  stage: "greeting" | "login";
  code: number;
}

type Relay = Awaited<ReturnType<typeof startRelay>>;

/** Refuses greetings or logins while `refusing` is set, and closes a session after `mailsPerSession`. */
async function startRelay({ latencyMs = 0, mailsPerSession = Number.POSITIVE_INFINITY } = {}) {
  const refusedAt: number[] = [];
  const madeAtLogin: number[] = [];
  const mails = new Map<string, number>();
  let madeAtRefusal = 0;
  /** Refuses each connection later than the one before. */
  const answer = (stage: Refusing["stage"], done: (error?: Error) => void): void => {
    const { refusing } = relay;
    if (refusing?.stage !== stage) {
      done();
      return;
    }
    const refuse = () => {
      if (refusedAt.length === 0) madeAtRefusal = sink.connections.made;
      refusedAt.push(performance.now());
      done(Object.assign(new Error("by this relay"), { responseCode: refusing.code }));
    };
    setTimeout(refuse, Math.min(25 * (refusedAt.length + 1), 250));
  };
  const sink = await startSink({
    authOptional: false,
    allowInsecureAuth: true,
    latencyMs,
    onConnect: (_session, done) => answer("greeting", done),
    onAuth: (_auth, _session, done) =>
      answer("login", (error) => {
        if (error) return done(error);
        madeAtLogin.push(sink.connections.made);
        return done(null, { user: "news" });
      }),
    onMailFrom: (_address, { id }, done) => {
      const count = (mails.get(id) ?? 0) + 1;
      mails.set(id, count);
      if (count <= mailsPerSession) done();
      else done(Object.assign(new Error("4.7.0 Too many mails"), { responseCode: 421 }));
    },
  });
  const relay = {
    refusing: undefined as Refusing | undefined,
    sink,
    /** When each connection was refused, as `performance.now()`. */
    refusedAt,
    /** Connections that were made when each login was accepted. */
    madeAtLogin,
    /** Connections that were made after the first refusal. */
    get madeSince() {
      return refusedAt.length === 0 ? 0 : sink.connections.made - madeAtRefusal;
    },
    close: () => sink.close(),
  };
  return relay;
}

describe("A sending account that its server refuses", () => {
  const temporal = useSendWorkflows();
  let relay: Relay;
  const closes: (() => Promise<unknown>)[] = [];

  afterEach(async () => {
    for (const one of closes.splice(0)) await one();
  });

  const relayWith = async (options: Parameters<typeof startRelay>[0] = {}): Promise<Relay> => {
    relay = await startRelay(options);
    closes.push(relay.close);
    return relay;
  };

  const senderTo = async ({ sink }: Relay, recipients: number, maxConnections: number): Promise<Sender> => {
    const account = { host: "127.0.0.1", port: sink.port, maxConnections };
    const sender = await makeSender({ recipients, account });
    await setLogin(sender, "secret");
    return sender;
  };

  const untilRefused = () => eventually(() => relay.refusedAt.length > 0, { what: "a refusal", everyMs: 10 });

  /** Every recipient of these sends has the mail once. */
  const assertOnce = async (senders: readonly Sender[], recipients: number) => {
    for (const each of senders) assert.deepEqual(await ledgerStates(each), { SENT: recipients });
    const to = relay.sink.received.map(({ to }) => to);
    assert.equal(to.length, senders.length * recipients);
    assert.equal(new Set(to).size, recipients);
  };

  const account = async ({ client, accountId }: Sender) => (await client.get(`/accounts/${accountId}`)).body.data;

  for (const [maxConnections, refusing] of [
    [100, { stage: "login", code: 535 }],
    [20, { stage: "greeting", code: 554 }],
  ] as const) {
    it(`with ${refusing.code} at the ${refusing.stage}: pauses the send, and is asked once by ${maxConnections} connections`, async () => {
      const { sink } = await relayWith();
      relay.refusing = refusing;
      const sender = await senderTo(relay, 300, maxConnections);
      const sendId: string = (await startSend(sender)).data.id;
      await untilRefused();
      await untilStatus(sender, ["PAUSED"]);
      const reason = `${refusing.stage}_refused`;
      const shown = [`Paused: ${reason}`, `${sender.accountId} failed at 20`, `: ${reason}, "${refusing.code}`];
      await temporal.untilDetails(sendId, shown);
      assert.deepEqual(await ledgerStates(sender), { QUEUED: 300 });

      // A resume before the repair makes one attempt more, and the send is PAUSED again.
      assert.equal(relay.madeSince, 0);
      await temporal.command(sendId, "resume");
      await eventually(() => relay.refusedAt.length === 2, { what: "the second refusal" });
      await untilStatus(sender, ["PAUSED"]);
      assert.ok(relay.madeSince <= MOST_AFTER_REFUSAL, `${relay.madeSince} connections after the first refusal`);

      relay.refusing = undefined;
      const made = sink.connections.made;
      await temporal.command(sendId, "resume");
      await untilStatus(sender, ["SENT"]);
      assert.equal(relay.madeAtLogin[0], made + 1, "connections when the first login worked");
      await assertOnce([sender], 300);
    });
  }

  it("is in ERROR until a login works, for GET /accounts, an incremental one and the gates, not for a send under way", async () => {
    await relayWith();
    const sender = await senderTo(relay, 5, 3);
    const [confirmed, previewed] = [await anotherNewsletter(sender), await anotherNewsletter(sender)];
    const token = await tokenOf(previewed);
    const before = await account(sender);
    const { body: page } = await sender.client.get("/accounts");
    assert.equal(before.status, "ACTIVE");

    relay.refusing = { stage: "login", code: 535 };
    const { data } = await startSend(sender);
    await untilStatus(sender, ["PAUSED"]);
    const failed = await account(sender);
    assert.deepEqual([failed.status, failed.last_checked_at !== before.last_checked_at], ["ERROR", true]);
    const since = { updated_since: page.meta.synced_through, status: "ERROR" };
    const changed = await eventually(async () => {
      const { body } = await sender.client.get("/accounts", { query: since });
      return body.data.length > 0 ? body.data : undefined;
    });
    assert.deepEqual(changed, [failed]);
    for (const answer of [await preview(confirmed), await confirm(previewed, token)]) {
      assert.deepEqual([answer.status, answer.body.error?.code], [409, "sending_domain_unverified"], answer.text);
    }

    relay.refusing = undefined;
    await temporal.command(data.id, "resume");
    await untilStatus(sender, ["SENT"]);
    const working = await account(sender);
    assert.equal(working.status, "ACTIVE");
    assert.ok(working.updated_at > failed.updated_at && working.last_checked_at > failed.last_checked_at);
    await startSend(confirmed);
    await startSend(previewed);
  });

  it("is in ERROR at once though its send is cancelled, and ACTIVE again after account:resume", async () => {
    await relayWith();
    relay.refusing = { stage: "greeting", code: 554 };
    const sender = await senderTo(relay, 5, 3);
    const { data } = await startSend(sender);
    await eventually(async () => (await account(sender)).status === "ERROR", { what: "ERROR" });
    await temporal.command(data.id, "cancel");
    await untilStatus(sender, ["CANCELLED"]);
    assert.equal((await app("account:resume", "--account", sender.accountId)).code, 1);
    assert.equal((await account(sender)).status, "ERROR");
    relay.refusing = undefined;
    assert.equal((await app("account:resume", "--account", sender.accountId)).code, 0);
    assert.equal((await account(sender)).status, "ACTIVE");
  });

  it("in the middle of a send: finishes what its sessions may carry, then pauses, and mails each recipient once", async () => {
    await relayWith({ latencyMs: 10, mailsPerSession: 15 });
    const recipients = 300;
    const sender = await senderTo(relay, recipients, 20);
    const { data } = await startSend(sender);
    await eventually(() => relay.sink.received.length > 40, { what: "mails", everyMs: 5 });
    relay.refusing = { stage: "login", code: 535 };
    await untilStatus(sender, ["PAUSED"]);
    const { SENT: sent = 0, ...rest } = await ledgerStates(sender);
    assert.equal(sent, relay.sink.received.length);
    // A mail that met two sessions at their end is deferred.
    const { DEFERRED = 0, QUEUED = 0 } = rest;
    assert.equal(sent + DEFERRED + QUEUED, recipients);
    assert.ok(sent > 40 && sent < recipients, String(sent));
    // One for those of the ramp, and one later where sessions worked on for a while.
    assert.ok(relay.refusedAt.length <= 10, `${relay.refusedAt.length} refused logins`);
    relay.refusing = undefined;
    await temporal.command(data.id, "resume");
    await untilStatus(sender, ["SENT"]);
    await assertOnce([sender], recipients);
  });
});

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

type Relay = Awaited<ReturnType<typeof startRelay>>;

/** Refuses greetings or logins while `refusing` is set, each later than the one before. */
async function startRelay() {
  const relay = {
    refusing: undefined as { stage: "greeting" | "login"; code: number } | undefined,
    refused: 0,
    /** Connections that were made when the first login was accepted. */
    madeAtLogin: undefined as number | undefined,
  };
  const answer = (stage: "greeting" | "login", done: (error?: Error) => void): void => {
    const { refusing } = relay;
    if (refusing?.stage === stage) {
      const refusal = Object.assign(new Error("by this relay"), { responseCode: refusing.code });
      setTimeout(done, Math.min(25 * ++relay.refused, 250), refusal);
    } else done();
  };
  const sink = await startSink({
    authOptional: false,
    allowInsecureAuth: true,
    onConnect: (_session, done) => answer("greeting", done),
    onAuth: (_auth, _session, done) =>
      answer("login", (error) => {
        if (error) return done(error);
        relay.madeAtLogin ??= sink.connections.made;
        done(null, { user: "news" });
      }),
  });
  return Object.assign(relay, { sink });
}

describe("A sending account that its server refuses", () => {
  const temporal = useSendWorkflows();
  let relay: Relay;

  beforeEach(async () => {
    relay = await startRelay();
  });
  afterEach(() => relay.sink.close());

  const senderTo = async (recipients: number, maxConnections: number): Promise<Sender> => {
    const account = { host: "127.0.0.1", port: relay.sink.port, maxConnections };
    const sender = await makeSender({ recipients, account });
    await setLogin(sender, "secret");
    return sender;
  };

  const account = async ({ client, accountId }: Sender) => (await client.get(`/accounts/${accountId}`)).body.data;

  it("pauses its send, and is asked once by a hundred connections", async () => {
    relay.refusing = { stage: "login", code: 535 };
    const sender = await senderTo(300, 100);
    const sendId: string = (await startSend(sender)).data.id;
    await untilStatus(sender, ["PAUSED"]);
    const shown = ["Paused: login_refused", `${sender.accountId} failed at 20`, ': login_refused, "535'];
    await temporal.untilDetails(sendId, shown);
    assert.deepEqual(await ledgerStates(sender), { QUEUED: 300 });

    const { connections, received } = relay.sink;
    assert.equal(connections.made, 1);

    // A resume before the repair makes one attempt more, and the send is PAUSED again.
    await temporal.command(sendId, "resume");
    await eventually(() => relay.refused === 2, { what: "the second refusal" });
    await untilStatus(sender, ["PAUSED"]);
    const { made } = connections;
    assert.ok(made <= 3, `${made} connections`);

    relay.refusing = undefined;
    await temporal.command(sendId, "resume");
    await untilStatus(sender, ["SENT"]);
    assert.equal(relay.madeAtLogin, made + 1, "connections when the first login worked");
    assert.deepEqual(await ledgerStates(sender), { SENT: 300 });
    assert.deepEqual([received.length, new Set(received.map(({ to }) => to)).size], [300, 300]);
  });

  it("is in ERROR until a login works, for GET /accounts, an incremental one and the gates, not for a send under way", async () => {
    const sender = await senderTo(5, 3);
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
    relay.refusing = { stage: "greeting", code: 554 };
    const sender = await senderTo(5, 3);
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
});

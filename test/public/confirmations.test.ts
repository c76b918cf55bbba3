import assert from "node:assert/strict";
import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { pino } from "pino";
import PostalMime from "postal-mime";
import { SMTPServer } from "smtp-server";
import { sendDueConfirmations } from "../../activities/confirmations.ts";
import { transaction } from "../../db/transaction.ts";
import { claimConfirmations } from "../../domain/audience/confirmations.ts";
import { openVault } from "../../domain/crypto.ts";
import { suppress } from "../../domain/suppressions.ts";
import { api, type Json } from "../support/api.ts";
import { eventually } from "../support/eventually.ts";
import { backdoor, makeTeam, type TestTeam, unique, uniqueEmail } from "../support/factories.ts";
import { stack } from "../support/stack.ts";

/** An SMTP server that keeps what it gets, or answers RCPT with a code. */
async function smtpSink() {
  const mails = new Map<string, string>();
  let refusal: number | undefined;
  const server = new SMTPServer({
    disabledCommands: ["AUTH", "STARTTLS"],
    onRcptTo: (_address, _session, done) =>
      done(refusal === undefined ? null : Object.assign(new Error("no"), { responseCode: refusal })),
    onData: (stream, session, done) => {
      const chunks: Buffer[] = [];
      stream.on("data", (chunk: Buffer) => chunks.push(chunk));
      stream.on("end", () => {
        for (const { address } of session.envelope.rcptTo) mails.set(address, Buffer.concat(chunks).toString());
        done();
      });
    },
  });
  await once(server.listen(0, "127.0.0.1"), "listening");
  return {
    url: `smtp://127.0.0.1:${(server.server.address() as AddressInfo).port}`,
    mails,
    refuse: (code: number | undefined) => {
      refusal = code;
    },
    close: () => new Promise<void>((resolve) => server.close(() => resolve())),
  };
}

describe("Confirmation mails of double opt-in", () => {
  let sink: Awaited<ReturnType<typeof smtpSink>>;
  let team: TestTeam;
  before(async () => {
    sink = await smtpSink();
    team = await makeTeam();
  });
  after(() => sink.close());
  beforeEach(() => sink.refuse(undefined));

  async function subscribe(listName = "Weekly"): Promise<{ email: string; id: string }> {
    const client = api(team.keys.live);
    const email = uniqueEmail(unique("opt-in"));
    const id: string = (await client.post("/subscribers", { email })).body.data.id;
    const list = (await client.post("/lists", { name: listName, optin: "DOUBLE" })).body.data;
    await client.post(`/lists/${list.id}/subscribers`, { subscriber_ids: [id] });
    return { email, id };
  }
  const row = async (id: string): Promise<Json> => {
    const [found] = await team.em.fork().execute("select * from subscriptions where subscriber_id = ?", [id]);
    return found;
  };
  async function run() {
    const { env } = await stack();
    const { orm } = await backdoor();
    return sendDueConfirmations({
      env: { ...env, PUBLIC_URL: "https://mail.example", SYSTEM_SMTP_URL: sink.url },
      orm,
      vault: openVault(env),
      log: pino({ level: "silent" }),
      stopping: new AbortController().signal,
    });
  }
  // A stack's own maintenance pool claims too; only what nobody has claimed is ours to send.
  const hold = (id: string) =>
    team.em.fork().execute("update subscriptions set confirmation_due_at = now() where subscriber_id = ?", [id]);

  it("carry a link that confirms, to the address alone, once", async function () {
    if (process.env["MAILKEEL_STACK"]) return this.skip();
    const { email, id } = await subscribe("Weekly <news>");
    assert.ok((await run()) >= 1);
    const mail = await PostalMime.parse(sink.mails.get(email) ?? "");
    assert.equal(mail.subject, "Please confirm: Weekly <news>");
    assert.match(mail.text ?? "", /https:\/\/mail\.example\/c\/[\w.-]+/);
    assert.ok(mail.html?.includes("Weekly &lt;news&gt;"));
    const { status, confirmation_due_at, confirmation_sent_at } = await row(id);
    assert.deepEqual([status, confirmation_due_at], ["PENDING", null]);
    assert.ok(confirmation_sent_at);
    sink.mails.clear();
    await run();
    assert.equal(sink.mails.get(email), undefined);
  });

  it("are tried again after a 4xx, and given up after a 5xx", async function () {
    if (process.env["MAILKEEL_STACK"]) return this.skip();
    const { email, id } = await subscribe();
    sink.refuse(450);
    await run();
    assert.ok((await row(id)).confirmation_due_at, "due again when the claim runs out");
    await hold(id);
    sink.refuse(undefined);
    await run();
    assert.ok(sink.mails.has(email));

    const other = await subscribe();
    sink.refuse(550);
    await run();
    const { confirmation_due_at, confirmation_sent_at } = await row(other.id);
    assert.deepEqual([confirmation_due_at, confirmation_sent_at], [null, null]);
  });

  it("are claimed by one worker at a time and come back after a crash", async function () {
    if (process.env["MAILKEEL_STACK"]) return this.skip();
    const { id } = await subscribe();
    const { orm } = await backdoor();
    const claims = await Promise.all(
      Array.from({ length: 4 }, () => transaction(orm.em, (em) => claimConfirmations(em, 50))),
    );
    assert.equal(claims.flat().filter(({ subscriberId }) => subscriberId === id).length, 1);
    await run();
    assert.ok((await row(id)).confirmation_due_at, "whoever claimed it has not settled it");
    await hold(id);
    await run();
    assert.equal((await row(id)).confirmation_due_at, null);
  });

  it("are not sent to an address on the do-not-mail list", async function () {
    if (process.env["MAILKEEL_STACK"]) return this.skip();
    const { email } = await subscribe();
    await suppress(team.em, { teamId: team.team.id, environment: "LIVE" }, [email], "MANUAL");
    await run();
    assert.equal(sink.mails.get(email), undefined);
  });

  it("reach the mail catcher of a running stack by themselves", async function () {
    if (!process.env["MAILKEEL_STACK"]) return this.skip();
    const { email } = await subscribe();
    const { mail } = await stack();
    await eventually(
      async () => {
        const url = new URL("/api/messages?limit=1000", mail.api);
        const { messages } = (await (await fetch(url)).json()) as { messages: { to: string[] }[] };
        return messages.some(({ to }) => to.includes(email));
      },
      { withinMs: 15_000, what: "the confirmation mail" },
    );
  });
});

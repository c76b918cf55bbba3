import assert from "node:assert/strict";
import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { pino } from "pino";
import PostalMime from "postal-mime";
import { SMTPServer } from "smtp-server";
import { sendDueConfirmations } from "../../activities/confirmations.ts";
import type { Env } from "../../config/env.ts";
import { forTenant, kysely, type MikroORM, migrate, openDatabase, type Tenant } from "../../db/orm.ts";
import { transaction } from "../../db/transaction.ts";
import { claimConfirmations } from "../../domain/audience/confirmations.ts";
import { addSubscribers, createList } from "../../domain/audience/lists.ts";
import { createSubscriber } from "../../domain/audience/subscribers.ts";
import { openVault } from "../../domain/crypto.ts";
import { suppress } from "../../domain/suppressions.ts";
import { createTeam } from "../../domain/teams.ts";
import { uniqueEmail } from "../support/factories.ts";
import { stack } from "../support/stack.ts";

/** An SMTP server that keeps its mails, or refuses RCPT with a code. */
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

// In their own database: the stack's maintenance pool would claim the confirmations that these tests claim.
describe("Confirmation mails of double opt-in", () => {
  let sink: Awaited<ReturnType<typeof smtpSink>>;
  let env: Env;
  let orm: MikroORM;
  let tenant: Tenant;
  before(async () => {
    sink = await smtpSink();
    const given = (await stack()).env;
    const [database, owners] = [new URL(given.DATABASE_URL), new URL(given.MIGRATION_DATABASE_URL ?? "")];
    for (const url of [database, owners]) url.pathname = `/confirmations_${process.pid}`;
    env = { ...given, DATABASE_URL: database.href, PUBLIC_URL: "https://mail.example", SYSTEM_SMTP_URL: sink.url };
    await migrate(owners.href, env.DATABASE_URL);
    orm = await openDatabase(owners.href, { poolMax: 5 });
    const owner = { email: "owner@example.com", name: "Owner" };
    const { team } = await transaction(orm.em, (em) =>
      createTeam(em, { name: "Team", plan: "BUSINESS", timeZone: "UTC", owner }),
    );
    tenant = { teamId: team.id, environment: "LIVE" };
  });
  after(async () => {
    await orm.schema.dropDatabase();
    await orm.close(true);
    await sink.close();
  });
  beforeEach(() => sink.refuse(undefined));

  async function subscribe(listName = "Weekly"): Promise<{ email: string; id: string }> {
    const email = uniqueEmail("opt-in");
    const id = await transaction(forTenant(orm.em, tenant), async (em) => {
      const list = await createList(em, tenant, { name: listName, description: null, optin: "DOUBLE" });
      const subscriber = await createSubscriber(em, tenant, { email, firstName: null, lastName: null });
      await addSubscribers(em, tenant, list.id, [subscriber.id]);
      return subscriber.id;
    });
    return { email, id };
  }
  const subscriptionOf = (id: string) =>
    kysely(orm.em.fork())
      .selectFrom("subscriptions")
      .select(["status", "confirmation_due_at", "confirmation_sent_at"])
      .where("subscriber_id", "=", id)
      .executeTakeFirstOrThrow();
  /** Ends the time for which another worker has claimed the mail. */
  const endClaim = (id: string) =>
    orm.em.fork().execute("update subscriptions set confirmation_due_at = now() where subscriber_id = ?", [id]);
  const run = () =>
    sendDueConfirmations({
      env,
      orm,
      vault: openVault(env),
      log: pino({ level: "silent" }),
      stopping: new AbortController().signal,
    });

  it("are sent once, to the address only, with a link to confirm", async () => {
    const { email, id } = await subscribe("Weekly <news>");
    assert.equal(await run(), 1);
    const mail = await PostalMime.parse(sink.mails.get(email) ?? "");
    assert.equal(mail.subject, "Please confirm: Weekly <news>");
    assert.match(mail.text ?? "", /https:\/\/mail\.example\/c\/[\w.-]+/);
    assert.ok(mail.html?.includes("Weekly &lt;news&gt;"));
    const { status, confirmation_due_at, confirmation_sent_at } = await subscriptionOf(id);
    assert.deepEqual([status, confirmation_due_at], ["PENDING", null]);
    assert.ok(confirmation_sent_at);
    assert.equal(await run(), 0);
  });

  it("are retried after a 4xx and dropped after a 5xx", async () => {
    const { email, id } = await subscribe();
    sink.refuse(450);
    assert.equal(await run(), 0);
    assert.ok((await subscriptionOf(id)).confirmation_due_at, "due again when the claim runs out");
    await endClaim(id);
    sink.refuse(undefined);
    assert.equal(await run(), 1);
    assert.ok(sink.mails.has(email));

    const other = await subscribe();
    sink.refuse(550);
    assert.equal(await run(), 0);
    const { confirmation_due_at, confirmation_sent_at } = await subscriptionOf(other.id);
    assert.deepEqual([confirmation_due_at, confirmation_sent_at], [null, null]);
  });

  it("wait while the SMTP server does not answer", async () => {
    const { id } = await subscribe();
    const away = { ...env, SYSTEM_SMTP_URL: "smtp://127.0.0.1:1" };
    const log = pino({ level: "silent" });
    const stopping = new AbortController().signal;
    assert.equal(await sendDueConfirmations({ env: away, orm, vault: openVault(env), log, stopping }), 0);
    await endClaim(id);
    assert.equal(await run(), 1);
  });

  it("are claimed by one worker at a time and are free again when that worker dies", async () => {
    const { id } = await subscribe();
    const claims = await Promise.all(
      Array.from({ length: 4 }, () => transaction(orm.em, (em) => claimConfirmations(em, 50))),
    );
    assert.deepEqual(
      claims.flat().map(({ subscriberId }) => subscriberId),
      [id],
    );
    assert.equal(await run(), 0);
    await endClaim(id);
    assert.equal(await run(), 1);
    assert.equal((await subscriptionOf(id)).confirmation_due_at, null);
  });

  it("are not sent to an address on the do-not-mail list", async () => {
    const { email } = await subscribe();
    await suppress(forTenant(orm.em, tenant), tenant, [email], "MANUAL");
    assert.equal(await run(), 0);
  });
});

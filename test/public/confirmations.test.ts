import assert from "node:assert/strict";
import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { pino } from "pino";
import PostalMime from "postal-mime";
import { SMTPServer } from "smtp-server";
import { sendDueConfirmations } from "../../activities/confirmations.ts";
import type { Env } from "../../config/env.ts";
import { forTenant, kysely, type MikroORM, type Tenant } from "../../db/orm.ts";
import { transaction } from "../../db/transaction.ts";
import type { ConfirmationLimits } from "../../domain/audience/confirmation-limits.ts";
import { claimConfirmations, countWithheld, settleConfirmation } from "../../domain/audience/confirmation-mails.ts";
import { addSubscribers, createList } from "../../domain/audience/lists.ts";
import { plainName } from "../../domain/audience/plain-name.ts";
import { createSubscriber, updateSubscriber } from "../../domain/audience/subscribers.ts";
import { openVault, type Vault } from "../../domain/crypto.ts";
import { suppress } from "../../domain/suppressions.ts";
import { createTeam } from "../../domain/teams.ts";
import { api, type Json } from "../support/api.ts";
import { app } from "../support/command.ts";
import { eventually } from "../support/eventually.ts";
import { backdoor, makeTeam, unique, uniqueEmail } from "../support/factories.ts";
import { makeDatabase, type OwnDatabase } from "../support/own-database.ts";
import { caughtMails, readMail } from "../support/sending.ts";
import { stack } from "../support/stack.ts";

const PLENTY: ConfirmationLimits = { perAddress: 1_000, perTeam: 1_000 };

/** An SMTP server that keeps its mails, or refuses RCPT with a code. */
async function smtpSink() {
  const mails = new Map<string, string>();
  const counts = new Map<string, number>();
  let refusal: number | undefined;
  const server = new SMTPServer({
    disabledCommands: ["AUTH", "STARTTLS"],
    onRcptTo: (_address, _session, done) =>
      done(refusal === undefined ? null : Object.assign(new Error("no"), { responseCode: refusal })),
    onData: (stream, session, done) => {
      const chunks: Buffer[] = [];
      stream.on("data", (chunk: Buffer) => chunks.push(chunk));
      stream.on("end", () => {
        for (const { address } of session.envelope.rcptTo) {
          mails.set(address, Buffer.concat(chunks).toString());
          counts.set(address, (counts.get(address) ?? 0) + 1);
        }
        done();
      });
    },
  });
  await once(server.listen(0, "127.0.0.1"), "listening");
  return {
    url: `smtp://127.0.0.1:${(server.server.address() as AddressInfo).port}`,
    mails,
    countOf: (address: string) => counts.get(address) ?? 0,
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
  let own: OwnDatabase;
  let orm: MikroORM;
  let tenant: Tenant;
  let vault: Vault;
  before(async () => {
    ({ vault } = await backdoor());
    sink = await smtpSink();
    own = await makeDatabase({ poolMax: 5 });
    ({ orm } = own);
    env = { ...(await stack()).env, PUBLIC_URL: "https://mail.example", SYSTEM_SMTP_URL: sink.url };
    const owner = { email: "owner@example.com", name: "Owner" };
    const { team } = await transaction(orm.em, (em) =>
      createTeam(em, { name: "Team", plan: "BUSINESS", timeZone: "UTC", owner }),
    );
    tenant = { teamId: team.id, environment: "LIVE" };
  });
  after(async () => {
    await own.drop();
    await sink.close();
  });
  beforeEach(() => sink.refuse(undefined));

  async function subscribe(listName = "Weekly"): Promise<{ email: string; id: string }> {
    const email = uniqueEmail("opt-in");
    const id = await transaction(forTenant(orm.em, tenant), async (em) => {
      const list = await createList(em, tenant, { name: listName, description: null, optin: "DOUBLE" }, env.MAX_LISTS);
      const subscriber = await createSubscriber(em, vault, tenant, { email, firstName: null, lastName: null });
      await addSubscribers(em, tenant, list.id, [subscriber.id]);
      return subscriber.id;
    });
    return { email, id };
  }
  const subscriptionOf = (id: string) =>
    kysely(orm.em.fork())
      .selectFrom("subscriptions")
      .select(["status", "confirmation_due_at", "confirmation_sent_at", "confirmation_withheld"])
      .where("subscriber_id", "=", id)
      .executeTakeFirstOrThrow();
  /** Ends the time for which another worker has claimed the mail. */
  const endClaim = (id: string) =>
    orm.em.fork().execute("update subscriptions set confirmation_due_at = now() where subscriber_id = ?", [id]);
  const run = (changes: Partial<Env> = {}) =>
    sendDueConfirmations({
      env: { ...env, ...changes },
      orm,
      vault: openVault(env),
      log: pino({ level: "silent" }),
      stopping: new AbortController().signal,
    });

  it("are sent once, to the address only, with a link to confirm", async () => {
    const { email, id } = await subscribe("Tea & <b>news</b>");
    assert.equal(await run(), 1);
    const mail = await PostalMime.parse(sink.mails.get(email) ?? "");
    assert.equal(mail.subject, "Please confirm your subscription");
    assert.match(mail.text ?? "", /https:\/\/mail\.example\/c\/[\w.-]+/);
    assert.ok(mail.html?.includes("Tea &amp; b news b"), mail.html);
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
      Array.from({ length: 4 }, () => transaction(orm.em, (em) => claimConfirmations(em, 50, PLENTY))),
    );
    assert.deepEqual(
      claims.flatMap(({ claimed }) => claimed).map(({ subscriberId }) => subscriberId),
      [id],
    );
    assert.equal(await run(), 0);
    await endClaim(id);
    assert.equal(await run(), 1);
    assert.equal((await subscriptionOf(id)).confirmation_due_at, null);
  });

  describe("are limited", () => {
    /** A subscriber of as many lists as asked for. */
    async function onLists(email: string, lists: number, of = tenant): Promise<{ id: string; lists: string[] }> {
      return transaction(forTenant(orm.em, of), async (em) => {
        const subscriber = await createSubscriber(em, vault, of, { email, firstName: null, lastName: null });
        const made: string[] = [];
        for (let n = 0; n < lists; n++) {
          const list = await createList(em, of, { name: "List", description: null, optin: "DOUBLE" }, env.MAX_LISTS);
          await addSubscribers(em, of, list.id, [subscriber.id]);
          made.push(list.id);
        }
        return { id: subscriber.id, lists: made };
      });
    }
    const move = (id: string, email: string) =>
      transaction(forTenant(orm.em, tenant), (em) => updateSubscriber(em, vault, tenant, id, { email }));
    /** Lets a UTC day pass. */
    async function passDay(): Promise<void> {
      await orm.em.fork().execute("update confirmation_mails set day = day - 1");
      await orm.em
        .fork()
        .execute("update subscriptions set confirmation_due_at = now() where confirmation_withheld is not null");
    }
    const withheldOf = async (id: string) =>
      (
        await kysely(orm.em.fork())
          .selectFrom("subscriptions")
          .select(["status", "confirmation_withheld as reason"])
          .where("subscriber_id", "=", id)
          .where("confirmation_withheld", "is not", null)
          .execute()
      ).map(({ status, reason }) => `${status} ${reason}`);

    it("to one per list and address and day, however often the address changes", async () => {
      const [mine, yours] = [uniqueEmail("mine"), uniqueEmail("yours")];
      const { id } = await onLists(mine, 1);
      assert.equal(await run(), 1);
      for (let n = 0; n < 4; n++) {
        await move(id, n % 2 === 0 ? yours : mine);
        await run();
      }
      assert.deepEqual([sink.countOf(mine), sink.countOf(yours)], [1, 1]);
      const { status, confirmation_withheld, confirmation_due_at } = await subscriptionOf(id);
      assert.deepEqual([status, confirmation_withheld], ["PENDING", "list_limit"]);
      assert.match(String(confirmation_due_at), /00:00:00/, "it waits for the next UTC day");

      await passDay();
      assert.equal(await run(), 1);
      assert.equal(sink.countOf(mine), 2);
      assert.equal((await subscriptionOf(id)).confirmation_withheld, null);
    });

    it("per address, over seven days, whatever tag the address carries", async () => {
      const name = unique("victim");
      const { id } = await onLists(`${name}@example.com`, 4);
      const tagged = await onLists(`${name}+tag@example.com`, 4);
      const few = { CONFIRMATIONS_PER_ADDRESS: 3 };
      assert.equal(await run(few), 3);
      const withheld = [...(await withheldOf(id)), ...(await withheldOf(tagged.id))];
      assert.deepEqual(withheld, Array(5).fill("PENDING address_limit"));
      for (let day = 1; day < 7; day++) {
        await passDay();
        assert.equal(await run(few), 0, `after ${day} days`);
      }
      await passDay();
      assert.equal(await run(few), 3);
      await transaction(orm.em, (em) => claimConfirmations(em, 50, PLENTY));
    });

    it("per team and day, and a team at its limit does not hold up another", async () => {
      const owner = { email: "owner@example.com", name: "Owner" };
      const [loud, quiet] = await transaction(orm.em, async (em) => {
        const teams = [];
        for (const name of ["Loud", "Quiet"]) {
          const { team } = await createTeam(em, { name, plan: "BUSINESS", timeZone: "UTC", owner });
          teams.push({ teamId: team.id, environment: "LIVE" } as const);
        }
        return teams;
      });
      assert.ok(loud && quiet);
      const shouting: string[] = [];
      for (let n = 0; n < 60; n++) shouting.push((await onLists(uniqueEmail("loud"), 1, loud)).id);
      const other = await onLists(uniqueEmail("quiet"), 1, quiet);
      assert.equal(await run({ CONFIRMATIONS_PER_TEAM: 5 }), 6);
      assert.ok((await subscriptionOf(other.id)).confirmation_sent_at);
      const withheld = (await Promise.all(shouting.map(withheldOf))).flat();
      assert.deepEqual(withheld, Array(55).fill("PENDING team_limit"));
      const counted = await countWithheld(orm.em.fork(), loud);
      assert.equal(counted.length, 55);
      assert.ok(counted.every(({ reason, mails }) => reason === "team_limit" && mails === 1));
      await passDay();
      await run({ CONFIRMATIONS_PER_TEAM: 100 });
      assert.deepEqual(await countWithheld(orm.em.fork(), loud), []);
    });

    it("exactly, when several workers claim at once", async () => {
      const { id } = await onLists(uniqueEmail("victim"), 12);
      const claims = await Promise.all(
        Array.from({ length: 4 }, () =>
          transaction(orm.em, (em) => claimConfirmations(em, 3, { perAddress: 5, perTeam: 1_000 })),
        ),
      );
      assert.equal(claims.flatMap(({ claimed }) => claimed).length, 5);
      assert.equal((await withheldOf(id)).length, 7);
    });

    it("not by tries of the same mail", async () => {
      const { email, id } = await subscribe();
      sink.refuse(450);
      for (let n = 0; n < 3; n++) {
        assert.equal(await run({ CONFIRMATIONS_PER_ADDRESS: 1 }), 0);
        await endClaim(id);
      }
      sink.refuse(undefined);
      assert.equal(await run({ CONFIRMATIONS_PER_ADDRESS: 1 }), 1);
      assert.equal(sink.countOf(email), 1);
    });
  });

  it("reach the new address when it changes while the mail to the old one is on its way", async () => {
    const { email, id } = await subscribe();
    const { claimed } = await transaction(orm.em, (em) => claimConfirmations(em, 50, PLENTY));
    const [onItsWay] = claimed;
    assert.ok(onItsWay?.email === email);
    const changed = uniqueEmail("changed");
    await transaction(forTenant(orm.em, tenant), (em) => updateSubscriber(em, vault, tenant, id, { email: changed }));
    await settleConfirmation(orm.em.fork(), onItsWay, "sent");
    assert.equal(await run(), 1);
    assert.equal(sink.countOf(changed), 1);
  });

  it("are not sent to an address on the do-not-mail list, and do not keep later mails waiting", async () => {
    const { email, id } = await subscribe();
    await suppress(forTenant(orm.em, tenant), tenant, [email], "MANUAL");
    const next = await subscribe();
    const claimOne = () => transaction(orm.em, (em) => claimConfirmations(em, 1, PLENTY));
    assert.deepEqual(await claimOne(), { claimed: [], withheld: [{ teamId: tenant.teamId, reason: "suppressed" }] });
    const { claimed } = await claimOne();
    assert.deepEqual(
      claimed.map(({ subscriberId }) => subscriberId),
      [next.id],
    );
    const { status, confirmation_withheld, confirmation_due_at } = await subscriptionOf(id);
    assert.deepEqual([status, confirmation_withheld], ["PENDING", "suppressed"]);
    assert.match(String(confirmation_due_at), /00:00:00/, "it waits for the next UTC day");

    await orm.em.fork().execute("delete from suppressions where email = ?", [email]);
    await endClaim(id);
    assert.equal(await run(), 1);
    assert.equal(sink.countOf(email), 1);
  });
});

describe("A client that aims confirmation mails at one person", () => {
  it("sends five of twenty, none with words or links of its own, and sees why the others wait", async () => {
    const { keys, team } = await makeTeam({ role: "EDITOR" });
    const client = api(keys.live);
    const [before, audience] = [`${unique("own")}.example`, `${unique("strange")}.example`];
    const person = (await client.post("/subscribers", { email: `someone@${before}` })).body.data.id;
    for (let n = 0; n < 20; n++) {
      const name = "Account locked, visit evil.example/x or https://evil.example or call +49 30 1234567";
      const { body } = await client.post("/lists", { name, optin: "DOUBLE" });
      await client.post(`/lists/${body.data.id}/subscribers`, { subscriber_ids: [person] });
    }
    for (const email of [`a@${audience}`, `a+1@${audience}`, `a+2@${audience}`]) {
      await client.patch(`/subscribers/${person}`, { email });
    }
    const subscriptions: Json[] | undefined = await eventually(
      async () => {
        const { body } = await client.get(`/subscribers/${person}`);
        const all: Json[] = body.data.subscriptions;
        const isDecided = ({ confirmation_sent_at, confirmation_withheld }: Json) =>
          confirmation_sent_at !== null || confirmation_withheld !== null;
        return all.every(isDecided) ? all : undefined;
      },
      { what: "a decision on every mail" },
    );
    assert.ok(subscriptions);
    assert.ok(subscriptions.every(({ status }) => status === "PENDING"));
    const mails = await caughtMails({ audience });
    assert.equal(mails.length, 5);
    for (const { id, subject } of mails) {
      assert.equal(subject, "Please confirm your subscription");
      const { text = "", html = "" } = await readMail(id);
      assert.doesNotMatch(text + html, /evil\.|1234567/);
      assert.equal(text.match(/\w+:\/\//g)?.length, 1, "the link to confirm is the only one");
    }

    const withheld = subscriptions.filter(({ confirmation_withheld }) => confirmation_withheld !== null);
    // More than 15 when mails to an earlier spelling of the address were among the five.
    assert.ok(withheld.length >= 15);
    assert.ok(withheld.every(({ confirmation_withheld }) => /^(address|list)_limit$/.test(confirmation_withheld)));
    const { body } = await client.get(`/lists/${withheld[0].list_id}/subscribers`);
    assert.equal(body.data[0].confirmation_withheld, withheld[0].confirmation_withheld);
    const { json } = await app("--json", "confirmation:withheld", "--team", team.id);
    assert.equal(json.withheld.length, withheld.length);
  });
});

describe("A name in a confirmation mail", () => {
  for (const [name, shown] of [
    ["Weekly", "Weekly"],
    ["Tee & Kaffee (Köln)", "Tee & Kaffee (Köln)"],
    ["Mode-Brief 2026", "Mode-Brief 2026"],
    ["evil.example/x", "evil example x"],
    ["https://evil.example", "https evil example"],
    ["evil．example", "evil example"],
    ["evil。example", "evil example"],
    ["me@evil.example", "me evil example"],
    ["Call +49 (30) 123-4567 now", "Call now"],
    ["<b>Hi</b>\u202Egnp", "b Hi b gnp"],
    ["x".repeat(200), "x".repeat(60)],
    ["...", "a list"],
  ] as const) {
    it(`${JSON.stringify(name.slice(0, 30))} is shown as ${JSON.stringify(shown.slice(0, 30))}`, () => {
      assert.equal(plainName(name, "a list"), shown);
    });
  }
});

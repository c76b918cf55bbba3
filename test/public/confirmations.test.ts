import assert from "node:assert/strict";
import { pino } from "pino";
import { sendDueConfirmations } from "../../activities/confirmations.ts";
import type { Env } from "../../config/env.ts";
import { forTenant, kysely, type MikroORM, type Tenant } from "../../db/orm.ts";
import { transaction } from "../../db/transaction.ts";
import { applyLimits, type ConfirmationLimits } from "../../domain/audience/confirmation-limits.ts";
import { claimConfirmations, countWithheld, settleConfirmation } from "../../domain/audience/confirmation-mails.ts";
import { addSubscribers, createList, type FormSignUp } from "../../domain/audience/lists.ts";
import { plainName } from "../../domain/audience/plain-name.ts";
import { createSubscriber, updateSubscriber } from "../../domain/audience/subscribers.ts";
import { suppress } from "../../domain/audience/suppressions.ts";
import { unsubscribeUrl } from "../../domain/mail/links.ts";
import { readWaitSeconds } from "../../domain/mail/system-mail.ts";
import { openVault, type Vault } from "../../domain/secrets/crypto.ts";
import { attachList } from "../../domain/sends/drafts/drafts.ts";
import { type ApiClient, api, type Json } from "../support/api.ts";
import { app } from "../support/command.ts";
import { eventually } from "../support/eventually.ts";
import { backdoor, makeTeam, type TestTeam, tenantOf, unique, uniqueEmail } from "../support/factories.ts";
import { makeDatabase, type OwnDatabase } from "../support/own-database.ts";
import { caughtMails, mailsTo, readMail, setFaults } from "../support/sending.ts";
import { stack } from "../support/stack.ts";
import { emitted, listen } from "../webhooks/outbox.ts";
import { recordSentNewsletter } from "./ledger.ts";

const PLENTY: ConfirmationLimits = { perAddress: 1_000, perTeam: 1_000 };

const OPT_INS = "^opt-in-";
/** Lets the mail catcher refuse the addresses of `subscribe`. */
const refuse = (code: number, message?: string) =>
  setFaults([{ stage: "rcpt", match: OPT_INS, code, message }], OPT_INS);
const take = () => setFaults([], OPT_INS);
const countTo = async (email: string) => (await mailsTo(email)).length;

// In their own database: the stack's maintenance pool would claim the confirmations that these tests claim.
describe("Confirmation mails of double opt-in", () => {
  let env: Env;
  let own: OwnDatabase;
  /** By way of a day that no row has: Postgres checks each row that it moves for a duplicate. */
  const passDays = async (days: number) => {
    for (const moved of [1_000 + days, -1_000]) {
      await orm.em.fork().execute("update confirmation_mails set day = day - ?::int", [moved]);
    }
  };
  let orm: MikroORM;
  let tenant: Tenant;
  let vault: Vault;
  const makeTenant = async () => tenantOf(await makeTeam({ database: { orm, vault } }));
  before(async () => {
    ({ vault } = await backdoor());
    own = await makeDatabase({ poolMax: 5 });
    ({ orm } = own);
    env = { ...(await stack()).env, PUBLIC_URL: "https://mail.example" };
    tenant = await makeTenant();
  });
  after(() => own.drop());
  beforeEach(take);

  /** A subscriber of as many lists as asked for. */
  async function onLists(email: string, lists: number, of = tenant, name = "Weekly", byForm?: FormSignUp) {
    return transaction(forTenant(orm.em, of), async (em) => {
      const subscriber = await createSubscriber(em, vault, of, { email, firstName: null, lastName: null });
      const made: string[] = [];
      for (let n = 0; n < lists; n++) {
        const list = await createList(em, of, { name, description: null, optin: "DOUBLE" }, env.MAX_LISTS);
        await addSubscribers(em, vault, of, list.id, [subscriber.id], byForm);
        made.push(list.id);
      }
      return { email, id: subscriber.id, lists: made };
    });
  }
  const subscribe = (listName?: string) => onLists(uniqueEmail("opt-in"), 1, tenant, listName);
  const subscriptionOf = (id: string) =>
    kysely(orm.em.fork())
      .selectFrom("subscriptions")
      .select(["status", "confirmation_due_at", "confirmation_sent_at", "confirmation_withheld"])
      .where("subscriber_id", "=", id)
      .executeTakeFirstOrThrow();
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
    const [caught] = await mailsTo(email);
    assert.deepEqual(caught?.to, [email]);
    const mail = await readMail(caught.id);
    assert.equal(mail.subject, "Please confirm your subscription");
    assert.match(mail.text ?? "", /https:\/\/mail\.example\/c\/[\w.-]+/);
    assert.ok(!mail.html?.includes("<img"));
    assert.ok(mail.html?.includes("Tea &amp; b news b"), mail.html);
    const { status, confirmation_due_at, confirmation_sent_at } = await subscriptionOf(id);
    assert.deepEqual([status, confirmation_due_at], ["PENDING", null]);
    assert.ok(confirmation_sent_at);
    assert.equal(await run(), 0);
  });

  it("come in the team's name, language and look, from the service's address", async () => {
    const of = await makeTenant();
    await kysely(orm.em.fork())
      .updateTable("teams")
      .set({ sender_name: `Käse & "Wein" <evil.example>`, language: "de", font: "serif" })
      .set({ postal_address: "Weg 12, 10115 Berlin\nwww.evil.example\n+49 30 1234567" })
      .set({ logo_url: "https://logo.example/a.png?a=1&b=2", accent_color: "#ffee00", background_color: "#123456" })
      .where("id", "=", of.teamId)
      .execute();
    const { email } = await onLists(uniqueEmail("opt-in"), 1, of, "Brief.example");
    assert.equal(await run(), 1);
    const [caught] = await mailsTo(email);
    const { from, subject, text = "", html = "" } = await readMail(caught?.id ?? 0);
    assert.equal(from?.name, "Käse & Wein evil example");
    assert.ok(from?.address && env.SYSTEM_FROM.includes(from.address));
    assert.equal(subject, "Bitte bestätigen Sie Ihre Anmeldung");
    const [url = ""] = /https:\S+\/c\/\S+/.exec(text) ?? [];
    const asked = "möchte „Brief example“ von Käse & Wein evil example an diese Adresse erhalten.";
    assert.ok(text.includes(asked) && text.includes("ignorieren Sie diese E-Mail"), text);
    assert.ok(html.includes(asked.replace("&", "&amp;")) && html.includes('<html lang="de">'), html);
    assert.ok(
      html.includes(
        '<img class="image logo" src="https://logo.example/a.png?a=1&amp;b=2" alt="Käse &amp; Wein evil example"',
      ),
    );
    assert.match(html, /<h2[^>]*>Bestätigen Sie Ihre Anmeldung<\/h2>/);
    const foot = "Weg 12, 10115 Berlin, www evil example";
    assert.ok(text.trim().endsWith(`\n\n${foot}`) && html.includes(`>${foot}</p>`), `${text}\n${html}`);
    assert.match(html, /bgcolor="#ffee00"[\s\S]*color:#1f2328[^>]*>Anmeldung bestätigen<\/a>/);
    assert.deepEqual(
      [...html.matchAll(/href="([^"]*)"/g)].map(([, href]) => href),
      [url],
      "no other link, nothing is counted",
    );
    assert.match(
      html,
      /<body class="page" style="[^"]*#123456[\s\S]*Georgia/,
      "the page of the team's mails, also in the dark",
    );
  });

  it("are retried after a 4xx, and dropped once the mailbox is refused", async () => {
    const { email, id } = await subscribe();
    await refuse(450);
    assert.equal(await run(), 0);
    assert.ok((await subscriptionOf(id)).confirmation_due_at, "due again when the claim runs out");
    await endClaim(id);
    await take();
    assert.equal(await run(), 1);
    assert.equal(await countTo(email), 1);

    const other = await subscribe();
    await refuse(550, "5.1.1 No such user");
    assert.equal(await run(), 0);
    const { confirmation_due_at, confirmation_sent_at, confirmation_withheld } = await subscriptionOf(other.id);
    assert.deepEqual([confirmation_due_at, confirmation_sent_at, confirmation_withheld], [null, null, null]);
  });

  describe("that the relay refuses for the sender's sake", () => {
    const AT_LIMIT =
      "Domain mail.example has exceeded the max emails per hour (100/100 (100%)) allowed. Message discarded.";
    const relayFailures = async () =>
      (await countWithheld(orm.em.fork(), tenant)).filter(({ reason }) => reason === "relay_failure").length;
    const age = (email: string, hours: number) =>
      orm.em
        .fork()
        .execute("update confirmation_mails set tried_at = now() - make_interval(hours => ?) where email = ?", [
          hours,
          email,
        ]);

    it("stay due, are shown to operators, and are sent once it takes them", async () => {
      const people = await Promise.all(Array.from({ length: 5 }, () => subscribe()));
      await refuse(550, AT_LIMIT);
      assert.equal(await run(), 0);
      for (const { id } of people) {
        const { confirmation_due_at, confirmation_sent_at, confirmation_withheld } = await subscriptionOf(id);
        assert.ok(confirmation_due_at);
        assert.deepEqual([confirmation_sent_at, confirmation_withheld], [null, "relay_failure"]);
      }
      assert.equal(await relayFailures(), 5);
      await age(people[0]?.email ?? "", 2);
      assert.equal(Math.round((await readWaitSeconds(orm.em.fork())).confirmation / 3_600), 2);
      assert.equal(await run(), 0, "they are not due yet");

      await take();
      for (const { id } of people) await endClaim(id);
      assert.equal(await run(), 5);
      for (const { email, id } of people) {
        const { confirmation_due_at, confirmation_sent_at, confirmation_withheld } = await subscriptionOf(id);
        assert.deepEqual([confirmation_due_at, confirmation_withheld, await countTo(email)], [null, null, 1]);
        assert.ok(confirmation_sent_at);
      }
      assert.deepEqual([await relayFailures(), (await readWaitSeconds(orm.em.fork())).confirmation], [0, 0]);
    });

    it("are tried for a day, at last each hour, and say so once they are given up", async () => {
      const { email, id } = await subscribe();
      await refuse(550, "Rejected for a reason that no rule knows");
      assert.equal(await run(), 0);
      await age(email, 23);
      await endClaim(id);
      const [mail] = (await transaction(orm.em, (em) => claimConfirmations(em, 50, PLENTY))).claimed;
      const minutes = (Date.parse(mail?.claimedUntil ?? "") - Date.now()) / 60_000;
      assert.ok(minutes > 59 && minutes < 62, `claimed for ${minutes} minutes`);
      assert.equal((await subscriptionOf(id)).confirmation_withheld, "relay_failure");
      await endClaim(id);
      assert.equal(await run(), 0);
      assert.ok((await subscriptionOf(id)).confirmation_due_at);

      await age(email, 25);
      await endClaim(id);
      assert.equal(await run(), 0);
      const { confirmation_due_at, confirmation_sent_at, confirmation_withheld } = await subscriptionOf(id);
      assert.deepEqual(
        [confirmation_due_at, confirmation_sent_at, confirmation_withheld],
        [null, null, "relay_failure"],
      );
      assert.equal(await relayFailures(), 1);
      assert.equal((await readWaitSeconds(orm.em.fork())).confirmation, 0);
    });

    it("are not given up while the relay cannot be reached or refuses the login", async () => {
      const { email, id } = await subscribe();
      const unreachable = { SYSTEM_SMTP_URL: "smtp://127.0.0.1:1" };
      assert.equal(await run(unreachable), 0);
      await age(email, 72);
      await endClaim(id);
      assert.equal(await run(unreachable), 0);
      assert.equal((await subscriptionOf(id)).confirmation_withheld, "relay_failure");
      await endClaim(id);
      assert.equal(await run(), 1);
      assert.equal(await countTo(email), 1);
    });
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

  describe("of a person who signs up again", () => {
    const signUp = async (id: string) => {
      const row = kysely(orm.em.fork()).selectFrom("subscriptions").select("list_id").where("subscriber_id", "=", id);
      const { list_id: list } = await row.executeTakeFirstOrThrow();
      return transaction(forTenant(orm.em, tenant), (em) => addSubscribers(em, vault, tenant, list, [id]));
    };
    it("are sent again while they are PENDING, one a day, and never once they have confirmed", async () => {
      const { email, id } = await subscribe();
      assert.deepEqual((await signUp(id)).asked, [], "the first is due still");
      assert.equal(await run(), 1);
      const again = await Promise.all([signUp(id), signUp(id)]);
      assert.deepEqual(
        again.flatMap(({ asked }) => asked),
        [id],
      );
      assert.deepEqual(
        again.map(({ alreadySubscribed }) => alreadySubscribed),
        [[id], [id]],
      );
      assert.equal(await run(), 0);
      const { status, confirmation_withheld, confirmation_due_at } = await subscriptionOf(id);
      assert.deepEqual([status, confirmation_withheld], ["PENDING", "list_limit"]);
      await signUp(id);
      assert.equal(
        (await subscriptionOf(id)).confirmation_due_at,
        confirmation_due_at,
        "it waits for the next UTC day",
      );
      await passDays(1);
      await endClaim(id);
      assert.equal(await run(), 1);
      assert.equal(await countTo(email), 2);
      const [first, second] = await Promise.all(
        (await mailsTo(email)).map(async (mail) => /\/c\/\S+/.exec((await readMail(mail.id)).text ?? "")?.[0]),
      );
      assert.equal(first, second, "both links confirm");

      await passDays(1);
      await orm.em.fork().execute("update subscriptions set status = 'CONFIRMED' where subscriber_id = ?", [id]);
      assert.deepEqual((await signUp(id)).asked, []);
      assert.equal(await run(), 0);
    });

    it("are sent again after a refusal, and where the list has asked for single opt-in since", async () => {
      const { email, id } = await subscribe();
      await refuse(550, "5.1.1 No such user");
      assert.equal(await run(), 0);
      await take();
      await passDays(1);
      await orm.em
        .fork()
        .execute(
          "update lists set optin = 'SINGLE' where id in (select list_id from subscriptions where subscriber_id = ?)",
          [id],
        );
      assert.deepEqual((await signUp(id)).asked, [id]);
      assert.equal(await run(), 1);
      assert.equal(await countTo(email), 1);
      assert.equal((await subscriptionOf(id)).status, "PENDING");
    });

    it("are at most so many to an address in seven days", async () => {
      const { email, id } = await subscribe();
      for (let day = 0; day < 4; day++) {
        await run({ CONFIRMATIONS_PER_ADDRESS: 2 });
        await passDays(1);
        await signUp(id);
        await endClaim(id);
      }
      assert.equal(await countTo(email), 2);
      assert.equal((await subscriptionOf(id)).confirmation_withheld, "address_limit");
      await orm.em.fork().execute("delete from subscriptions where subscriber_id = ?", [id]);
    });
  });

  describe("are limited", () => {
    const move = (id: string, email: string) =>
      transaction(forTenant(orm.em, tenant), (em) => updateSubscriber(em, vault, tenant, id, { email }));
    async function passDay(): Promise<void> {
      await passDays(1);
      await orm.em.fork().execute(`update subscriptions set confirmation_due_at = now()
          where confirmation_withheld is not null and confirmation_due_at is not null`);
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
      assert.deepEqual([await countTo(mine), await countTo(yours)], [1, 1]);
      const { status, confirmation_withheld, confirmation_due_at } = await subscriptionOf(id);
      assert.deepEqual([status, confirmation_withheld], ["PENDING", "list_limit"]);
      assert.match(String(confirmation_due_at), /00:00:00/, "it waits for the next UTC day");

      await passDay();
      assert.equal(await run(), 1);
      assert.equal(await countTo(mine), 2);
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

    it("by the forms of all teams to one mailbox as by one team, are not put off, and leave those of the API alone", async () => {
      const name = unique("victim");
      const few = { CONFIRMATIONS_PER_ADDRESS: 3 };
      const byForm = { textId: "ftxt_x", tracking: null };
      const teams = await Promise.all(Array.from({ length: 4 }, makeTenant));
      const signUp = async () => {
        const made = [];
        for (const [at, of] of teams.entries()) {
          const spelled = `${name.slice(0, at)}.${name.slice(at)}`.replace(/^[.]/, "");
          const address = `${spelled}+${unique("tag")}@${at % 2 ? "gmail" : "googlemail"}.com`;
          made.push(await onLists(address, 2, of, "Weekly", byForm));
        }
        return made;
      };
      const sent = async () => {
        await run(few);
        const mails = "select 1 from confirmation_mails where mailbox = ?";
        return (await orm.em.fork().execute(mails, [`${name}@gmail.com`])).length;
      };
      const people = await signUp();
      assert.equal(await sent(), 3);
      assert.equal((await Promise.all(people.map(({ id }) => withheldOf(id)))).flat().length, 5);
      for (let day = 1; day < 7; day++) {
        await passDay();
        assert.equal(await sent(), 3, `after ${day} days`);
      }
      await onLists(`${name}@gmail.com`, 1, await makeTenant());
      assert.equal(await sent(), 4);
      await passDay();
      assert.equal(await sent(), 4, "they were not put off");
      await signUp();
      assert.equal(await sent(), 7);
    });

    it("to five of 10,000 that are due at once for one mailbox, over many forms", () => {
      const counted = { isSuppressed: false, isRetry: false, sentForList: 0, sentToMailbox: 0, sentByTeam: 0 };
      const mails = Array.from({ length: 10_000 }, (_, n) => ({
        ...{ ...counted, isByForm: true, sentByForms: 0, mailbox: "victim@example.com" },
        ...{ teamId: `team_${n % 50}`, listId: `list_${n % 500}` },
      }));
      const sent = (of: typeof mails) =>
        applyLimits(of, { perAddress: 5, perTeam: 1_000 }).filter((why) => why === null);
      assert.equal(sent(mails).length, 5);
      assert.equal(sent(mails.map((mail) => ({ ...mail, sentByForms: 4 }))).length, 1);
      assert.equal(sent(mails.map((mail) => ({ ...mail, isByForm: false }))).length, 250);
    });

    it("per team and day, and a team at its limit does not hold up another", async () => {
      const [loud, quiet] = [await makeTenant(), await makeTenant()];
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
      await refuse(450);
      for (let n = 0; n < 3; n++) {
        assert.equal(await run({ CONFIRMATIONS_PER_ADDRESS: 1 }), 0);
        await endClaim(id);
      }
      await orm.em.fork().execute("update confirmation_mails set day = day - 1 where email = ?", [email]);
      await endClaim(id);
      await take();
      assert.equal(await run({ CONFIRMATIONS_PER_ADDRESS: 1 }), 1);
      assert.equal(await countTo(email), 1);
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
    assert.equal(await countTo(changed), 1);
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
    assert.equal(await countTo(email), 1);
  });
});

describe("A person who signs up again after an opt-out", () => {
  let team: TestTeam;
  let client: ApiClient;
  let audience: string;
  beforeEach(async () => {
    team = await makeTeam();
    client = api(team.keys.live);
    audience = `${unique("back")}.example`;
  });

  const made = async (path: string, body: Json): Promise<Json> => (await client.post(path, body)).body.data;
  const makeList = async (): Promise<string> => (await made("/lists", { name: "List" })).id;
  const signUp = (list: string, id: string) => made(`/lists/${list}/subscribers`, { subscriber_ids: [id] });
  const optOut = (list: string, id: string) =>
    client.patch(`/lists/${list}/subscribers/${id}`, { status: "UNSUBSCRIBED" });
  const statusOf = async (list: string, id: string): Promise<string> => {
    const { subscriptions } = (await client.get(`/subscribers/${id}`)).body.data;
    return subscriptions.find(({ list_id }: Json) => list_id === list).status;
  };
  /** Left all mail by the link of a newsletter to the first lists. The last list has double opt-in from then on. */
  async function gone(left: string[], others: string[] = []): Promise<{ id: string; email: string; url: string }> {
    const email = `${unique("ada")}@${audience}`;
    const { id } = await made("/subscribers", { email });
    for (const list of [...left, ...others]) await signUp(list, id);
    const letter = (await made("/newsletters", { name: "Letter" })).id;
    for (const list of left) await transaction(team.em, (em) => attachList(em, letter, list));
    const sendId = await recordSentNewsletter(team, letter);
    const mail = { send_id: sendId, seq: 1, member_id: id, email, list_id: left[0] ?? "", state: "SENT" } as const;
    await kysely(team.em).insertInto("send_recipients").values(mail).execute();
    const url = unsubscribeUrl(team.vault, (await stack()).origin, { sendId, seq: 1 });
    assert.equal((await post(url)).status, 200);
    await client.patch(`/lists/${[...left, ...others].at(-1)}`, { optin: "DOUBLE" });
    return { id, email, url };
  }
  const post = (url: string) => fetch(url, { method: "POST" });
  const suppressionOf = async (email: string) =>
    (await client.get(`/suppressions/${encodeURIComponent(email)}`)).body.data?.reason;
  const links = (count: number): Promise<string[]> =>
    eventually(
      async () => {
        const mails = await caughtMails({ audience });
        const texts = await Promise.all(mails.map(async ({ id }) => (await readMail(id)).text ?? ""));
        const found = texts.flatMap((text) => /https?:\S+\/c\/\S+/.exec(text) ?? []);
        assert.ok(found.length >= count);
        return found;
      },
      { what: `${count} confirmation mails` },
    );
  const link = async (n = 1): Promise<string> => (await links(n))[n - 1] ?? "";

  it("is asked by mail on a DOUBLE list, and the confirmation lifts the opt-outs that it must", async () => {
    const [back, left, other, single] = [await makeList(), await makeList(), await makeList(), await makeList()];
    const { id, email, url } = await gone([left, back], [other]);
    await client.patch(`/lists/${back}`, { optin: "DOUBLE" });
    assert.deepEqual(
      [await statusOf(back, id), await statusOf(other, id), await suppressionOf(email)],
      ["UNSUBSCRIBED", "CONFIRMED", "UNSUBSCRIBED"],
    );
    assert.deepEqual((await signUp(left, id)).opted_out, [id], "a SINGLE list stays closed");
    const dry = await client.post(`/lists/${back}/subscribers`, { subscriber_ids: [id] }, { query: { dry_run: true } });
    assert.equal(dry.body.meta.impact.would_update, 1);
    const asked = await Promise.all(Array.from({ length: 3 }, () => signUp(back, id)));
    assert.ok(asked.every(({ opted_out }) => opted_out[0] === id));
    const confirmation = await link();
    assert.equal((await fetch(confirmation)).status, 200);
    assert.deepEqual([await statusOf(back, id), await suppressionOf(email)], ["UNSUBSCRIBED", "UNSUBSCRIBED"]);

    const since = emitted(team);
    await listen(team);
    await since();
    for (let click = 0; click < 2; click++) assert.equal((await post(confirmation)).status, 200);
    assert.deepEqual(
      [await statusOf(back, id), await statusOf(left, id), await statusOf(other, id), await suppressionOf(email)],
      ["CONFIRMED", "UNSUBSCRIBED", "UNSUBSCRIBED", undefined],
    );
    const types = (await since()).map(({ type }) => type);
    assert.deepEqual(types, ["subscription.confirmed", "suppression.removed", "subscription.removed"]);

    // A later opt-out is not undone by the link from before it, and is by that of another sign-up.
    assert.equal((await post(url)).status, 200);
    assert.equal((await post(confirmation)).status, 404);
    assert.deepEqual([await statusOf(back, id), await suppressionOf(email)], ["UNSUBSCRIBED", "UNSUBSCRIBED"]);
    assert.ok((await since()).some(({ type }) => type === "unsubscribe.created"));
    assert.equal((await client.get("/unsubscribes", { query: { email } })).body.data.length, 2);
    await signUp(back, id);
    assert.equal((await post(confirmation)).status, 404);
    const limited = await eventually(
      async () => (await client.get(`/lists/${back}/subscribers`)).body.data[0].confirmation_withheld,
      { what: "the limit of a mail a day" },
    );
    assert.equal(limited, "list_limit");
    const { json } = await app("--json", "confirmation:withheld", "--team", team.team.id);
    assert.equal(json.withheld.length, 1);
    assert.deepEqual((await signUp(single, id)).added, [id]);
    assert.equal((await links(1)).length, 1, "a SINGLE list sends no mail");
  });

  it("is asked on a list that they did not leave, and by every list that they sign up for", async () => {
    const [one, brought] = [await makeList(), await makeList()];
    const { id, email } = await gone([brought], [one]);
    const two = (await made("/lists", { name: "Two", optin: "DOUBLE" })).id;
    assert.deepEqual((await signUp(one, id)).already_subscribed, [id]);
    assert.deepEqual((await signUp(two, id)).added, [id]);
    for (const url of await links(2)) assert.equal((await post(url)).status, 200);
    assert.deepEqual([await statusOf(one, id), await statusOf(two, id)], ["CONFIRMED", "CONFIRMED"]);
    assert.equal(await suppressionOf(email), undefined);
  });

  it("gets no mail where the address is suppressed for another reason, and keeps that suppression", async () => {
    const list = await makeList();
    const { id, email } = await gone([list]);
    await transaction(team.em, (tx) => suppress(tx, tenantOf(team), [email], "bounce:hard"));
    await signUp(list, id);
    const withheld = await eventually(
      async () => (await client.get(`/lists/${list}/subscribers`)).body.data[0].confirmation_withheld,
      { what: "a decision" },
    );
    assert.equal(withheld, "suppressed");
    assert.equal(await suppressionOf(email), "UNSUBSCRIBED", "it keeps its first reason");
  });

  it("stays suppressed while a contact has the address, and the page says so", async () => {
    const list = await makeList();
    const { id, email } = await gone([list]);
    const contact = (await made("/contacts", { email })).id;
    await signUp(list, id);
    const page = await (await post(await link())).text();
    assert.match(page, /You will not receive any emails yet: this address is on the do-not-mail list/);
    assert.doesNotMatch(page, /You are subscribed/);
    assert.deepEqual([await statusOf(list, id), await suppressionOf(email)], ["CONFIRMED", "UNSUBSCRIBED"]);

    await client.delete(`/contacts/${contact}`);
    await team.em.fork().execute("update confirmation_mails set day = day - 1 where team_id = ?", [team.team.id]);
    await signUp(list, id);
    assert.equal((await post(await link(2))).status, 200);
    assert.equal(await suppressionOf(email), undefined);
  });

  it("says no once more, to all mail, to the list or to the provider, while the mail is on its way", async () => {
    const [list, brought] = [await makeList(), await makeList()];
    const all = await gone([brought], [list]);
    await signUp(list, all.id);
    const first = await link();
    assert.equal((await post(all.url)).status, 200);
    assert.equal((await post(first)).status, 404);

    await client.patch(`/lists/${list}`, { optin: "SINGLE" });
    const { id } = await gone([list]);
    await signUp(list, id);
    const second = await link(2);
    assert.equal((await optOut(list, id)).status, 200);
    assert.equal((await post(second)).status, 404);
    assert.equal(await statusOf(list, id), "UNSUBSCRIBED");

    await client.patch(`/lists/${list}`, { optin: "SINGLE" });
    const { id: last, email } = await gone([list]);
    await signUp(list, last);
    const third = await link(3);
    const tenant: Tenant = { teamId: team.team.id, environment: "LIVE" };
    await transaction(team.em, (em) => suppress(em, tenant, [email], "UNSUBSCRIBED"));
    assert.equal((await post(third)).status, 404);
    assert.deepEqual([await statusOf(list, last), await suppressionOf(email)], ["UNSUBSCRIBED", "UNSUBSCRIBED"]);
  });

  it("who confirms and opts out at the same moment has opted out", async () => {
    const list = await makeList();
    const people = [];
    for (let n = 1; n <= 3; n++) {
      await client.patch(`/lists/${list}`, { optin: "SINGLE" });
      const person = await gone([list]);
      await signUp(list, person.id);
      people.push({ ...person, confirmation: await link(n) });
    }
    for (const { id, email, url, confirmation } of people) {
      const [confirmed, left] = await Promise.all([post(confirmation), post(url)]);
      assert.equal(left.status, 200);
      assert.ok([200, 404].includes(confirmed.status));
      assert.deepEqual([await statusOf(list, id), await suppressionOf(email)], ["UNSUBSCRIBED", "UNSUBSCRIBED"]);
    }
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

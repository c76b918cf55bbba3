import assert from "node:assert/strict";
import { gzipSync } from "node:zlib";
import { kysely } from "../../db/orm.ts";
import { transaction } from "../../db/transaction.ts";
import { suppress } from "../../domain/audience/suppressions.ts";
import { unsubscribe } from "../../domain/audience/unsubscribes.ts";
import { makePlaceholder } from "../../domain/erasure/erased-addresses.ts";
import { confirmUrl, unsubscribeUrl } from "../../domain/mail/links.ts";
import { api, type Json } from "../support/api.ts";
import { makeTeam, recordSend, type TestTeam, uniqueEmail } from "../support/factories.ts";
import { stack } from "../support/stack.ts";
import { snapshotTables } from "../support/tables.ts";
import { assertAccessible } from "./accessible.ts";
import { type MailedLetter, mailLetter } from "./ledger.ts";

const ONE_CLICK = "List-Unsubscribe=One-Click";

describe("Pages for recipients", () => {
  let origin: string;
  let team: TestTeam;
  before(async () => {
    ({ origin } = await stack());
    team = await makeTeam();
  });

  const client = () => api(team.keys.live);
  const post = (url: string, body?: string | FormData, type = "application/x-www-form-urlencoded") =>
    fetch(url, {
      method: "POST",
      ...(body === undefined ? {} : { body }),
      ...(typeof body === "string" ? { headers: { "content-type": type } } : {}),
    });
  const assertPage = async (response: Response, status: number): Promise<string> => {
    assert.equal(response.status, status);
    assert.match(response.headers.get("content-type") ?? "", /^text\/html/);
    assert.match(response.headers.get("content-security-policy") ?? "", /^default-src 'none';/);
    assert.equal(response.headers.get("cache-control"), "no-store");
    assert.equal(response.headers.get("referrer-policy"), "no-referrer");
    assert.match(response.headers.get("x-robots-tag") ?? "", /noindex/);
    assert.equal(response.headers.get("set-cookie"), null);
    const html = await response.text();
    assert.ok(!/<script|https?:\/\//.test(html), "the page loads nothing");
    // Every page of these tests: with lists, without, of a confirmation, refusals and results.
    assertAccessible(html);
    return html;
  };

  describe("/u/{token}", () => {
    const linkTo = (mail: MailedLetter) => unsubscribeUrl(team.vault, origin, mail);
    const unsubscribesOf = async ({ email }: MailedLetter): Promise<Json[]> =>
      (await client().get("/unsubscribes", { query: { email } })).body.data;
    const statusesOf = async ({ subscriberId }: MailedLetter): Promise<string[]> =>
      (await client().get(`/subscribers/${subscriberId}`)).body.data.subscriptions.map(({ status }: Json) => status);

    it("shows a button and changes nothing, even when it is opened several times", async () => {
      const mail = await mailLetter(team);
      const before = await snapshotTables(team.em, team.team.id);
      for (let i = 0; i < 3; i++) {
        const html = await assertPage(await fetch(linkTo(mail)), 200);
        assert.match(
          html,
          /<form method="post"><button name="scope" value="lists" class="main">Unsubscribe from One, Two<\/button>/,
        );
        assert.ok(
          html.includes(`<button name="scope" value="all">Unsubscribe from all emails from ${team.team.name}</button>`),
        );
        assert.ok(
          !html.includes(mail.email),
          "the page does not show the address, because anyone with the link can open it",
        );
      }
      for (const method of ["HEAD", "OPTIONS", "PUT", "DELETE"]) await fetch(linkTo(mail), { method });
      for (const headers of [
        { "sec-purpose": "prefetch" },
        { purpose: "prefetch" },
        { "user-agent": "LinkScanner/1.0" },
      ]) {
        await assertPage(await fetch(`${linkTo(mail)}?scope=all&List-Unsubscribe=One-Click`, { headers }), 200);
      }
      assert.deepEqual(await snapshotTables(team.em, team.team.id), before);
    });

    it("promises nothing where the recipient was erased: the person may have come back since", async () => {
      const mail = await mailLetter(team);
      await kysely(team.em)
        .updateTable("send_recipients")
        .set({ email: makePlaceholder() })
        .where("send_id", "=", mail.sendId)
        .execute();
      for (const answer of [await fetch(linkTo(mail)), await post(linkTo(mail), "List-Unsubscribe=One-Click")]) {
        const html = await assertPage(answer, 200);
        assert.ok(html.includes(`If you receive newer emails from ${team.team.name}, please use the link in those.`));
        assert.ok(!/<form|no longer receive/.test(html));
      }
    });

    it("carries no address in its URL", async () => {
      const mail = await mailLetter(team);
      assert.match(new URL(linkTo(mail)).pathname, /^\/u\/[0-9a-z]{26}\.[0-9a-z]+\.[\w-]{22}$/);
    });

    it("opts out of every targeted list, suppresses the address and records one unsubscribe", async () => {
      const mail = await mailLetter(team);
      await assertPage(await post(linkTo(mail)), 200);
      assert.deepEqual(await statusesOf(mail), ["UNSUBSCRIBED", "UNSUBSCRIBED"]);
      const suppression = await client().get(`/suppressions/${encodeURIComponent(mail.email)}`);
      assert.equal(suppression.body.data.reason, "UNSUBSCRIBED");
      const [row, ...more] = await unsubscribesOf(mail);
      assert.deepEqual(more, []);
      assert.equal(row.campaign_id, mail.newsletterId);
      assert.equal(row.source, "link");
      assert.equal(row.reason, "UNSUBSCRIBED");
    });

    const suppressionOf = ({ email }: Pick<MailedLetter, "email">) =>
      client().get(`/suppressions/${encodeURIComponent(email)}`);

    it("opts out of the lists alone at that choice, and of all mail at the other", async () => {
      const mail = await mailLetter(team);
      const other = (await client().post("/lists", { name: "Other" })).body.data.id;
      await client().post(`/lists/${other}/subscribers`, { subscriber_ids: [mail.subscriberId] });
      const html = await assertPage(await post(linkTo(mail), "scope=lists"), 200);
      assert.ok(html.includes(`You will no longer receive One, Two from ${team.team.name}`));
      assert.deepEqual((await statusesOf(mail)).sort(), ["CONFIRMED", "UNSUBSCRIBED", "UNSUBSCRIBED"]);
      assert.equal((await suppressionOf(mail)).status, 404);
      const halfway = await assertPage(await fetch(linkTo(mail)), 200);
      assert.match(
        halfway,
        /You are already unsubscribed[\s\S]*One, Two[\s\S]*<form method="post"><button name="scope" value="all" class="main">/,
      );
      assert.equal((await post(linkTo(mail), "scope=lists")).status, 200);
      assert.equal((await suppressionOf(mail)).status, 404, "a repetition is no wider");
      const [row] = await unsubscribesOf(mail);
      assert.deepEqual([row.source, row.campaign_id], ["link", mail.newsletterId]);
      assert.equal((await post(linkTo(mail), "scope=all")).status, 200);
      const { id, reason } = (await suppressionOf(mail)).body.data;
      assert.equal(reason, "UNSUBSCRIBED");
      assert.equal((await unsubscribesOf(mail)).length, 2, "the wider opt-out has a record of its own");
      const done = await assertPage(await fetch(linkTo(mail)), 200);
      assert.match(done, /You are already unsubscribed[\s\S]*One, Two/);
      assert.ok(!done.includes('value="all"'));
      await api(team.keys.cleanup).delete(`/suppressions/${id}`);
      assert.match(await assertPage(await fetch(linkTo(mail)), 200), /value="all"/);
      for (let n = 0; n < 2; n++) assert.equal((await post(linkTo(mail), "scope=all")).status, 200);
      assert.equal((await unsubscribesOf(mail)).length, 3);
    });

    it("is of all mail where no list can keep it", async () => {
      const [gone, listless] = [await mailLetter(team), await mailLetter(team)];
      await team.em.fork().execute("delete from subscribers where id = ?", [gone.subscriberId]);
      for (const id of listless.listIds) await client().delete(`/lists/${id}`);
      for (const mail of [gone, listless]) {
        const html = await assertPage(await fetch(linkTo(mail)), 200);
        assert.match(html, /<form method="post"><button class="main">Unsubscribe<\/button><\/form>/);
        assert.equal((await post(linkTo(mail), "scope=lists")).status, 200);
        assert.equal((await suppressionOf(mail)).body.data.reason, "UNSUBSCRIBED");
        assert.equal((await unsubscribesOf(mail)).length, 1);
      }
    });

    it("takes an opt-out back by its button, which a mail program cannot press", async () => {
      const mail = await mailLetter(team);
      const undo = '<button name="scope" value="undo">I unsubscribed by mistake</button>';
      assert.ok(!(await assertPage(await post(linkTo(mail), `${ONE_CLICK}&scope=undo`), 200)).includes(undo));
      assert.equal((await suppressionOf(mail)).status, 200);
      for (const answer of [await fetch(linkTo(mail)), await post(linkTo(mail))]) {
        assert.ok((await assertPage(answer, 200)).includes(undo));
      }
      for (let n = 0; n < 2; n++) {
        assert.match(await assertPage(await post(linkTo(mail), "scope=undo"), 200), /Welcome back[\s\S]*as before/);
      }
      assert.deepEqual(await statusesOf(mail), ["CONFIRMED", "CONFIRMED"]);
      assert.equal((await suppressionOf(mail)).status, 404);
      assert.match(await assertPage(await fetch(linkTo(mail)), 200), /value="lists"[\s\S]*value="all"/);
      await post(linkTo(mail));
      await client().post("/suppressions", { emails: [mail.email] });
      const kept = await assertPage(await post(linkTo(mail), "scope=undo"), 200);
      assert.match(kept, /cannot be undone here[\s\S]*do-not-mail list/);
      assert.doesNotMatch(kept, /sign up again/);
      await team.em.fork().execute("update unsubscribes set unsubscribed_at = unsubscribed_at - interval '61 minutes'");
      assert.ok(!(await assertPage(await fetch(linkTo(mail)), 200)).includes(undo));
      assert.match(await assertPage(await post(linkTo(mail), "scope=undo"), 200), /sign up again/);
    });

    for (const [what, body] of [
      ["as a form", ONE_CLICK],
      ["as multipart", Object.assign(new FormData(), {})],
    ] as const) {
      it(`accepts a mail program's one-click request sent ${what} (RFC 8058)`, async () => {
        if (body instanceof FormData) body.set("List-Unsubscribe", "One-Click");
        const mail = await mailLetter(team);
        assert.equal((await post(linkTo(mail), body)).status, 200);
        assert.deepEqual(
          (await unsubscribesOf(mail)).map(({ source }) => source),
          ["one_click"],
        );
      });
    }

    it("is idempotent, also for several requests at once", async () => {
      const mail = await mailLetter(team);
      const answers = await Promise.all(
        Array.from({ length: 6 }, (_, i) => post(linkTo(mail), i % 2 ? ONE_CLICK : undefined)),
      );
      assert.deepEqual(
        answers.map(({ status }) => status),
        [200, 200, 200, 200, 200, 200],
      );
      const before = await snapshotTables(team.em, team.team.id);
      assert.equal((await post(linkTo(mail), ONE_CLICK)).status, 200);
      assert.deepEqual(await snapshotTables(team.em, team.team.id), before);
      assert.equal((await unsubscribesOf(mail)).length, 1);
    });

    it("answers a repetition without a lock", async () => {
      const mail = await mailLetter(team);
      assert.equal((await post(linkTo(mail), ONE_CLICK)).status, 200);
      const holder = team.em.fork();
      await holder.begin();
      try {
        await holder.execute("select from subscriptions where team_id = ? for update", [team.team.id]);
        assert.equal((await post(linkTo(mail), ONE_CLICK)).status, 200);
      } finally {
        await holder.rollback();
      }
    });

    it("keeps the reason of an existing suppression", async () => {
      const mail = await mailLetter(team);
      await suppress(team.em, { teamId: team.team.id, environment: "LIVE" }, [mail.email], "bounce:complaint");
      await post(linkTo(mail));
      const { body } = await client().get(`/suppressions/${encodeURIComponent(mail.email)}`);
      assert.equal(body.data.reason, "bounce:complaint");
    });

    describe("when the person who was mailed has another address", () => {
      const isSuppressed = async (...emails: string[]) =>
        (await Promise.all(emails.map((email) => suppressionOf({ email })))).map(({ status }) => status === 200);
      const moveTo = async (mail: MailedLetter, email: string) => {
        assert.equal((await client().patch(`/subscribers/${mail.subscriberId}`, { email })).status, 200);
        return email;
      };

      for (const body of [undefined, ONE_CLICK]) {
        it(`suppresses both by ${body ? "one click" : "the page"}, and opts out of the lists`, async () => {
          const mail = await mailLetter(team);
          const email = await moveTo(mail, uniqueEmail().replace("@", "@MÜNCHEN."));
          assert.equal((await post(linkTo(mail), body)).status, 200);
          assert.deepEqual(await isSuppressed(mail.email, email), [true, true]);
          assert.deepEqual(await statusesOf(mail), ["UNSUBSCRIBED", "UNSUBSCRIBED"]);
          assert.equal((await unsubscribesOf(mail)).length, 1);
          const before = await snapshotTables(team.em, team.team.id);
          assert.match(await assertPage(await fetch(linkTo(mail)), 200), /You are already unsubscribed/);
          assert.equal((await post(linkTo(mail), body)).status, 200);
          assert.deepEqual(await snapshotTables(team.em, team.team.id), before);
        });
      }

      it("suppresses the new one too by a click after the change, also when the other was suppressed by then", async () => {
        const mail = await mailLetter(team);
        assert.equal((await post(linkTo(mail))).status, 200);
        const email = await moveTo(mail, uniqueEmail());
        assert.match(await assertPage(await fetch(linkTo(mail)), 200), /value="all"/);
        assert.equal((await post(linkTo(mail))).status, 200);
        assert.deepEqual(await isSuppressed(mail.email, email), [true, true]);
      });

      it("leaves both mailable where the person leaves the lists alone", async () => {
        const mail = await mailLetter(team);
        const email = await moveTo(mail, uniqueEmail());
        assert.equal((await post(linkTo(mail), "scope=lists")).status, 200);
        assert.deepEqual(await isSuppressed(mail.email, email), [false, false]);
        assert.deepEqual(await statusesOf(mail), ["UNSUBSCRIBED", "UNSUBSCRIBED"]);
      });

      it("suppresses both of a contact, and no one else's by the same id or address", async () => {
        const other = await makeTeam();
        const [former, email] = [uniqueEmail(), uniqueEmail()];
        await api(other.keys.live).post("/contacts", { email });
        await api(team.keys.test).post("/contacts", { email });
        const { id } = (await client().post("/contacts", { email: former })).body.data;
        const { id: campaign } = (await client().post("/campaigns", { name: "Offer" })).body.data;
        const sendId = await recordSend(team.em, { teamId: team.team.id, environment: "LIVE" }, campaign, 1);
        await team.em.fork().execute("update sends set resource_type = 'campaign' where id = ?", [sendId]);
        const mailed = { send_id: sendId, seq: 1, member_id: id, email: former, state: "SENT" } as const;
        await kysely(team.em).insertInto("send_recipients").values(mailed).execute();
        await client().patch(`/contacts/${id}`, { email });
        await transaction(team.em, (em) => unsubscribe(em, team.vault, { sendId, seq: 1 }, "mailto", "lists"));
        assert.deepEqual(await isSuppressed(former, email), [true, true]);
        for (const key of [other.keys.live, team.keys.test]) {
          assert.deepEqual((await api(key).get("/suppressions")).body.data, []);
        }
      });
    });

    it("opts out the next subscriber with the address that was mailed, whenever that one joins", async () => {
      const next = async ({ email }: MailedLetter) => (await client().post("/subscribers", { email })).body.data.id;
      const add = async ({ listIds: [, list] }: MailedLetter, id: string) =>
        (await client().post(`/lists/${list}/subscribers`, { subscriber_ids: [id] })).body.data;
      for (const [made, joined] of [
        [false, false],
        [true, false],
        [true, true],
      ]) {
        const mail = await mailLetter(team);
        await client().patch(`/subscribers/${mail.subscriberId}`, { email: uniqueEmail() });
        const early = made ? await next(mail) : "";
        if (joined) assert.deepEqual((await add(mail, early)).added, [early]);
        for (let n = 0; n < 2; n++) await assertPage(await post(linkTo(mail), "scope=lists"), 200);
        const subscriberId = early || (await next(mail));
        assert.deepEqual((await add(mail, subscriberId)).opted_out, [subscriberId]);
        const isOut = async () =>
          assert.deepEqual(await statusesOf({ ...mail, subscriberId }), ["UNSUBSCRIBED", "UNSUBSCRIBED"]);
        await isOut();
        // As by a confirmation of that person.
        const confirmed = "update subscriptions set status = 'CONFIRMED' where subscriber_id = ?";
        await team.em.fork().execute(confirmed, [subscriberId]);
        await assertPage(await post(linkTo(mail), "scope=lists"), 200);
        await isOut();
      }
    });

    it("keeps the opt-out of the list that brought the mail when the subscriber left it meanwhile", async () => {
      const mail = await mailLetter(team);
      const [first = "", second = ""] = mail.listIds;
      for (const id of mail.listIds) await client().delete(`/lists/${id}/subscribers/${mail.subscriberId}`);
      await post(linkTo(mail));
      const add = async (id: string) =>
        (await client().post(`/lists/${id}/subscribers`, { subscriber_ids: [mail.subscriberId] })).body.data;
      assert.deepEqual((await add(first)).opted_out, [mail.subscriberId]);
      assert.deepEqual((await add(second)).added, [mail.subscriberId]);
    });

    it("answers a link with a wrong token with a 404 page, and changes nothing", async () => {
      const mail = await mailLetter(team);
      const good = new URL(linkTo(mail)).pathname.slice(3);
      const [send = "", seq = "", signature = ""] = good.split(".");
      const unsent = unsubscribeUrl(team.vault, origin, { sendId: mail.sendId, seq: 8 });
      const before = await snapshotTables(team.em, team.team.id);
      for (const token of [
        "x",
        `${send}.${seq}`,
        `${send}.8.${signature}`,
        `${send}.${seq}.${signature.slice(0, -1)}`,
        `${good}.x`,
        `${send}.${seq}.${signature.split("").reverse().join("")}`,
        "%00",
        "%E0%A4%A",
        new URL(unsent).pathname.slice(3),
      ]) {
        for (const method of ["GET", "POST"]) {
          await assertPage(await fetch(`${origin}/u/${token}`, { method }), 404);
        }
      }
      assert.deepEqual(await snapshotTables(team.em, team.team.id), before);
    });

    it("takes no compressed form: a small one could inflate to a large one", async () => {
      const mail = await mailLetter(team);
      const before = await snapshotTables(team.em, team.team.id);
      const answer = await fetch(linkTo(mail), {
        method: "POST",
        body: gzipSync("List-Unsubscribe=One-Click"),
        headers: { "content-encoding": "gzip", "content-type": "application/x-www-form-urlencoded" },
      });
      await assertPage(answer, 415);
      assert.deepEqual(await snapshotTables(team.em, team.team.id), before);
    });

    it("refuses an oversized form", async () => {
      const mail = await mailLetter(team);
      await assertPage(await post(linkTo(mail), "x".repeat(20_000)), 413);
    });

    it("shows markup in a team's name as text", async () => {
      const other = await makeTeam();
      await other.em.fork().execute("update teams set name = ? where id = ?", [`<img src=x> & "Co"`, other.team.id]);
      const html = await assertPage(await fetch(linkTo(await mailLetter(other))), 200);
      assert.ok(html.includes("&lt;img src=x&gt; &amp; &#34;Co&#34;"));
    });
  });

  describe("/c/{token}", () => {
    const pending = async () => {
      const email = uniqueEmail();
      const subscriberId: string = (await client().post("/subscribers", { email })).body.data.id;
      const list = (await client().post("/lists", { name: "Weekly <b>", optin: "DOUBLE" })).body.data;
      await client().post(`/lists/${list.id}/subscribers`, { subscriber_ids: [subscriberId] });
      const url = confirmUrl(team.vault, origin, { listId: list.id, subscriberId, email });
      const status = async (): Promise<string> =>
        (await client().get(`/subscribers/${subscriberId}`)).body.data.subscriptions[0].status;
      return { email, subscriberId, listId: list.id as string, url, status };
    };

    it("confirms by its button and changes nothing when opened", async () => {
      const { url, status } = await pending();
      const html = await assertPage(await fetch(url), 200);
      assert.ok(html.includes("Weekly &lt;b&gt;"));
      assert.equal(await status(), "PENDING");
      await assertPage(await post(url), 200);
      assert.equal(await status(), "CONFIRMED");
      const before = await snapshotTables(team.em, team.team.id);
      await assertPage(await post(url), 200);
      const used = await assertPage(await fetch(url), 200);
      assert.match(used, /You are already subscribed[\s\S]*Weekly &lt;b&gt;/);
      assert.ok(!used.includes("<form"));
      assert.deepEqual(await snapshotTables(team.em, team.team.id), before);
    });

    it("does not lift a later opt-out", async () => {
      const { url, subscriberId, status } = await pending();
      await team.em
        .fork()
        .execute("update subscriptions set status = 'UNSUBSCRIBED' where subscriber_id = ?", [subscriberId]);
      for (const answer of [await fetch(url), await post(url)])
        assert.match(await assertPage(answer, 404), /sign up again/);
      assert.equal(await status(), "UNSUBSCRIBED");
    });

    it("does not confirm an address other than the one it was sent to", async () => {
      const { url, subscriberId, status } = await pending();
      await client().patch(`/subscribers/${subscriberId}`, { email: uniqueEmail() });
      await assertPage(await fetch(url), 404);
      await assertPage(await post(url), 404);
      assert.equal(await status(), "PENDING");
    });

    it("answers a link with a wrong token with a 404 page", async () => {
      const { url } = await pending();
      for (const link of [`${origin}/c/x`, `${origin}/c/a.b.c.d`, url.slice(0, -1), `${url}.x`]) {
        await assertPage(await fetch(link), 404);
        await assertPage(await post(link), 404);
      }
    });
  });
});

import assert from "node:assert/strict";
import { sql } from "kysely";
import type { UnsubscribeSource } from "../../db/entities/audience.ts";
import { type EntityManager, forTenant, kysely } from "../../db/orm.ts";
import { transaction } from "../../db/transaction.ts";
import { confirmSubscription } from "../../domain/audience/confirmations.ts";
import { suppress } from "../../domain/audience/suppressions.ts";
import { undoUnsubscribe } from "../../domain/audience/undo.ts";
import { type UnsubscribeScope, unsubscribe } from "../../domain/audience/unsubscribes.ts";
import { confirmUrl, readConfirmationToken } from "../../domain/mail/links.ts";
import { api } from "../support/api.ts";
import { makeTeam, type TestTeam, tenantOf, uniqueEmail } from "../support/factories.ts";
import { untilBlocked } from "../support/sending.ts";
import { emitted, listen } from "../webhooks/outbox.ts";
import { type MailedLetter, mailLetter } from "./ledger.ts";

describe("An opt-out that was a mistake", () => {
  let team: TestTeam;
  let mail: MailedLetter;
  before(async () => {
    team = await makeTeam();
    await listen(team);
  });
  beforeEach(async () => {
    mail = await mailLetter(team);
  });

  const em = () => team.em.fork();
  const leave = (scope: UnsubscribeScope = "all", source: UnsubscribeSource = "link") =>
    transaction(em(), (tx) => unsubscribe(tx, team.vault, mail, source, scope));
  const undo = async () => {
    const undone = await transaction(em(), (tx) => undoUnsubscribe(tx, team.vault, mail));
    return [undone?.outcome, undone?.asked];
  };
  /** Of the two lists, and the reasons of the suppressions of the addresses. */
  async function state(...emails: string[]) {
    const { rows } = await sql<{ status: string }>`
      select coalesce(s.status, 'none') as status from unnest(${mail.listIds}::text[]) with ordinality l (id, n)
      left join subscriptions s on s.list_id = l.id and s.subscriber_id = ${mail.subscriberId} order by l.n`.execute(
      kysely(em()),
    );
    const suppressed = await kysely(em())
      .selectFrom("suppressions")
      .select("reason")
      .where("team_id", "=", team.team.id)
      .where("email", "in", [mail.email, ...emails])
      .execute();
    return [...rows.map(({ status }) => status), ...suppressed.map(({ reason }) => reason)];
  }
  const OUT = ["UNSUBSCRIBED", "UNSUBSCRIBED", "UNSUBSCRIBED"];
  const pass = (minutes: number) =>
    em().execute(`update unsubscribes set unsubscribed_at = unsubscribed_at - interval '${minutes} minutes'
      where email = '${mail.email}'`);
  const complain = (tx: EntityManager) => suppress(tx, tenantOf(team), [mail.email], "bounce:complaint");
  const makeDouble = () => em().execute("update lists set optin = 'DOUBLE' where id = ?", [mail.listIds[0]]);

  for (const [scope, events] of [
    ["lists", ["subscription.confirmed", "subscription.confirmed"]],
    ["all", ["subscription.confirmed", "subscription.confirmed", "suppression.removed"]],
  ] as const) {
    it(`is taken back as a whole, once, and its record stays: of ${scope}`, async () => {
      await leave(scope);
      const since = emitted(team);
      await since();
      for (let n = 0; n < 2; n++) assert.deepEqual(await undo(), ["back", []]);
      assert.deepEqual(await state(), ["CONFIRMED", "CONFIRMED"]);
      assert.deepEqual((await since()).map(({ type }) => type).sort(), events);
      const records = async () =>
        (await api(team.keys.live).get("/unsubscribes", { query: { email: mail.email } })).body.data.length;
      assert.equal(await records(), 1);
      await leave();
      assert.deepEqual([await state(), await records()], [OUT, 2], "another opt-out holds");
    });
  }

  it("is taken back for an hour, when the link made it, and no report came", async () => {
    await leave();
    await em().execute(`insert into mail_reports (send_id, seq, kind, team_id, environment)
      values ('${mail.sendId}', ${mail.seq}, 'complaint', '${team.team.id}', 'LIVE')`);
    assert.deepEqual([await undo(), await state()], [["none", []], OUT]);
    await em().execute("delete from mail_reports where send_id = ?", [mail.sendId]);
    await pass(61);
    assert.deepEqual([await undo(), await state()], [["none", []], OUT]);

    mail = await mailLetter(team);
    await leave("all", "mailto");
    assert.deepEqual([await undo(), await state()], [["none", []], OUT]);
  });

  it("leaves an opt-out from before", async () => {
    const path = `/lists/${mail.listIds[0]}/subscribers/${mail.subscriberId}`;
    await api(team.keys.live).patch(path, { status: "UNSUBSCRIBED" });
    await leave();
    assert.deepEqual(await undo(), ["back", []]);
    assert.deepEqual(await state(), ["UNSUBSCRIBED", "CONFIRMED"]);
  });

  it("takes nothing back where there is another suppression of any reason, from before the opt-out", async () => {
    for (const reason of ["MANUAL", "UNSUBSCRIBED", "bounce:hard", "bounce:complaint"] as const) {
      mail = await mailLetter(team);
      await transaction(forTenant(em(), tenantOf(team)), (tx) => suppress(tx, tenantOf(team), [mail.email], reason));
      await leave();
      assert.deepEqual(
        [await undo(), await state()],
        [
          ["suppressed", []],
          ["UNSUBSCRIBED", "UNSUBSCRIBED", reason],
        ],
      );
    }
  });

  it("takes nothing back once there is another reason, and a client sees no change of the suppression", async () => {
    const path = () => `/suppressions/${mail.email}`;
    for (const reason of ["MANUAL", "bounce:hard", "bounce:soft", "bounce:complaint"] as const) {
      mail = await mailLetter(team);
      await leave();
      const since = emitted(team);
      await since();
      const before = await api(team.keys.live).get(path());
      if (reason === "MANUAL") {
        const { data } = (await api(team.keys.live).post("/suppressions", { emails: [mail.email] })).body;
        assert.deepEqual(data.already_suppressed, [mail.email]);
      } else await suppress(em(), tenantOf(team), [mail.email], reason);
      assert.deepEqual([(await undo())[0], await state()], ["suppressed", OUT], reason);
      assert.deepEqual((await api(team.keys.live).get(path())).body.data, before.body.data);
      assert.deepEqual(await since(), [], reason);
    }
  });

  it("leaves the address suppressed, whether a complaint or the undo comes first", async () => {
    await leave();
    const during = async (
      first: (tx: EntityManager) => Promise<unknown>,
      statement: string,
      second: () => Promise<unknown>,
    ) => {
      const { waiting } = await transaction(em(), async (tx) => {
        await first(tx);
        const waiting = second();
        await untilBlocked(team, statement);
        // In a box: the transaction must not wait for it.
        return { waiting };
      });
      return waiting;
    };
    assert.deepEqual(await during(complain, "%from suppressions s%for update%", undo), ["suppressed", []]);
    assert.deepEqual(await state(), OUT);

    mail = await mailLetter(team);
    await leave();
    const takeBack = (tx: EntityManager) => undoUnsubscribe(tx, team.vault, mail);
    await during(takeBack, "%insert into suppressions%", () => transaction(em(), complain));
    assert.equal((await state()).at(-1), "bounce:complaint");
  });

  it("asks by mail on a list with double opt-in, once, and the rest is back at once", async () => {
    await makeDouble();
    await leave();
    for (let n = 0; n < 2; n++) assert.deepEqual(await undo(), ["back", ["One"]]);
    assert.deepEqual(await state(), ["UNSUBSCRIBED", "CONFIRMED"]);
    const [subscription] = await kysely(em())
      .selectFrom("subscriptions")
      .select([
        "list_id as listId",
        sql<string>`(extract(epoch from signed_up_again_at) * 1000)::bigint::text`.as("signUp"),
      ])
      .where("subscriber_id", "=", mail.subscriberId)
      .where("signed_up_again_at", "is not", null)
      .execute();
    assert.equal(subscription?.listId, mail.listIds[0]);
    const url = confirmUrl(team.vault, "", {
      ...mail,
      ...subscription,
      email: mail.email,
      listId: mail.listIds[0] ?? "",
    });
    const token = readConfirmationToken(team.vault, url.slice("/c/".length)) ?? assert.fail();
    await transaction(em(), (tx) => confirmSubscription(tx, team.vault, token));
    assert.deepEqual(await state(), ["CONFIRMED", "CONFIRMED"]);
  });

  it("asks by mail where the person had not confirmed yet", async () => {
    await em().execute("update subscriptions set status = 'PENDING', confirmed_at = null where list_id = ?", [
      mail.listIds[1],
    ]);
    await leave("lists");
    assert.deepEqual(
      [await undo(), await state()],
      [
        ["back", ["Two"]],
        ["CONFIRMED", "UNSUBSCRIBED"],
      ],
    );
  });

  it("puts no person on a list that they had left before", async () => {
    for (const id of mail.listIds) await api(team.keys.live).delete(`/lists/${id}/subscribers/${mail.subscriberId}`);
    await leave();
    assert.deepEqual(await state(), ["UNSUBSCRIBED", "none", "UNSUBSCRIBED"]);
    assert.deepEqual(
      [await undo(), await state()],
      [
        ["back", []],
        ["none", "none"],
      ],
    );
  });

  it("is taken back for the present address of the person, and what was kept for the former one", async () => {
    const email = uniqueEmail();
    await api(team.keys.live).patch(`/subscribers/${mail.subscriberId}`, { email });
    await leave();
    assert.deepEqual(await state(email), [...OUT, "UNSUBSCRIBED"]);
    assert.deepEqual(
      [await undo(), await state(email)],
      [
        ["back", []],
        ["CONFIRMED", "CONFIRMED"],
      ],
    );
    const { data } = (await api(team.keys.live).post("/subscribers", { email: mail.email })).body;
    const added = await api(team.keys.live).post(`/lists/${mail.listIds[0]}/subscribers`, {
      subscriber_ids: [data.id],
    });
    assert.deepEqual(added.body.data.added, [data.id]);
  });
});

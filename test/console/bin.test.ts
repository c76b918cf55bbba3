import assert from "node:assert/strict";
import { sql } from "kysely";
import { BIN_DAYS, type BinnedKind } from "../../db/entities/bin.ts";
import { type EntityManager, kysely } from "../../db/orm.ts";
import { transaction } from "../../db/transaction.ts";
import { confirmSubscription } from "../../domain/audience/confirmations.ts";
import { deleteList } from "../../domain/audience/lists.ts";
import { undoUnsubscribe } from "../../domain/audience/undo.ts";
import { type UnsubscribeScope, unsubscribe } from "../../domain/audience/unsubscribes.ts";
import { MOST_BINNED } from "../../domain/bin/bin.ts";
import { restoreRecord } from "../../domain/bin/restore.ts";
import { erasePerson } from "../../domain/erasure/erase.ts";
import { confirmUrl, readConfirmationToken } from "../../domain/mail/links.ts";
import { readRunning } from "../../domain/sequences/state.ts";
import { type MailedLetter, mailLetter } from "../public/ledger.ts";
import { api } from "../support/api.ts";
import { clientAs, clientNamed, refusalCodeOf } from "../support/console.ts";
import { execute, makeTeam, type TestTeam, tenantOf, unique, uniqueEmail } from "../support/factories.ts";
import { makeForm } from "../support/forms.ts";
import { prune } from "../support/retention.ts";
import { anotherNewsletter, makeCampaignSender, makeSender, type Sender, untilBlocked } from "../support/sending.ts";
import { addPerson, makeSequence, stateOf } from "../support/sequences.ts";
import { emitted, listen } from "../webhooks/outbox.ts";

const LIMITS = { MAX_LISTS: 1_000, MAX_NEWSLETTERS: 1_000, MAX_CAMPAIGNS: 1_000 };

type Client = Awaited<ReturnType<typeof clientAs>>;

const restore = async (client: Client, id: string) =>
  (await client.app.bin.restore.mutate({ params: { recordId: id } })).data;
const pageOf = async (client: Client) => (await client.app.bin.page.query({ query: {} })).data.records;

/** Columns that a restore changes, and tables that hold no part of a record. */
const CHANGED = ["updated_at", "updated_by", "address_version"];
const OTHERS = /^(audit_entries|bin|webhook_|idempotency|request_counts|audience_|contact_slot)/;

/** All rows that hold an id, with their tables. */
async function rowsWith(id: string): Promise<string[]> {
  const tables = await execute<{ name: string }>(
    "select table_name as name from information_schema.tables where table_schema = 'public' and table_type = 'BASE TABLE'",
  );
  const found = tables.flatMap(({ name }) =>
    OTHERS.test(name)
      ? []
      : [
          `select '${name} ' || (to_jsonb(t) - '{${CHANGED}}'::text[])::text as row from "${name}" t where t::text like '%${id}%'`,
        ],
  );
  return (await execute<{ row: string }>(`${found.join(" union all ")} order by 1`)).map(({ row }) => row);
}

describe("The bin", () => {
  it("restores each kind whole, under its id and once, and says who deleted it; to the API it is gone", async () => {
    const [letter, campaign] = [await makeSender({ recipients: 2 }), await makeCampaignSender({ recipients: 1 })];
    const drafts = { newsletter: letter, campaign };
    const made: [BinnedKind, string, string | null, Client][] = [];
    for (const [type, sender] of Object.entries(drafts)) {
      const client = await clientNamed(sender, "Ada", "EDITOR");
      const one = {
        type: type as "newsletter",
        id: "newsletterId" in sender ? sender.newsletterId : sender.campaignId,
      };
      for (const content of [[], [{ type: "divider" }]])
        await client.app.content.saveBlocks.mutate({
          body: { ...one, preheader: "In short", blocks: { type: "doc", content } },
        });
      const template = (await client.app.templates.save.mutate({ body: { ...one, name: "Kept" } })).data.id;
      const sequence = await makeSequence(sender, { isStarted: false });
      made.push([one.type, one.id, `/${type}s/${one.id}`, client], ["template", template, null, client]);
      made.push(["sequence", sequence, `/campaigns/${sequence}`, client]);
      if ("segmentId" in sender) made.push(["segment", sender.segmentId, null, client]);
    }
    const [list] = [await makeForm(letter)];
    const client = made[0]?.[3] ?? assert.fail();
    await addPerson({ ...letter, listId: list.listId });
    await execute(
      "insert into form_days (team_id, environment, form_id, day, shown) values (?, 'LIVE', ?, '2026-11-01', 7)",
      letter.team.id,
      list.id,
    );
    await execute("insert into newsletter_lists values (?, ?)", letter.newsletterId, list.listId);
    made.push(["form", list.id, `/forms/${list.id}`, client], ["list", list.listId, `/lists/${list.listId}`, client]);

    const remove: Record<BinnedKind, (client: Client, id: string) => Promise<unknown>> = {
      newsletter: ({ api }, id) => api.newsletters.drafts.remove.mutate({ params: { newsletterId: id } }),
      campaign: ({ api }, id) => api.campaigns.drafts.remove.mutate({ params: { campaignId: id } }),
      sequence: ({ app }, id) => app.sequences.remove.mutate({ params: { sequenceId: id } }),
      template: ({ app }, id) => app.templates.remove.mutate({ params: { templateId: id } }),
      list: ({ api }, id) => api.lists.remove.mutate({ params: { listId: id } }),
      segment: ({ app }, id) => app.audience.deleteSegment.mutate({ params: { segmentId: id } }),
      form: ({ app }, id) => app.forms.remove.mutate({ params: { formId: id } }),
    };
    for (const [kind, id, path, client] of made) {
      const before = await rowsWith(id);
      await remove[kind](client, id);
      // The texts of a form, and a segment for campaigns that were scheduled, stay.
      if (kind !== "segment" && kind !== "form") assert.deepEqual(await rowsWith(id), [], kind);
      const key = api(kind === "campaign" || client === made[3]?.[3] ? campaign.keys.live : letter.keys.live);
      if (path) assert.equal((await key.get(path)).status, 404, path);
      const [shown] = await pageOf(client);
      assert.deepEqual([shown?.id, shown?.kind, shown?.deleted_by], [id, kind, "Ada"]);
      assert.equal(Date.parse(shown?.until ?? "") - Date.parse(shown?.deleted_at ?? ""), BIN_DAYS * 86_400_000);
      const both = await Promise.all([1, 2].map(() => refusalCodeOf(restore(client, id))));
      assert.deepEqual(both.sort(), ["answered", "not_found"], kind);
      assert.deepEqual(await rowsWith(id), before, kind);
      assert.deepEqual(await pageOf(client), []);
    }
    assert.deepEqual(await execute("select from bin_rows where team_id = ?", letter.team.id), []);
  });

  it("says what is gone, refuses a form without its list, and a record beyond the limit", async () => {
    const sender = await makeSender({ recipients: 0 });
    const client = await clientAs(sender, "EDITOR");
    const { newsletterId, listId } = sender;
    const form = await makeForm(sender);
    await sender.client.delete(`/newsletters/${newsletterId}`);
    await sender.client.delete(`/lists/${listId}`);
    assert.deepEqual(
      (await pageOf(client)).map(({ deleted_by }) => deleted_by),
      [null, null],
    );
    assert.deepEqual((await restore(client, newsletterId)).gone, ["list “Readers”"]);
    assert.deepEqual((await restore(client, listId)).gone, []);

    const another = await anotherNewsletter(sender);
    await sender.client.delete(`/lists/${listId}`);
    await sender.client.delete(`/newsletters/${another.newsletterId}`);
    assert.deepEqual((await restore(client, listId)).gone, ["newsletter “Another”"]);

    await client.app.forms.remove.mutate({ params: { formId: form.id } });
    await sender.client.delete(`/lists/${form.listId}`);
    await assert.rejects(restore(client, form.id), /list “Readers” of this form was deleted/);
    await restore(client, form.listId);
    await restore(client, form.id);

    const campaign = await makeCampaignSender({ recipients: 0 });
    const editor = await clientAs(campaign, "EDITOR");
    await campaign.client.delete(`/campaigns/${campaign.campaignId}`);
    await editor.app.audience.deleteSegment.mutate({ params: { segmentId: campaign.segmentId } });
    await execute("delete from email_accounts where id = ?", campaign.accountId);
    const { gone } = await restore(editor, campaign.campaignId);
    assert.deepEqual(gone, ["segment “Segment”", `account ${campaign.accountId}`]);
    assert.deepEqual((await restore(editor, campaign.segmentId)).gone, []);

    const template = { type: "newsletter", id: newsletterId, name: "T" } as const;
    const { id } = (await client.app.templates.save.mutate({ body: template })).data;
    await client.app.templates.remove.mutate({ params: { templateId: id } });
    await execute(
      "insert into templates (id, team_id, environment, name) select 'tpl_' || ? || n, ?, 'LIVE', 'T' from generate_series(1, 500) n",
      unique("many"),
      sender.team.id,
    );
    assert.equal(await refusalCodeOf(restore(client, id)), "resource_limit_reached");
    await execute("delete from templates where team_id = ?", sender.team.id);
    await restore(client, id);
  });

  it("keeps a list's people in its sequence while they wait for it", async () => {
    const sender = await makeSender({ recipients: 0 });
    const id = await makeSequence(sender);
    await addPerson(sender);
    const sweep = async () => {
      for await (const page of readRunning(sender.em.fork())) {
        const found = page.find((one) => one.id === id);
        if (found) return found.sweep;
      }
      return undefined;
    };
    await execute("update sequences set swept_all_at = null where campaign_id = ?", id);
    await sender.client.delete(`/lists/${sender.listId}`);
    const { status, reason } = await stateOf(sender.em, id);
    assert.deepEqual([status, reason, await sweep()], ["PAUSED", "not_found", "none"]);
    const client = await clientAs(sender, "ADMIN");
    await restore(client, sender.listId);
    assert.equal(await sweep(), "all people");
    await client.app.sequences.resume.mutate({ params: { sequenceId: id }, body: {} });
    assert.equal((await stateOf(sender.em, id)).status, "ACTIVE");
  });

  it("forgets after 30 days, and above the most of a kind the oldest", async () => {
    const letter = await makeTeam();
    const mail = await mailLetter(letter);
    const [listId = ""] = mail.listIds;
    const client = api(letter.keys.live);
    await client.patch(`/lists/${listId}/subscribers/${mail.subscriberId}`, { status: "UNSUBSCRIBED" });
    const { id: other } = (await client.post("/subscribers", { email: uniqueEmail("other") })).body.data;
    await client.post(`/lists/${listId}/subscribers`, { subscriber_ids: [other] });
    await client.delete(`/lists/${listId}`);
    await client.delete(`/subscribers/${mail.subscriberId}`);
    const { id: draft } = (await client.post("/newsletters", { name: "Draft" })).body.data;
    await client.delete(`/newsletters/${draft}`);
    const left = async () =>
      (
        await execute<{ n: number }>(
          `select ((select count(*) from bin where team_id = $1) + (select count(*) from bin_rows where team_id = $1)
            + (select count(*) from bin_subscriptions where team_id = $1) + (select count(*) from list_opt_outs where team_id = $1))::int as n`.replaceAll(
            "$1",
            `'${letter.team.id}'`,
          ),
        )
      )[0]?.n;
    await prune();
    assert.equal(await left(), 2 + 3 + 1 + 1, "two records, their rows, one of two subscriptions, the other's opt-out");
    await execute("update bin set deleted_at = now() - interval '31 days' where team_id = ?", letter.team.id);
    assert.deepEqual(await pageOf(await clientAs(letter, "VIEWER")), []);
    await assert.rejects(restore(await clientAs(letter, "EDITOR"), draft), /its time has passed/);
    await prune();
    assert.equal(await left(), 0);

    await execute(
      "insert into bin (id, team_id, environment, kind, name, deleted_at) select ? || n, ?, 'LIVE', 'newsletter', 'D', now() - interval '1 day' from generate_series(1, ?) n",
      unique("nl"),
      letter.team.id,
      MOST_BINNED,
    );
    const last = (await client.post("/newsletters", { name: "Last" })).body.data.id;
    await client.delete(`/newsletters/${last}`);
    assert.equal(await left(), MOST_BINNED + 1);
    await restore(await clientAs(letter, "EDITOR"), last);
  });
});

describe("A list in the bin", () => {
  let team: TestTeam;
  let client: Client;
  let mail: MailedLetter;
  let listId: string;
  before(async () => {
    team = await makeTeam();
    client = await clientAs(team, "EDITOR");
  });
  beforeEach(async () => {
    mail = await mailLetter(team);
    [listId = ""] = mail.listIds;
  });

  const bin = async () => assert.equal((await api(team.keys.live).delete(`/lists/${listId}`)).status, 200);
  const leave = (scope: UnsubscribeScope) =>
    transaction(team.em.fork(), (tx) => unsubscribe(tx, team.vault, mail, "link", scope));
  const statusOf = async (subscriberId = mail.subscriberId) =>
    (
      await execute<{ status: string }>(
        "select status from subscriptions where list_id = ? and subscriber_id = ?",
        listId,
        subscriberId,
      )
    )[0]?.status;
  const change = (email: string) => api(team.keys.live).patch(`/subscribers/${mail.subscriberId}`, { email });
  const addTo = async (email = uniqueEmail()) => ({
    ...(await addPerson({ ...team, listId } as Sender, email)),
    email,
  });

  it("hears of an opt-out by the link of a mail that came by it, for the lists of the mail or for all", async () => {
    for (const scope of ["lists", "all"] as const) {
      mail = await mailLetter(team);
      [listId = ""] = mail.listIds;
      await bin();
      const origin = await leave(scope);
      assert.deepEqual(origin?.listNames, scope === "lists" ? ["Two"] : []);
      await transaction(team.em.fork(), (tx) => undoUnsubscribe(tx, team.vault, mail));
      await restore(client, listId);
      assert.equal(await statusOf(), "UNSUBSCRIBED");
    }
  });

  it("is left by an opt-out that waits for its deletion, or for its restore", async () => {
    const bins = (tx: EntityManager) => deleteList(tx, tenantOf(team), listId);
    const restores = (tx: EntityManager) => restoreRecord(tx, team.vault, tenantOf(team), listId, LIMITS);
    for (const [act, statement] of [
      [bins, "%for key share of l, p%"],
      [restores, "%update bin_subscriptions%"],
    ] as const) {
      mail = await mailLetter(team);
      [listId = ""] = mail.listIds;
      if (act === restores) await bin();
      const { waiting } = await transaction(team.em, async (tx) => {
        await act(tx);
        const waiting = leave("lists");
        await untilBlocked(team, statement);
        return { waiting };
      });
      await waiting;
      if (act === bins) await restore(client, listId);
      assert.equal(await statusOf(), "UNSUBSCRIBED", statement);
    }
  });

  it("is left by a person who opted out of all mail before, and comes back for another list", async () => {
    const other = await mailLetter(team);
    await execute(
      "update send_recipients set member_id = ?, email = ? where send_id = ?",
      mail.subscriberId,
      mail.email,
      other.sendId,
    );
    await bin();
    await transaction(team.em.fork(), (tx) => unsubscribe(tx, team.vault, other, "one_click"));
    const added = { subscriber_ids: [mail.subscriberId] };
    const backId = (await api(team.keys.live).post("/lists", { name: "Back", optin: "DOUBLE" })).body.data.id;
    await api(team.keys.live).post(`/lists/${backId}/subscribers`, added);
    await api(team.keys.live).post(`/lists/${backId}/subscribers`, added);
    const [row] = await execute<{ signUp: string }>(
      'select (extract(epoch from signed_up_again_at) * 1000)::bigint::text as "signUp" from subscriptions where list_id = ?',
      backId,
    );
    const url = confirmUrl(team.vault, "", { ...mail, ...row, listId: backId });
    const token = readConfirmationToken(team.vault, url.slice("/c/".length)) ?? assert.fail();
    await transaction(team.em.fork(), (tx) => confirmSubscription(tx, team.vault, token));
    assert.equal((await api(team.keys.live).get(`/suppressions/${mail.email}`)).status, 404);
    await restore(client, listId);
    assert.equal(await statusOf(), "UNSUBSCRIBED");
  });

  it("loses a person who is erased, also beside its restore, and a subscriber who is deleted, whose opt-out stays", async () => {
    const [erased, outcast] = [await addTo(), await addTo()];
    await api(team.keys.live).patch(`/lists/${listId}/subscribers/${outcast.id}`, { status: "UNSUBSCRIBED" });
    await bin();
    await api(team.keys.live).delete(`/subscribers/${outcast.id}`);
    const options = { dryRun: false, waitMs: 20_000, slackMs: 50 };
    const tenant = tenantOf(team);
    const report = await erasePerson(team.em, team.vault, tenant, erased.email, options);
    assert.ok(report.rows.some(({ table, rows }) => table === "bin_subscriptions" && rows === 1));

    const { waiting } = await transaction(team.em.fork(), async (tx) => {
      await sql`select from subscribers where id = ${mail.subscriberId} for update`.execute(kysely(tx));
      const waiting = restore(client, listId);
      await untilBlocked(team, "%insert into subscriptions%");
      await sql`delete from subscribers where id = ${mail.subscriberId}`.execute(kysely(tx));
      return { waiting };
    }).catch((error) => assert.fail(String(error)));
    assert.deepEqual((await waiting).gone, []);
    assert.deepEqual(await execute("select from subscriptions where list_id = ?", listId), []);

    const { id } = (await api(team.keys.live).post("/subscribers", { email: outcast.email })).body.data;
    const { data } = (await api(team.keys.live).post(`/lists/${listId}/subscribers`, { subscriber_ids: [id] })).body;
    assert.deepEqual(data.opted_out, [id]);
  });

  it("asks a person for a confirmation whose address changed, and heeds the opt-outs of the new one", async () => {
    await execute("update lists set optin = 'DOUBLE' where id = ?", listId);
    await bin();
    await change(uniqueEmail());
    await restore(client, listId);
    assert.equal(await statusOf(), "PENDING");

    mail = await mailLetter(team);
    [listId = ""] = mail.listIds;
    const former = await addTo();
    await api(team.keys.live).patch(`/lists/${listId}/subscribers/${former.id}`, { status: "UNSUBSCRIBED" });
    await bin();
    await api(team.keys.live).delete(`/subscribers/${former.id}`);
    await change(former.email);
    await restore(client, listId);
    assert.equal(await statusOf(), "UNSUBSCRIBED");
  });

  it("tells receivers of those who leave with it, and who come back", async () => {
    await listen(team);
    const since = emitted(team);
    await since();
    await bin();
    await restore(client, listId);
    assert.deepEqual(
      (await since()).map(({ type, object }) => [type, object.subscriber_id]),
      [
        ["subscription.removed", mail.subscriberId],
        ["subscription.created", mail.subscriberId],
      ],
    );
    const path = `/lists/${listId}/subscribers`;
    const { updated_at } = (await api(team.keys.live).get(`/lists/${listId}`)).body.data;
    const found = await api(team.keys.live).get(path, { query: { updated_since: updated_at } });
    assert.deepEqual(
      found.body.data.map(({ id }: { id: string }) => id),
      [mail.subscriberId],
    );
  });
});

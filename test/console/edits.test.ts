import assert from "node:assert/strict";
import { TRPCClientError } from "@trpc/client";
import { type Content, type Place, plainSubject, saveEdits } from "../../console/parts/draft/content.ts";
import { type Choice, saverOf } from "../../console/parts/save-from.ts";
import { api } from "../support/api.ts";
import { clientNamed, consoleClient, refusalCodeOf, signIn } from "../support/console.ts";
import { addSegment, makeCampaignSender, makeSender, type Sender } from "../support/sending.ts";
import { makeSequence, step } from "../support/sequences.ts";
import { makeEndpoint, PUBLIC_URL } from "../support/webhooks.ts";

type Client = Awaited<ReturnType<typeof consoleClient>>;
interface Began {
  updated_at: string;
}

/** The version of a record, as the client of the console names it. */
const from = (id: string, { updated_at }: Began) => ({ context: { began: `${id} ${updated_at}` } });

/** @returns the name of the member that a refusal names; `undefined` when the call is answered */
const editedBy = (call: Promise<unknown>): Promise<string | null | undefined> =>
  call.then(
    () => undefined,
    (error) => {
      assert.ok(error instanceof TRPCClientError, String(error));
      const { code, status, edited } = error.data;
      assert.deepEqual([code, status], ["resource_state_invalid", 409]);
      assert.ok(Date.parse(edited.at) <= Date.now() + 5_000);
      return edited.by;
    },
  );

/** Ada's edits of a step that Bob has changed since she opened it. @returns what is stored, and the fields that she is asked about */
async function saveOverBob(edits: Partial<Content>, ofBob: Partial<Content>, choice?: Choice) {
  const began = { id: "cmp_1", is_of_old_brand: false, updated_at: "1", ...CONTENT };
  let stored = { ...began, updated_at: "2", ...ofBob };
  const place: Pick<Place, "fields" | "write"> = {
    fields: ["wait_minutes"],
    write: async (_, content, { context }) => {
      if (context.began?.updated_at !== stored.updated_at) {
        const data = { code: "resource_state_invalid", status: 409, edited: { by: "Bob", at: "" } };
        throw new TRPCClientError("changed", { result: { error: { data } as never } });
      }
      stored = { ...stored, ...content, updated_at: "3" };
      return { updated_at: stored.updated_at };
    },
  };
  const asked: string[] = [];
  const read = async () => ({ data: stored });
  const saveFrom = saverOf({ id: began.id, read }, async (_, differences) => {
    asked.push(...differences.map(({ name }) => name));
    return choice;
  });
  const saved = await saveEdits(saveFrom, place, began, edits);
  assert.deepEqual({ ...stored, ...saved }, stored, "the editor continues with what is stored");
  return { stored, asked };
}
const CONTENT = { subject: "News", preheader: "", body: "", blocks: "", wait_minutes: "1440" };

describe("An edit of a mail that another member has changed", () => {
  it("keeps the other one's fields without a question, and asks about a field that both have changed", async () => {
    const ofBob = { wait_minutes: "4320", blocks: '{"type":"doc"}' };
    const { stored, asked } = await saveOverBob({ subject: "Ada's" }, ofBob);
    assert.deepEqual([stored.subject, stored.wait_minutes, stored.blocks], ["Ada's", "4320", ofBob.blocks]);
    assert.deepEqual(asked, []);
    const both = await saveOverBob({ wait_minutes: "60" }, { ...ofBob, subject: "Bob's" }, "yours");
    assert.deepEqual(both.asked, ["wait minutes"]);
    assert.deepEqual([both.stored.subject, both.stored.wait_minutes], ["Bob's", "60"]);
    await assert.rejects(saveOverBob({ subject: "Ada's" }, { subject: "Bob's" }), /changed/);
  });

  it("begins with what the page shows by now, unless that has another value of the same field", async () => {
    const shown = () => ({ updated_at: "2", subject: "News", send_days: [1] });
    const saveFrom = saverOf({ id: "cmp_1", read: assert.fail, shown }, assert.fail);
    const beganWith = (body: object) =>
      saveFrom({ updated_at: "1", ...{ subject: "News", send_days: [] } }, body, async ({ context }) => context.began);
    assert.equal((await beganWith({ subject: "Mine" }))?.updated_at, "2");
    assert.equal((await beganWith({ send_days: [2] }))?.updated_at, "1");
  });
});

describe("A subject in a list", () => {
  it("has a merge tag's fallback in its place, or the name of the field", () => {
    const shown = {
      'Hello {{ first_name | default: "there" }}': "Hello there",
      "{{- fields.home_town | capitalize }} news": "home town news",
      "{% if first_name %}Hi {{ first_name }}{% endif %}!": "Hi first name!",
      "No tag": "No tag",
    };
    for (const [subject, text] of Object.entries(shown)) assert.equal(plainSubject(subject), text);
  });
});

describe("A second editor in the console", () => {
  let sender: Sender;
  let ada: Client;
  let bob: Client;
  before(async () => {
    sender = await makeSender({ recipients: 0 });
    [ada, bob] = [await clientNamed(sender, "Ada", "ADMIN"), await clientNamed(sender, "Bob", "ADMIN")];
  });

  it("of a newsletter hears who changed it, saves over it by its new version, and is not in the way of the API", async () => {
    const params = { newsletterId: sender.newsletterId };
    const [byAda, byBob] = [ada, bob].map(({ api: { newsletters } }) => newsletters.drafts);
    assert.ok(byAda && byBob);
    const began = (await byAda.retrieve.query({ params })).data;
    const options = from(params.newsletterId, began);
    const { data: saved } = await byAda.update.mutate({ params, body: { subject: "Ada's" } }, options);
    assert.equal(await editedBy(byBob.update.mutate({ params, body: { subject: "Bob's" } }, options)), "Ada");
    assert.equal((await byBob.retrieve.query({ params })).data.subject, "Ada's");
    const again = from(params.newsletterId, saved);
    const { data: over } = await byBob.update.mutate({ params, body: { subject: "Bob's" } }, again);

    const path = `/newsletters/${params.newsletterId}`;
    const client = api(sender.liveKey.key);
    const headers = { "mailkeel-began": again.context.began };
    assert.equal((await client.patch(path, { subject: "API's" }, { headers })).status, 200, "it names no version");
    const late = byBob.update.mutate({ params, body: { subject: "Late" } }, from(params.newsletterId, over));
    assert.equal(await editedBy(late), null);
    assert.equal((await client.get(path)).body.data.subject, "API's");
    const nothing = byBob.update.mutate({ params, body: { subject: "Late" } });
    assert.equal(await editedBy(nothing), undefined, "without a version");
  });

  it("of a campaign's accounts, days or segment hears of it, too", async () => {
    const own = await makeCampaignSender({ detached: true });
    const client = await consoleClient(await signIn(own.owner.id), own.team.id);
    const { campaignId } = own;
    const campaign = { campaign_id: campaignId };
    const { change, attachAccounts } = client.app.content;
    const began = (await client.api.campaigns.drafts.retrieve.query({ params: { campaignId } })).data;
    const options = from(campaignId, began);
    await change.mutate({ body: { type: "campaign", id: campaignId, send_days: [1] } }, options);
    for (const late of [
      change.mutate({ body: { type: "campaign", id: campaignId, send_days: [2] } }, options),
      attachAccounts.mutate({ body: { ...campaign, account_ids: [own.accountId] } }, options),
      change.mutate({ body: { type: "campaign", id: campaignId, segment_id: own.segmentId } }, options),
    ])
      assert.equal(await editedBy(late), own.owner.name);
  });

  it("of a sequence's steps hears of it; a pause and a new name do not change the steps", async () => {
    const params = { sequenceId: await makeSequence(sender, { isStarted: false }) };
    const show = async () => (await ada.app.sequences.show.query({ params })).data;
    const steps = from(params.sequenceId, { updated_at: (await show()).steps_updated_at });
    await bob.app.sequences.rename.mutate({ params, body: { name: "New name" } });
    const save = (client: Client, subject: string) =>
      client.app.sequences.saveStep.mutate({ params, body: { step_id: "a", step: step("a", { subject }) } }, steps);
    await save(ada, "Ada's");
    assert.equal(await editedBy(save(bob, "Bob's")), "Ada");
    assert.equal((await show()).steps[0]?.subject, "Ada's");

    const named = from(params.sequenceId, await show());
    await ada.app.sequences.rename.mutate({ params, body: { name: "Ada's" } }, named);
    const late = bob.app.sequences.rename.mutate({ params, body: { name: "Bob's" } }, named);
    assert.equal(await editedBy(late), "Ada");
  });

  it("starts no sequence whose steps were changed since they were read", async () => {
    const params = { sequenceId: await makeSequence(sender, { isStarted: false }) };
    const seen = (await ada.app.sequences.show.query({ params })).data.steps_updated_at;
    await bob.app.sequences.saveStep.mutate({ params, body: { step_id: "a", step: step("a", { subject: "Unseen" }) } });
    const start = (updated_at: string) =>
      ada.app.sequences.start.mutate(
        { params, body: { include_members: false } },
        from(params.sequenceId, { updated_at }),
      );
    assert.equal(await editedBy(start(seen)), "Bob");
    assert.equal((await ada.app.sequences.show.query({ params })).data.status, "DRAFT");
    await start((await ada.app.sequences.show.query({ params })).data.steps_updated_at);
  });

  it("is told of a version that no clock of Postgres has", async () => {
    const params = { segmentId: await addSegment(sender) };
    const { data: segment } = await ada.app.audience.segment.query({ params });
    const body = { name: "Changed", conditions: segment.conditions };
    const odd = from(params.segmentId, { updated_at: "0000-01-01T00:00:00Z" });
    assert.equal(
      await refusalCodeOf(ada.app.audience.updateSegment.mutate({ params, body }, odd)),
      "validation_failed",
    );
  });

  it("of a segment or a list hears of it", async () => {
    const params = { segmentId: await addSegment(sender) };
    const { data: segment } = await ada.app.audience.segment.query({ params });
    const body = { name: "Changed", conditions: segment.conditions };
    const options = from(params.segmentId, segment);
    await ada.app.audience.updateSegment.mutate({ params, body }, options);
    assert.equal(await editedBy(bob.app.audience.updateSegment.mutate({ params, body }, options)), "Ada");

    const ofList = { params: { listId: sender.listId } };
    const list = from(sender.listId, (await bob.api.lists.retrieve.query(ofList)).data);
    await bob.api.lists.update.mutate({ ...ofList, body: { name: "Bob's" } }, list);
    assert.equal(await editedBy(ada.api.lists.update.mutate({ ...ofList, body: { name: "Ada's" } }, list)), "Bob");
  });

  it("of the team's settings, an account or an endpoint hears of it", async () => {
    const { settings, changeSettings } = ada.app.team;
    const team = from(sender.team.id, (await settings.query({})).data);
    const { data: saved } = await changeSettings.mutate({ body: { name: "Ada's" } }, team);
    assert.equal(await editedBy(bob.app.team.changeSettings.mutate({ body: { name: "Bob's" } }, team)), "Ada");
    await changeSettings.mutate({ body: { name: "Ada's own" } }, from(sender.team.id, saved));
    const brand = from(sender.team.id, (await bob.app.team.brand.query({})).data);
    await bob.app.team.changeBrand.mutate({ body: { language: "es" } }, brand);
    assert.equal(await editedBy(ada.app.team.changeBrand.mutate({ body: { language: "fr" } }, brand)), "Bob");

    const params = { accountId: sender.accountId };
    const account = from(params.accountId, (await ada.app.accounts.show.query({ params })).data);
    const limit = (client: Client, daily_limit: number) =>
      client.app.accounts.update.mutate(
        { params, body: { max_connections: 3, hourly_limit: null, daily_limit } },
        account,
      );
    await limit(ada, 100);
    assert.equal(await editedBy(limit(bob, 200)), "Ada");

    const ofEndpoint = { params: { webhookId: (await makeEndpoint(sender, { url: PUBLIC_URL })).id } };
    const { data: endpoint } = await ada.api.webhooks.retrieve.query(ofEndpoint);
    const change = (client: Client, name: string) =>
      client.api.webhooks.update.mutate({ ...ofEndpoint, body: { name } }, from(endpoint.id, endpoint));
    await change(bob, "Bob's");
    assert.equal(await editedBy(change(ada, "Ada's")), "Bob");
  });

  it("hears of one of two saves at once", async () => {
    const { settings } = ada.app.team;
    const options = from(sender.team.id, (await settings.query({})).data);
    const clients = [ada, bob, ada, bob, ada, bob, ada, bob];
    const saves = clients.map((client, i) =>
      editedBy(client.app.team.changeSettings.mutate({ body: { name: `Name ${i}` } }, options)),
    );
    assert.equal((await Promise.all(saves)).filter((by) => by === undefined).length, 1);
  });

  it("is refused with a version that cannot be read, and sees no other team's", async () => {
    const other = await makeSender({ recipients: 0 });
    const change = (began: string) =>
      ada.app.team.changeSettings.mutate({ body: { name: "News" } }, { context: { began } });
    assert.equal(await refusalCodeOf(change("nonsense")), "validation_failed");
    const foreign = `${other.newsletterId} 2020-01-01T00:00:00.000Z`;
    assert.equal(await refusalCodeOf(change(foreign)), "answered");
  });
});

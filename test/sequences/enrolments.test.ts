import assert from "node:assert/strict";
import { Readable } from "node:stream";
import { sql } from "kysely";
import { kysely } from "../../db/orm.ts";
import { transaction } from "../../db/transaction.ts";
import { confirmSubscription } from "../../domain/audience/confirmations.ts";
import { addSubscribers, createList } from "../../domain/audience/lists.ts";
import { createSubscriber, deleteSubscriber, updateSubscriber } from "../../domain/audience/subscribers.ts";
import { importContacts, importSubscribers } from "../../domain/import/import.ts";
import { confirmUrl, readConfirmationToken } from "../../domain/mail/links.ts";
import { sweepSegment } from "../../domain/sequences/enrolments.ts";
import { showSequence } from "../../domain/sequences/progress.ts";
import { stopSequence } from "../../domain/sequences/sequences.ts";
import { pauseSequence } from "../../domain/sequences/state.ts";
import { tenantOf, uniqueEmail } from "../support/factories.ts";
import {
  addContacts,
  addSegment,
  type CampaignSender,
  makeCampaignSender,
  makeSender,
  type Sender,
} from "../support/sending.ts";
import { enrolmentsOf, makeSequence, stateOf } from "../support/sequences.ts";

const statesOf = async ({ em }: Sender | CampaignSender, id: string) =>
  (await enrolmentsOf(em, id)).map(({ state, step: waited }) => `${state} ${waited}`).sort();

describe("the people of a list's sequence", () => {
  let sender: Sender;
  before(async () => {
    sender = await makeSender({ recipients: 2 });
  });

  const makePerson = async (email = uniqueEmail()) => {
    const names = { firstName: null, lastName: null };
    const { em, vault } = sender;
    return transaction(em, (tx) => createSubscriber(tx, vault, tenantOf(sender), { email, ...names }));
  };
  const subscribe = ({ id }: { id: string }, listId = sender.listId) =>
    transaction(sender.em, (em) => addSubscribers(em, sender.vault, tenantOf(sender), listId, [id]));
  const load = (csv: string, options: object) =>
    importSubscribers(sender.em, sender.vault, tenantOf(sender), Readable.from([csv]), {
      ...{ listId: sender.listId, onRefused: () => {} },
      ...options,
    });

  it("are noted when they were there at the start, and enter when they subscribe, once", async () => {
    const id = await makeSequence(sender);
    assert.deepEqual(await statesOf(sender, id), ["PRESENT null", "PRESENT null"]);
    const person = await makePerson();
    await subscribe(person);
    await subscribe(person);
    const entered = (await enrolmentsOf(sender.em, id)).filter(({ state }) => state === "ACTIVE");
    assert.deepEqual(
      entered.map(({ memberId, step: waited }) => [memberId, waited]),
      [[person.id, "a"]],
    );
    assert.ok(Math.abs((entered[0]?.minutes ?? 0) - 1_440) < 1);
    await pauseSequence(sender.em, id, null);
    await subscribe(await makePerson());
    assert.equal((await enrolmentsOf(sender.em, id)).length, 4);
    await stopSequence(sender.em, id);
    await subscribe(await makePerson());
    const ended = await statesOf(sender, id);
    assert.deepEqual(ended, ["LEFT a", "LEFT a", "PRESENT null", "PRESENT null"]);
  });

  it("enter when they were there if that is asked for", async () => {
    const other = await makeSender({ recipients: 2 });
    const id = await makeSequence(other, { includeMembers: true });
    assert.deepEqual(await statesOf(other, id), ["ACTIVE a", "ACTIVE a"]);
  });

  it("enter by the confirmation of a double opt-in, and not again after they were deleted", async () => {
    const { em, vault } = sender;
    const list = await transaction(em, (tx) =>
      createList(tx, tenantOf(sender), { name: "Double", description: null, optin: "DOUBLE" }, 100),
    );
    const id = await makeSequence({ ...sender, listId: list.id });
    const email = uniqueEmail();
    const confirm = async () => {
      const person = await makePerson(email);
      await subscribe(person, list.id);
      const url = confirmUrl(vault, "", { listId: list.id, subscriberId: person.id, email });
      const token = readConfirmationToken(vault, url.split("/").at(-1) ?? "");
      assert.ok(token);
      const before = (await enrolmentsOf(em, id)).length;
      await transaction(em.fork(), (tx) => confirmSubscription(tx, vault, token));
      await transaction(em, (tx) => deleteSubscriber(tx, vault, tenantOf(sender), person.id));
      return (await enrolmentsOf(em, id)).length - before;
    };
    assert.deepEqual([await confirm(), await confirm()], [1, 0]);
  });

  it("do not enter by an address that a person in it has moved to", async () => {
    const { em, vault } = sender;
    const id = await makeSequence(sender);
    const person = await makePerson();
    await subscribe(person);
    const before = await statesOf(sender, id);
    const email = uniqueEmail();
    await transaction(em, (tx) => updateSubscriber(tx, vault, tenantOf(sender), person.id, { email }));
    await transaction(em, (tx) => deleteSubscriber(tx, vault, tenantOf(sender), person.id));
    await subscribe(await makePerson(email));
    assert.deepEqual(await statesOf(sender, id), [...before, "LEFT null"].sort());
    assert.deepEqual((await showSequence(em, tenantOf(sender), id)).people, { ACTIVE: 1, PRESENT: before.length - 1 });
  });

  it("do not enter by an import unless it says so", async () => {
    const id = await makeSequence(sender);
    const [first, second] = [uniqueEmail(), uniqueEmail()];
    await load(`email\n${first}\n`, {});
    const before = (await enrolmentsOf(sender.em, id)).length;
    await load(`email\n${first}\n${second}\n`, { entersSequences: true });
    const after = await enrolmentsOf(sender.em, id);
    assert.equal(after.length - before, 1);
    assert.equal(after.filter(({ state }) => state === "ACTIVE").length, 1);
  });
});

describe("the people of a segment's sequence", () => {
  let sender: CampaignSender;
  before(async () => {
    sender = await makeCampaignSender({ recipients: [] });
    sender = { ...sender, segmentId: await addSegment(sender, { field: "first_name", op: "eq", value: "Ada" }) };
  });

  const addAda = async (more: object = {}) => {
    const [id = ""] = await addContacts(sender, [{ email: uniqueEmail(), firstName: "Ada", ...more }]);
    return id;
  };
  const sweep = (id: string, all = false) => sweepSegment(sender.em, sender.vault, id, all);

  it("enter when they come to match, unless they cannot be mailed", async () => {
    const there = await addAda();
    const id = await makeSequence(sender);
    const [later = ""] = await addContacts(sender, [{ email: uniqueEmail(), firstName: "Bob" }]);
    await addAda({ suppressed: true });
    await addAda({ status: "PENDING" });
    await sweep(id);
    assert.deepEqual(await statesOf(sender, id), ["PRESENT null"]);
    await sql`update contacts set first_name = 'Ada' where id = ${later}`.execute(kysely(sender.em));
    await sweep(id);
    await sweep(id, true);
    const states = (await enrolmentsOf(sender.em, id)).map(({ memberId, state }) => [memberId, state]);
    assert.deepEqual(Object.fromEntries(states), { [later]: "ACTIVE", [there]: "PRESENT" });
  });

  it("are looked for among all contacts less often than among changed ones", async () => {
    const id = await makeSequence(sender);
    const ada = await addAda();
    await sql`update sequences set swept_at = now() + interval '1 hour' where campaign_id = ${id}`.execute(
      kysely(sender.em),
    );
    const entered = async () => (await enrolmentsOf(sender.em, id)).some(({ memberId }) => memberId === ada);
    await sweep(id);
    assert.equal(await entered(), false);
    await sweep(id, true);
    assert.equal(await entered(), true);
  });

  it("do not enter by an import unless it says so", async () => {
    const id = await makeSequence(sender);
    const load = (entersSequences: boolean) => {
      const csv = Readable.from([`email,first_name\n${uniqueEmail()},Ada\n`]);
      return importContacts(sender.em, sender.vault, tenantOf(sender), csv, { onRefused: () => {}, entersSequences });
    };
    const entered = async () => (await statesOf(sender, id)).filter((state) => state.startsWith("ACTIVE")).length;
    await load(false);
    await sweep(id, true);
    assert.equal(await entered(), 0);
    await load(true);
    await sweep(id);
    assert.equal(await entered(), 1);
    await sql`update segments set deleted_at = now() where id = ${sender.segmentId}`.execute(kysely(sender.em));
    await load(false);
    const { status, reason } = await stateOf(sender.em, id);
    assert.deepEqual([status, reason], ["PAUSED", "not_found"], "the segment was deleted");
  });
});

import assert from "node:assert/strict";
import { kysely, type Tenant } from "../../db/orm.ts";
import { transaction } from "../../db/transaction.ts";
import { createContact } from "../../domain/audience/contacts.ts";
import { suppress } from "../../domain/audience/suppressions.ts";
import { type ApiClient, api } from "../support/api.ts";
import { eventually } from "../support/eventually.ts";
import { makeTeam, uniqueEmail } from "../support/factories.ts";
import { makeSender, sendAndWait, setFaults } from "../support/sending.ts";
import { emitted, listen } from "../webhooks/outbox.ts";

describe("The status of contacts whose addresses bounce", () => {
  const statusOf = async (client: ApiClient, id: string): Promise<string> =>
    (await client.get(`/contacts/${id}`)).body.data.email_status;
  const untilStatus = (client: ApiClient, id: string, status: string) =>
    eventually(async () => (await statusOf(client, id)) === status, { what: `${status} of ${id}` });

  it("is INVALID after a send that met a hard bounce, and reported once", async () => {
    const sender = await makeSender({ recipients: 3 });
    const { client, audience } = sender;
    const ids: string[] = [];
    for (let i = 0; i < 3; i++) {
      ids.push((await client.post("/contacts", { email: `person${i}@${audience}` })).body.data.id);
    }
    const [bounced = "", full = "", reached = ""] = ids;
    await setFaults([
      { stage: "rcpt", match: `person0@${audience}`, code: 550, message: "5.1.1 No such user" },
      { stage: "rcpt", match: `person1@${audience}`, code: 552, message: "5.2.2 Mailbox full" },
    ]);
    await listen(sender, { events: ["contact.updated"] });
    const since = emitted(sender);
    await sendAndWait(sender);
    await untilStatus(client, bounced, "INVALID");
    assert.deepEqual([await statusOf(client, full), await statusOf(client, reached)], ["ACTIVE", "ACTIVE"]);
    const { data } = (await client.get(`/contacts/${bounced}`)).body;
    assert.deepEqual(await since(), [{ type: "contact.updated", object: data }]);

    const { id } = (await client.get(`/suppressions/${data.email}`)).body.data;
    assert.equal((await api(sender.keys.cleanup).delete(`/suppressions/${id}`)).status, 200);
    assert.equal(await statusOf(client, bounced), "ACTIVE");
  });

  it("follows a bounce that was recorded while a transaction made the contact", async () => {
    const team = await makeTeam();
    const tenant: Tenant = { teamId: team.team.id, environment: "LIVE" };
    const email = uniqueEmail();
    const checks = () =>
      kysely(team.em.fork())
        .selectFrom("contact_status_checks")
        .select("checked_at")
        .where("email", "=", email)
        .execute();
    const id = await transaction(team.em, async (em) => {
      const { id, record } = await createContact(em, team.vault, tenant, {
        email,
        firstName: null,
        lastName: null,
        fields: {},
      });
      assert.equal(JSON.parse(record.text).email_status, "ACTIVE");
      await transaction(team.em.fork(), (other) => suppress(other, tenant, [email], "bounce:hard"));
      // No check finds the contact before this transaction has ended.
      await eventually(async () => (await checks()).some(({ checked_at }) => checked_at !== null), {
        what: "the first look at the address",
      });
      return id;
    });
    await untilStatus(api(team.keys.live), id, "INVALID");
    assert.deepEqual(await checks(), [], "it is not looked at any more");
  });
});

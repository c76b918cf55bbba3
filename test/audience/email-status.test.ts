import assert from "node:assert/strict";
import { kysely, type Tenant } from "../../db/orm.ts";
import { transaction } from "../../db/transaction.ts";
import { createContact } from "../../domain/audience/contacts.ts";
import { suppress } from "../../domain/audience/suppressions.ts";
import { api } from "../support/api.ts";
import { eventually } from "../support/eventually.ts";
import { makeTeam, uniqueEmail } from "../support/factories.ts";
import { emitted, listen } from "../webhooks/outbox.ts";

describe("The status of contacts whose addresses bounce", () => {
  it("follows a bounce that was recorded while a transaction made the contact, and is reported once", async () => {
    const team = await makeTeam();
    const tenant: Tenant = { teamId: team.team.id, environment: "LIVE" };
    const client = api(team.keys.live);
    const email = uniqueEmail();
    await listen(team, { events: ["contact.updated"] });
    const since = emitted(team);
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
    await eventually(async () => (await checks()).length === 0, { what: "the last look at the address" });
    const { data } = (await client.get(`/contacts/${id}`)).body;
    assert.equal(data.email_status, "INVALID");
    assert.deepEqual(await since(), [{ type: "contact.updated", object: data }]);
  });
});

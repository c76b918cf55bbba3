import assert from "node:assert/strict";
import { sql } from "kysely";
import { forTenant, kysely } from "../../db/orm.ts";
import { transaction } from "../../db/transaction.ts";
import { attachList } from "../../domain/newsletters.ts";
import { makeSender, type Sender, setFaults, startSend, untilStatus } from "../support/sending.ts";

const SENDS = 40;

/** Another newsletter of the same team to the same list, confirmed. */
async function confirmAnother({ client, fromEmail, listId, em, team }: Sender): Promise<void> {
  const draft = await client.post("/newsletters", {
    name: "Another",
    subject: "Hello",
    from_email: fromEmail,
    body: "<p>Hello {{ first_name }}</p>",
  });
  assert.equal(draft.status, 201, draft.text);
  const newsletterId: string = draft.body.data.id;
  const tenant = { teamId: team.id, environment: "LIVE" as const };
  await transaction(forTenant(em, tenant), (tx) => attachList(tx, newsletterId, listId));
  await startSend({ client, newsletterId });
}

describe("Fairness", () => {
  afterEach(() => setFaults([]));

  it("ends a small team's send while sends of a large one, confirmed before it, have not begun", async () => {
    const large = await makeSender({ recipients: 20, account: { maxConnections: 10 } });
    const small = await makeSender({ recipients: 10 });
    await setFaults([{ stage: "data", match: large.audience, delayMs: 150 }]);
    await Promise.all(Array.from({ length: SENDS }, () => confirmAnother(large)));
    await startSend(small);
    await untilStatus(small, ["SENT"], 60_000);
    const { rows } = await sql<{ untouched: number }>`
      select count(*)::int as untouched from sends s where s.team_id = ${large.team.id}
        and not exists (select 1 from send_recipients r where r.send_id = s.id and r.state <> 'QUEUED')`.execute(
      kysely(large.em),
    );
    // Not the fairness key alone does this: slices also give way when their account's connections are in use.
    assert.ok((rows[0]?.untouched ?? 0) > 0, "the large team still has sends that nobody has begun");
  }).timeout(120_000);
});

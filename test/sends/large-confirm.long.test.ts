import assert from "node:assert/strict";
import { sql } from "kysely";
import { kysely } from "../../db/orm.ts";
import type { ApiAnswer } from "../support/api.ts";
import { eventually } from "../support/eventually.ts";
import { whileInsertsAreHeld } from "../support/held-inserts.ts";
import { kill } from "../support/processes.ts";
import {
  addSubscribers,
  confirm,
  credits,
  freshKey,
  ledgerStates,
  makeSender,
  people,
  type Sender,
  setTomorrow,
  tokenOf,
} from "../support/sending.ts";

/** From so many recipients on a confirm takes a place. */
const MANY = 50_000;
const SUPPRESSED = 2_000;
const LONG_MS = 90_000;

/** A sender to `MANY` eligible people, and some who are not, imported just now: Postgres has no statistics of them. */
async function makeLargeSender(): Promise<Sender> {
  const sender = await makeSender({ recipients: MANY });
  await addSubscribers(sender, sender.listId, [
    { email: `pending@${sender.audience}`, status: "PENDING" },
    ...people(SUPPRESSED, `suppressed.${sender.audience}`).map((person) => ({ ...person, suppressed: true })),
  ]);
  await setTomorrow(sender);
  return sender;
}

const untilAnswered = (request: () => Promise<ApiAnswer>): Promise<ApiAnswer> =>
  eventually(
    async () => {
      const answer = await request();
      return answer.status === 503 || answer.body?.error?.code === "request_in_flight" ? undefined : answer;
    },
    { withinMs: LONG_MS, what: "the answer" },
  ) as Promise<ApiAnswer>;

/** Every eligible subscriber is in the ledger once, with its address, names and list, numbered from 1. */
async function assertCopied(sender: Sender): Promise<void> {
  const { rows } = await sql<{ copied: number; same: number; first: number; last: number }>`
    select count(*)::int as copied, min(r.seq) as first, max(r.seq) as last,
      count(distinct u.id) filter (where u.email = r.email and u.first_name is not distinct from r.first_name
        and u.last_name is not distinct from r.last_name and r.list_id = ${sender.listId} and r.fields is null
        and r.state = 'QUEUED' and r.epoch = 0 and r.attempts = 0)::int as same
    from send_recipients r join sends s on s.id = r.send_id left join subscribers u on u.id = r.member_id
    where s.resource_id = ${sender.newsletterId}`.execute(kysely(sender.em));
  assert.deepEqual(rows, [{ copied: MANY, same: MANY, first: 1, last: MANY }]);
  assert.deepEqual(await ledgerStates(sender), { QUEUED: MANY });
  const { reserved, mismatch } = await credits(sender);
  assert.deepEqual({ reserved, mismatch }, { reserved: MANY, mismatch: false });
}

describe("A confirm of 50,000 recipients", () => {
  it("copies each eligible one once, while the worker that copies them is killed and started again", async () => {
    const sender = await makeLargeSender();
    const token = await tokenOf(sender);
    const key = freshKey();
    const held = `new.email = 'person40000@${sender.audience}'`;
    await whileInsertsAreHeld("send_recipients", held, async ({ begun, release }) => {
      const first = confirm(sender, token, key);
      await eventually(async () => (await begun()) === 1, { withinMs: LONG_MS, what: "the copy of the recipients" });
      const { again } = kill("sends");
      await release();
      await Promise.all([again, first]);
      const answer = await untilAnswered(() => confirm(sender, token, key));
      assert.equal(answer.status, 202, answer.text);
      assert.equal(answer.body.data.recipients, MANY);
      assert.equal(await begun(), 2, "the copy was begun anew");
    });
    await assertCopied(sender);
  });
});

import { sql } from "kysely";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../../db/orm.ts";
import { ApiError } from "../../errors.ts";
import { readDraft } from "../drafts/draft.ts";
import type { MailResource } from "../resource.ts";
import { takeFromCap } from "./confirm.ts";
import { assertDraft, assertKeyMaySend, assertSender, contentGates, type SendingKey, walkGates } from "./gates.ts";

export const MAX_TEST_RECIPIENTS = 5;

/** The mail of a draft, or of a step, to members of the team. It holds no address, so that it may stand in a workflow's history. */
export interface TestMail extends Tenant {
  /** As of a send, which there is not: links in the mail and reports about it lead to no recipient. */
  testId: string;
  resource: MailResource;
  memberIds: readonly string[];
}

export interface TestOutcome {
  memberId: string;
  outcome: "sent" | "not_sent" | "unknown";
  /** A code. */
  reason: string;
}

interface TestRecipient {
  id: string;
  email: string;
  name: string;
  suppressed: boolean;
}

/** Members who left are missing. */
export async function readTestRecipients(
  em: EntityManager,
  { teamId, environment }: Tenant,
  memberIds: readonly string[],
): Promise<TestRecipient[]> {
  const { rows } = await sql<TestRecipient>`
    select m.id, m.email, m.name, exists (
      select from suppressions x where ${ofTenant({ teamId, environment }, "x")} and x.email = lower(m.email)) as suppressed
    from members m where m.team_id = ${teamId} and m.id = any(${[...memberIds]}) and m.removed_at is null
    order by m.id`.execute(kysely(em));
  return rows;
}

/**
 * Lets a test mail go out by a key, and counts it for the key's day, in the caller's transaction.
 * @throws {ApiError} the refusals of a send that are about the key, the sender and the content; `not_found` for a member;
 *   `resource_state_invalid` for one whom the team may not mail
 */
export async function allowTestMail(em: EntityManager, test: Omit<TestMail, "testId">, key: SendingKey): Promise<void> {
  assertKeyMaySend(key);
  const draft = await readDraft(em, test, test.resource, { lock: false });
  const param = "member_ids";
  const recipients = await readTestRecipients(em, test, test.memberIds);
  if (recipients.length < test.memberIds.length) {
    throw new ApiError("not_found", "One of them is no member of the team.", { param });
  }
  // A step may be tested in every status of its sequence.
  if (test.resource.stepId === undefined) assertDraft(draft);
  // A test goes to no list and no segment.
  await walkGates(contentGates(draft), ({ gate, refusal }) => {
    if (refusal && gate !== "targets") throw refusal;
  });
  assertSender(draft, key);
  const suppressed = recipients.filter((member) => member.suppressed).map(({ name }) => name);
  if (suppressed.length > 0) {
    const message = `The team's do-not-mail list holds the address of ${suppressed.join(", ")}.`;
    throw new ApiError("resource_state_invalid", message, { param });
  }
  await takeFromCap(em, key, recipients.length);
}

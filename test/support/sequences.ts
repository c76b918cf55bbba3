import { sql } from "kysely";
import { type EntityManager, kysely } from "../../db/orm.ts";
import { transaction } from "../../db/transaction.ts";
import { addSubscribers } from "../../domain/audience/lists.ts";
import { createSubscriber } from "../../domain/audience/subscribers.ts";
import { noteMembers } from "../../domain/sequences/enrolments.ts";
import { createSequence, startSequence } from "../../domain/sequences/sequences.ts";
import { wakeSequence } from "../../domain/sequences/state.ts";
import { saveSteps } from "../../domain/sequences/steps.ts";
import { eventually } from "./eventually.ts";
import { tenantOf, uniqueEmail } from "./factories.ts";
import { type AnySender, caughtMails, type Sender } from "./sending.ts";

/** A step that nothing but a test makes due. */
export const step = (id: string, differences: object = {}) => ({
  ...{ id, wait_minutes: 1_440, subject: `Hello from ${id}`, body: "<p>Dear {{ first_name }}</p>" },
  ...differences,
});

export const soon = (id: string, differences: object = {}) => step(id, { wait_minutes: 0, ...differences });

/** A person who comes onto the sender's list, and so into its sequences. */
export const addPerson = (sender: Sender, email = uniqueEmail()) =>
  transaction(sender.em, async (em) => {
    const tenant = tenantOf(sender);
    const person = await createSubscriber(em, sender.vault, tenant, { email, firstName: "Ada", lastName: null });
    await addSubscribers(em, sender.vault, tenant, sender.listId, [person.id]);
    return person;
  });

/** Lets all who wait in a sequence be due. */
export const makeDue = ({ em }: AnySender, id: string) =>
  transaction(em, async (tx) => {
    await sql`update sequence_enrolments set due_at = now() where campaign_id = ${id} and state = 'ACTIVE'`.execute(
      kysely(tx),
    );
    await wakeSequence(tx, id);
  });

interface SequenceOptions {
  steps?: readonly object[];
  includeMembers?: boolean;
  isStarted?: boolean;
  /** That of the sender unless given. */
  apiKeyId?: string;
}

/** A sequence of a sender's list or segment, started and with its members noted unless that is not asked for. */
export async function makeSequence(
  sender: AnySender,
  {
    steps = [step("a"), step("b"), step("c")],
    includeMembers = false,
    isStarted = true,
    ...given
  }: SequenceOptions = {},
): Promise<string> {
  const { em, vault, fromEmail, liveKey } = sender;
  const tenant = tenantOf(sender);
  const target = "listId" in sender ? { listId: sender.listId } : { segmentId: sender.segmentId };
  const id = await transaction(em, (tx) =>
    createSequence(tx, tenant, { name: "Welcome", fromEmail, ...target }, 1_000),
  );
  await saveSteps(em, tenant, id, steps);
  if (!isStarted) return id;
  // A look at a DRAFT has no effect.
  await noteMembers(em, vault, id);
  await transaction(em, (tx) =>
    startSequence(tx, tenant, id, { key: given.apiKeyId ?? liveKey.record.id, includeMembers }),
  );
  await noteMembers(em, vault, id);
  return id;
}

export interface Enrolment {
  memberId: string;
  state: string;
  reason: string | null;
  passed: string | null;
  step: string | null;
  /** Until it is due, and until it fell due before a resume spread it. */
  minutes: number | null;
  fellMinutes: number | null;
}

export async function enrolmentsOf(em: EntityManager, campaignId: string): Promise<Enrolment[]> {
  const { rows } = await sql<Enrolment>`
    select member_id as "memberId", state, reason, passed_step_id as passed, step_id as step,
      (extract(epoch from due_at - now()) / 60)::float8 as minutes,
      (extract(epoch from fell_due_at - now()) / 60)::float8 as "fellMinutes"
    from sequence_enrolments where campaign_id = ${campaignId} order by due_at, member_id`.execute(kysely(em));
  return rows;
}

/** Waits until the people of a sequence are as wanted. */
export const untilEnrolled = ({ em }: Pick<AnySender, "em">, id: string, wanted: (people: Enrolment[]) => boolean) =>
  eventually(
    async () => {
      const people = await enrolmentsOf(em.fork(), id);
      if (!wanted(people)) throw new Error(JSON.stringify(people.slice(0, 20)));
      return people;
    },
    { what: "the people of the sequence" },
  );

export async function stateOf(em: EntityManager, id: string) {
  const { rows } = await sql<{ status: string; reason: string | null; wave: number; waves: string[] }>`
    select c.status, c.status_reason as reason, q.wave, q.open_waves as waves
    from campaigns c join sequences q on q.campaign_id = c.id where c.id = ${id}`.execute(kysely(em));
  const [state] = rows;
  if (!state) throw new Error(`no sequence ${id}`);
  return state;
}

export interface StepMail {
  email: string;
  step: string;
  state: string;
  caught: number;
}

/** The rows of all waves, each with how often its mail was caught. */
export async function stepMailsOf(sender: AnySender, id: string): Promise<StepMail[]> {
  const { rows } = await sql<StepMail & { row: string }>`
    select r.email, v.step_id as step, r.state, r.seq || '.' || r.send_id as row
    from sends s join send_recipients r on r.send_id = s.id join sequence_step_versions v on v.id = s.step_version_id
    where s.resource_id = ${id} order by v.step_id, r.email`.execute(kysely(sender.em.fork()));
  const caught = (await caughtMails(sender)).map(({ messageId }) => /^<(.+)@/.exec(messageId)?.[1]);
  return rows.map(({ row, ...mail }) => ({ ...mail, caught: caught.filter((found) => found === row).length }));
}

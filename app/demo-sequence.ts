import { setTimeout as delay } from "node:timers/promises";
import type { Mailkeel } from "../client/index.ts";
import { forTenant, type Tenant } from "../db/orm.ts";
import { createSequence, startSequence } from "../domain/sequences/sequences.ts";
import { saveSteps } from "../domain/sequences/steps.ts";
import { DEMO_FROM } from "../stack/demo-team.ts";
import type { StackFile } from "../stack/state.ts";
import { sequenceWorkflowId } from "../temporal/ids.ts";
import { keyOfStack } from "./commands/sequences.ts";
import { POLL_MS, say, seconds } from "./demo-steps.ts";
import { progressLine } from "./output.ts";
import { inTenant, type Session, uiOf } from "./session.ts";

const PEOPLE = ["Zoë", "Jürgen", "Amélie"];
/** Without waits, the waves follow each other by seconds. */
const STEPS = [
  { id: "welcome", wait_minutes: 0, subject: "Welcome, {{ first_name }}", body: "<p>You are on {{ list_name }}.</p>" },
  { id: "tips", wait_minutes: 0, subject: "How to begin", body: "<p>{{ first_name }}, try three things first.</p>" },
];

/** Runs a welcome series of two mails, and has people come onto its list. */
export async function runSequence(session: Session, stack: StackFile, mailkeel: Mailkeel): Promise<void> {
  const tenant: Tenant = { teamId: stack.team.id, environment: "LIVE" };
  say("2. A list, and a sequence of two mails to those who come onto it");
  const { data: list } = await mailkeel.lists.create({ name: "Demo readers" });
  const sequence = { name: `Demo of ${new Date().toUTCString()}`, listId: list.id, fromEmail: DEMO_FROM };
  const id = await inTenant(session, tenant, (em) => createSequence(em, tenant, sequence, session.env.MAX_CAMPAIGNS));
  await saveSteps(forTenant(session.orm.em, tenant), tenant, id, STEPS);
  const start = { key: keyOfStack(session), includeMembers: false };
  await inTenant(session, tenant, (em) => startSequence(em, tenant, id, start));
  say(`  ${id}`);

  say(`3. ${PEOPLE.join(", ")} subscribe`);
  const startedAt = performance.now();
  for (const [i, first_name] of PEOPLE.entries()) {
    const { data } = await mailkeel.subscribers.create({ email: `${i}@inbox-${Date.now()}.example`, first_name });
    await mailkeel.lists.addSubscribers(list.id, { subscriber_ids: [data.id] });
  }

  say("4. The mails go out");
  const line = progressLine();
  for (;;) {
    const { data } = await mailkeel.campaigns.retrieve(id);
    const steps = data.drip_steps as readonly { id: string; waiting: number; sent: number }[];
    line.show(`  ${steps.map((step) => `${step.id}: ${step.waiting} waiting, ${step.sent} sent`).join("; ")}`);
    if (steps.every(({ sent }) => sent === PEOPLE.length)) break;
    await delay(POLL_MS);
  }
  line.clear();
  say(`  two mails to each after ${seconds(performance.now() - startedAt)}`);
  say("");
  say(`The mails:     ${stack.mail.api}`);
  const workflow = uiOf({ stack }, sequenceWorkflowId(id));
  if (workflow) say(`The sequence:  ${workflow}`);
}

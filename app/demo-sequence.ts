import { setTimeout as delay } from "node:timers/promises";
import type { Mailkeel } from "../client/index.ts";
import { forTenant, type Tenant } from "../db/orm.ts";
import { lockKey } from "../domain/access/keys.ts";
import { createSequence, startSequence } from "../domain/sequences/sequences.ts";
import { saveSteps } from "../domain/sequences/steps.ts";
import { DEMO_FROM } from "../stack/demo-team.ts";
import type { StackFile } from "../stack/state.ts";
import { sequenceWorkflowId } from "../workflows/ids.ts";
import { keyOfStack } from "./commands/sequences.ts";
import { POLL_MS, say, seconds } from "./demo-steps.ts";
import { progressLine } from "./output.ts";
import { inTenant, type Session, uiOf } from "./session.ts";

const PEOPLE = ["Zoë", "Jürgen", "Amélie"];
const body = (
  text: string,
) => `<html><body style="font-family: sans-serif"><h1>Hello {{ first_name }}</h1><p>${text}</p>
<p><a href="{{ unsubscribe_url }}">Unsubscribe</a></p></body></html>`;
/** Without waits, the waves follow each other by seconds. */
const STEPS = [
  { id: "welcome", wait_minutes: 0, subject: "Welcome, {{ first_name }}", body: body("You are on {{ list_name }}.") },
  { id: "tips", wait_minutes: 0, subject: "How to begin, {{ first_name }}", body: body("Three things to try first.") },
];

/** Runs a welcome series of two mails, and has people come onto its list. */
export async function runSequence(session: Session, stack: StackFile, mailkeel: Mailkeel): Promise<void> {
  const tenant: Tenant = { teamId: stack.team.id, environment: "LIVE" };
  say("2. A list, and a sequence of two mails to those who come onto it");
  const { data: list } = await mailkeel.lists.create({ name: "Demo readers" });
  const name = `Demo of ${new Date().toISOString()}`;
  const id = await inTenant(session, tenant, (em) =>
    createSequence(em, tenant, { name, listId: list.id, fromEmail: DEMO_FROM }, session.env.MAX_CAMPAIGNS),
  );
  await saveSteps(forTenant(session.orm.em, tenant), tenant, id, STEPS);
  await inTenant(session, tenant, async (em) => {
    const { id: apiKeyId } = await lockKey(em, { teamId: tenant.teamId, key: keyOfStack(session) });
    await startSequence(em, tenant, id, { apiKeyId, includeMembers: false });
  });
  say(`  ${id}`);

  say(`3. ${PEOPLE.join(", ")} subscribe`);
  const startedAt = performance.now();
  const ids: string[] = [];
  for (const [i, first_name] of PEOPLE.entries()) {
    const { data } = await mailkeel.subscribers.create({ email: `${i}@inbox-${Date.now()}.example`, first_name });
    ids.push(data.id);
  }
  await mailkeel.lists.addSubscribers(list.id, { subscriber_ids: ids });

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

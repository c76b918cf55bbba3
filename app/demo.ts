/** `npm run demo`: the main job over HTTP against the running service, from a CSV file to caught mails and webhooks. */
import { createReadStream } from "node:fs";
import { Readable } from "node:stream";
import { setTimeout as delay } from "node:timers/promises";
import { Command, Option } from "commander";
import { Mailkeel } from "../client/index.ts";
import { SettingsError } from "../config/env.ts";
import { forTenant, type Tenant } from "../db/orm.ts";
import { importSubscribers } from "../domain/import/import.ts";
import { attachList } from "../domain/sends/drafts/drafts.ts";
import type { EventName } from "../domain/webhooks/catalogue.ts";
import { DEMO_FROM } from "../stack/demo-team.ts";
import type { StackFile } from "../stack/state.ts";
import { type DemoReceiver, openReceiver } from "./demo-receiver.ts";
import { runSequence } from "./demo-sequence.ts";
import { count, generateCsv, POLL_MS, say, sayPlaces, seconds, sendDraft } from "./demo-steps.ts";
import { eventNames, wholeNumber } from "./options.ts";
import { lineOf, progressLine } from "./output.ts";
import { inTenant, type Session, withSession } from "./session.ts";

/** Events of a send whose number does not grow with the recipients. */
const SEND_EVENTS: EventName[] = [
  ...(["scheduled", "started", "paused", "completed", "cancelled"] as const).map(
    (what) => `newsletter.${what}` as const,
  ),
  "email.rejected",
  "unsubscribe.created",
];
/** How long the demo waits for further webhooks after the last one. */
const QUIET_MS = 10_000;
const BODY = `<html><body style="font-family: sans-serif">
<h1>Hello {{ first_name | default: "there" }}</h1>
<p>You get this because you are on <b>{{ list_name }}</b>. It went through a real send: preview, confirm, a durable
workflow, and SMTP.</p>
<p><a href="{{ unsubscribe_url }}">Unsubscribe</a></p>
</body></html>`;

async function importPeople(
  session: Session,
  tenant: Tenant,
  listId: string,
  file: string | undefined,
  recipients: number,
) {
  const input = file === undefined ? Readable.from(generateCsv(recipients)) : createReadStream(file);
  const line = progressLine();
  const startedAt = performance.now();
  const report = await importSubscribers(forTenant(session.orm.em, tenant), session.vault, tenant, input, {
    listId,
    onRefused: (at, reason) => line.print(`  line ${at}: ${reason}`),
    onProgress: ({ phase, done }) => line.show(`  ${phase} ${count(done)}`),
  });
  line.clear();
  say(`  ${count(report.rows)} rows in ${seconds(performance.now() - startedAt)}; ${count(report.refused)} refused`);
}

/** Registers a receiver of webhooks; where that fails, prints why and gives undefined. */
async function listen(
  mailkeel: Mailkeel,
  { webhooks }: StackFile,
  events: EventName[],
): Promise<DemoReceiver | undefined> {
  if (webhooks.receiver === null) {
    say("  left out: the service was started with WEBHOOK_ALLOWED_HOSTS of its own");
    return undefined;
  }
  try {
    const receiver = await openReceiver(mailkeel, webhooks.receiver, events);
    say(`  ${receiver.endpointId} at ${receiver.url}`);
    return receiver;
  } catch (error) {
    say(`  left out: ${lineOf(error)}; is another demo running?`);
    return undefined;
  }
}

/** Waits until every event has arrived, or none has for QUIET_MS. */
async function receiveAll(mailkeel: Mailkeel, { received, endpointId }: DemoReceiver, lastEvent: EventName) {
  const line = progressLine();
  let last = { events: received.size, at: performance.now() };
  for (;;) {
    if (received.size !== last.events) last = { events: received.size, at: performance.now() };
    const { data: pending } = await mailkeel.webhooks.listDeliveries(endpointId, { status: "PENDING", limit: 1 });
    const hasEnded = [...received.values()].includes(lastEvent) && pending.length === 0;
    if (hasEnded || performance.now() - last.at > QUIET_MS) break;
    line.show(`  ${count(received.size)} events`);
    await delay(POLL_MS);
  }
  line.clear();
}

/** Events of a sequence whose number does not grow with its mails. */
const SEQUENCE_EVENTS: EventName[] = ["sequence.entered", "sequence.completed", "sequence.left"];

async function demo(session: Session, { csv, recipients, sequence, events }: DemoOptions): Promise<void> {
  const { stack } = session;
  if (!stack) throw new SettingsError("The demo needs a running stack; start one with `npm start`.");
  const mailkeel = new Mailkeel({ apiKey: stack.keys.live, baseUrl: stack.api });

  say("1. A webhook endpoint of its own");
  const listening = await listen(mailkeel, stack, events ?? (sequence ? SEQUENCE_EVENTS : SEND_EVENTS));
  try {
    if (sequence) await runSequence(session, stack, mailkeel);
    else await sendLetter(session, stack, mailkeel, { csv, recipients });
    if (listening) {
      await receiveAll(mailkeel, listening, sequence ? "sequence.completed" : "newsletter.completed");
      const { received, counts } = listening;
      const byType = Map.groupBy(received.values(), (type) => type);
      const came = [...byType].map(([type, all]) => `${count(all.length)} ${type}`);
      say(`The webhooks:  ${came.join(", ") || "none"}; ${count(counts.refused)} with a wrong signature`);
    }
  } finally {
    await listening?.close();
  }
}

async function sendLetter(
  session: Session,
  stack: StackFile,
  mailkeel: Mailkeel,
  { csv: file, recipients }: Pick<DemoOptions, "csv" | "recipients">,
): Promise<void> {
  const tenant: Tenant = { teamId: stack.team.id, environment: "LIVE" };

  say("2. A list, and its subscribers from CSV");
  const { data: list } = await mailkeel.lists.create({ name: "Demo readers" });
  await importPeople(session, tenant, list.id, file, recipients);

  say("3. A draft that targets the list");
  const { data: draft } = await mailkeel.newsletters.create({
    name: `Demo of ${new Date().toUTCString()}`,
    subject: "Hello {{ first_name }}",
    from_email: DEMO_FROM,
    from_name: "Mailkeel demo",
    body: BODY,
  });
  await inTenant(session, tenant, (em) => attachList(em, draft.id, list.id));
  say(`  ${draft.id}`);

  sayPlaces(stack, await sendDraft(mailkeel, draft.id));
}

interface DemoOptions {
  recipients: number;
  csv?: string | undefined;
  sequence?: boolean;
  events?: EventName[];
}

const program = new Command("demo")
  .description("drives the main job over HTTP against a running service")
  .option("--recipients <count>", "people to generate", wholeNumber(1, 10_000_000), 1_000)
  .option("--csv <file>", "import this file instead")
  .addOption(new Option("--sequence", "run a welcome series of two mails to those who subscribe").conflicts("csv"))
  .option("--events <names>", "comma-separated events to receive as webhooks, * for all", eventNames)
  .action(async (options: DemoOptions) => {
    try {
      await withSession(process, (session) => demo(session, options));
    } catch (error) {
      console.error(`error: ${lineOf(error)}`);
      process.exitCode = 1;
    }
  });
await program.parseAsync();

/** `npm run demo`: the main job over HTTP against the running service, from a CSV file to caught mails and webhooks. */
import { createReadStream } from "node:fs";
import { Readable } from "node:stream";
import { setTimeout as delay } from "node:timers/promises";
import { Command } from "commander";
import { Mailkeel, type NewsletterWithRecipients } from "../client/index.ts";
import { SettingsError } from "../config/env.ts";
import { forTenant, type Tenant } from "../db/orm.ts";
import { transaction } from "../db/transaction.ts";
import { type ImportReport, importSubscribers } from "../domain/csv-import.ts";
import { attachList } from "../domain/newsletters.ts";
import type { EventName } from "../domain/webhooks/catalogue.ts";
import { DEMO_FROM } from "../stack/demo-team.ts";
import type { StackFile } from "../stack/state.ts";
import { type DemoReceiver, openReceiver } from "./demo-receiver.ts";
import { eventNames, wholeNumber } from "./options.ts";
import { lineOf, progressLine } from "./output.ts";
import { inTenant, type Session, withSession } from "./session.ts";

const POLL_MS = 250;
const DONE = ["SENT", "CANCELLED", "FAILED"];
/** Events whose number does not grow with the recipients. */
const EVENTS: EventName[] = [
  ...(["scheduled", "started", "paused", "completed", "cancelled"] as const).map(
    (what) => `newsletter.${what}` as const,
  ),
  "email.rejected",
  "unsubscribe.created",
];
/** How long the demo waits for further webhooks after the last one. */
const QUIET_MS = 10_000;
const NAMES = ["Zoë", "Jürgen", "Łukasz", "李", "Amélie", "Søren", "Ναταλία", "O'Brien"];

const BODY = `<html><body style="font-family: sans-serif">
<h1>Hello {{ first_name | default: "there" }}</h1>
<p>You get this because you are on <b>{{ list_name }}</b>. It went through a real send: preview, confirm, a durable
workflow, and SMTP.</p>
<p><a href="{{ unsubscribe_url }}">Unsubscribe</a></p>
</body></html>`;

const say = (text: string): void => console.log(text);
const count = (value: number): string => value.toLocaleString("en");
const seconds = (ms: number): string => `${(ms / 1_000).toFixed(1)} s`;

/** Lines of a CSV file with this many people in it. */
function* generateCsv(recipients: number): Generator<string> {
  yield "email,first_name,last_name\r\n";
  for (let i = 1; i <= recipients; i++) {
    yield `reader${i}@inbox.example,${NAMES[i % NAMES.length]},"Reader, no. ${i}"\r\n`;
  }
}

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
  const report: ImportReport = await transaction(
    forTenant(session.orm.em, tenant),
    (em) =>
      importSubscribers(em, tenant, input, {
        listId,
        onRefused: (at, reason) => line.print(`  line ${at}: ${reason}`),
        onProgress: ({ phase, done }) => line.show(`  ${phase} ${count(done)}`),
      }),
    // A stream cannot be read again after a conflict.
    { attempts: 1 },
  );
  line.clear();
  say(`  ${count(report.rows)} rows in ${seconds(performance.now() - startedAt)}; ${count(report.refused)} refused`);
}

async function watch(mailkeel: Mailkeel, newsletterId: string): Promise<NewsletterWithRecipients> {
  const line = progressLine();
  for (;;) {
    const { data: newsletter } = await mailkeel.newsletters.retrieve(newsletterId);
    const { total, queued, sending } = newsletter.recipients ?? { total: 0, queued: 0, sending: 0 };
    const done = total - queued - sending;
    const filled = total === 0 ? 0 : Math.round((done / total) * 30);
    line.show(`  ${newsletter.status} ${"█".repeat(filled).padEnd(30, "░")} ${count(done)} of ${count(total)}`);
    if (DONE.includes(newsletter.status)) {
      line.clear();
      return newsletter;
    }
    await delay(POLL_MS);
  }
}

/** Listens for webhooks and registers the endpoint; where that fails, prints why and gives undefined. */
async function listen(mailkeel: Mailkeel, { webhooks }: StackFile, events: EventName[]) {
  if (webhooks.receiver === null) {
    say("  left out: the service was started with WEBHOOK_ALLOWED_HOSTS of its own");
    return undefined;
  }
  let receiver: DemoReceiver;
  try {
    receiver = await openReceiver(webhooks.receiver);
  } catch (error) {
    say(`  left out: ${lineOf(error)}; is another demo running?`);
    return undefined;
  }
  try {
    // Endpoints of a demo that was interrupted.
    for await (const { id, url } of mailkeel.webhooks.list()) {
      if (url === receiver.url) await mailkeel.webhooks.delete(id);
    }
    const { data: endpoint } = await mailkeel.webhooks.create({ name: "Demo", url: receiver.url, events });
    receiver.expect(endpoint);
    say(`  ${endpoint.id} at ${endpoint.url}`);
    const close = async () => {
      try {
        await mailkeel.webhooks.delete(endpoint.id);
      } finally {
        await receiver.close();
      }
    };
    return { receiver, endpoint, close };
  } catch (error) {
    await receiver.close();
    throw error;
  }
}

/** Waits until every event has arrived, or none has for QUIET_MS. */
async function receiveAll(
  mailkeel: Mailkeel,
  { receiver, endpoint }: { receiver: DemoReceiver; endpoint: { id: string } },
) {
  const line = progressLine();
  const came = () => [...receiver.received().values()].reduce((sum, events) => sum + events, 0);
  let last = { events: came(), at: performance.now() };
  for (;;) {
    const events = came();
    if (events !== last.events) last = { events, at: performance.now() };
    const { data: pending } = await mailkeel.webhooks.listDeliveries(endpoint.id, { status: "PENDING", limit: 1 });
    const hasEnded = receiver.received().has("newsletter.completed") && pending.length === 0;
    if (hasEnded || performance.now() - last.at > QUIET_MS) break;
    line.show(`  ${count(events)} events`);
    await delay(POLL_MS);
  }
  line.clear();
}

async function demo(session: Session, { csv, recipients, events }: DemoOptions): Promise<void> {
  const { stack } = session;
  if (!stack) throw new SettingsError("The demo needs a running stack; start one with `npm start`.");
  const mailkeel = new Mailkeel({ apiKey: stack.keys.live, baseUrl: stack.api });

  say("1. A webhook endpoint of its own");
  const listening = await listen(mailkeel, stack, events);
  try {
    await sendLetter(session, stack, mailkeel, { csv, recipients });
    if (listening) {
      const { receiver } = listening;
      await receiveAll(mailkeel, listening);
      const received = [...receiver.received()].map(([type, came]) => `${count(came)} ${type}`);
      say(`The webhooks:  ${received.join(", ") || "none"}; ${count(receiver.refused)} with a wrong signature`);
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
    name: `Demo of ${new Date().toISOString()}`,
    subject: "Hello {{ first_name }}",
    from_email: DEMO_FROM,
    from_name: "Mailkeel demo",
    body: BODY,
  });
  await inTenant(session, tenant, (em) => attachList(em, draft.id, list.id));
  say(`  ${draft.id}`);

  say("4. Preview: the recipients");
  const previewedAt = performance.now();
  const { data: preview } = await mailkeel.newsletters.previewSend(draft.id);
  const { total, eligible, suppressed, not_opted_in } = preview.recipients;
  say(`  ${count(eligible)} of ${count(total)} (${count(suppressed)} suppressed, ${count(not_opted_in)} not opted in)`);
  const confirmedAt = performance.now();

  say("5. Confirm with the preview's token");
  const token = { confirmation_token: preview.confirmation.token };
  const { data: send } = await mailkeel.newsletters.send(draft.id, token);
  const scheduledAt = performance.now();
  say(`  scheduled for ${send.send_at}`);

  say("6. It goes out");
  const sent = await watch(mailkeel, draft.id);
  const tookMs = Date.parse(sent.completed_at ?? "") - Date.parse(sent.started_at ?? "");
  const states = Object.entries(sent.recipients ?? {}).filter(([state, people]) => state !== "total" && people > 0);
  say(`  ${sent.status}: ${states.map(([state, people]) => `${count(people)} ${state}`).join(", ")}`);

  say("");
  say(
    `preview ${seconds(confirmedAt - previewedAt)}, confirm ${seconds(scheduledAt - confirmedAt)}, ` +
      `sending ${seconds(tookMs)}: ${count(Math.round((sent.recipients?.sent ?? 0) / (tookMs / 1_000)))} mails/s`,
  );
  say(`The mails:     ${stack.mail.api}`);
  if (stack.temporal.ui) say(`The workflow:  ${stack.temporal.ui}`);
  say(`The numbers:   ${stack.api}/newsletters/${draft.id}`);
}

interface DemoOptions {
  recipients: number;
  csv?: string | undefined;
  events: EventName[];
}

const program = new Command("demo")
  .description("drives the main job over HTTP against a running service")
  .option("--recipients <count>", "people to generate", wholeNumber(1, 10_000_000), 1_000)
  .option("--csv <file>", "import this file instead")
  .option("--events <names>", "comma-separated events to receive as webhooks, * for all", eventNames, EVENTS)
  .action(async (options: DemoOptions) => {
    try {
      await withSession(
        process.env,
        () => async () => ({ ok: true }),
        (session) => demo(session, options),
      );
    } catch (error) {
      console.error(`error: ${lineOf(error)}`);
      process.exitCode = 1;
    }
  });
await program.parseAsync();

import { setTimeout as delay } from "node:timers/promises";
import type { Mailkeel, NewsletterWithRecipients } from "../client/index.ts";
import type { StackFile } from "../stack/state.ts";
import { sendWorkflowId } from "../temporal/ids.ts";
import { progressLine } from "./output.ts";
import { uiOf } from "./session.ts";

export const POLL_MS = 250;
const DONE = ["SENT", "CANCELLED", "FAILED"];
const NAMES = ["Zoë", "Jürgen", "Łukasz", "李", "Amélie", "Søren", "Ναταλία", "O'Brien"];

export const say = (text: string): void => console.log(text);
export const count = (value: number): string => value.toLocaleString("en");
export const seconds = (ms: number): string => `${(ms / 1_000).toFixed(1)} s`;

/** Lines of a CSV file with this many people in it. */
export function* generateCsv(recipients: number): Generator<string> {
  yield "email,first_name,last_name\r\n";
  for (let i = 1; i <= recipients; i++) {
    yield `reader${i}@inbox.example,${NAMES[i % NAMES.length]},"Reader, no. ${i}"\r\n`;
  }
}

/** Previews and confirms a newsletter, and shows the progress of its send until it has ended. */
export async function sendDraft({ newsletters }: Mailkeel, id: string): Promise<NewsletterWithRecipients> {
  const startedAt = performance.now();
  say("4. Preview: the recipients");
  const { data: preview } = await newsletters.previewSend(id);
  const { total = 0, eligible = 0, tracked: _, ...left } = preview.recipients;
  const others = Object.entries(left).map(([why, people]) => `${count(people)} ${why.replaceAll("_", " ")}`);
  say(`  ${count(eligible)} of ${count(total)} (${others.join(", ")})`);

  say("5. Confirm with the preview's token");
  const previewedAt = performance.now();
  const { data: send } = await newsletters.send(id, { confirmation_token: preview.confirmation.token });
  const confirmedAt = performance.now();
  say(`  scheduled for ${send.send_at}`);

  say("6. It goes out");
  const sent = await watch(newsletters, id);
  const { status, recipients, started_at, completed_at } = sent;
  const states = Object.entries(recipients ?? {}).filter(([state, people]) => state !== "total" && people > 0);
  say(`  ${status}: ${states.map(([state, people]) => `${count(people)} ${state}`).join(", ")}`);
  const tookMs = Date.parse(completed_at ?? "") - Date.parse(started_at ?? "");
  const perSecond = Math.round((recipients?.sent ?? 0) / (tookMs / 1_000));
  say(
    `  preview ${seconds(previewedAt - startedAt)}, confirm ${seconds(confirmedAt - previewedAt)}, ` +
      `sending ${seconds(tookMs)}: ${count(perSecond)} mails/s`,
  );
  return sent;
}

async function watch(newsletters: Mailkeel["newsletters"], id: string): Promise<NewsletterWithRecipients> {
  const line = progressLine();
  for (;;) {
    const { data: newsletter } = await newsletters.retrieve(id);
    const { total, queued, sending } = newsletter.recipients ?? { total: 0, queued: 0, sending: 0 };
    const done = total - queued - sending;
    const part = total === 0 ? 0 : done / total;
    const filled = Math.round(part * 30);
    line.show(`  ${newsletter.status} ${"█".repeat(filled).padEnd(30, "░")} ${count(done)} of ${count(total)}`);
    if (DONE.includes(newsletter.status)) {
      line.clear();
      return newsletter;
    }
    await delay(POLL_MS);
  }
}

/** Prints where to look at a send. */
export function sayPlaces(stack: StackFile, { id, send_id: sendId }: NewsletterWithRecipients): void {
  say("");
  const workflow = sendId && uiOf({ stack }, sendWorkflowId(sendId));
  say(`The mails:     ${stack.mail.api}`);
  if (workflow) say(`The workflow:  ${workflow}`);
  say(`The numbers:   ${stack.api}/newsletters/${id}`);
}

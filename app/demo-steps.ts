import { setTimeout as delay } from "node:timers/promises";
import type { CampaignWithRecipients, NewsletterWithRecipients } from "../client/index.ts";
import type { StackFile } from "../stack/state.ts";
import { sendWorkflowId } from "../workflows/ids.ts";
import { progressLine } from "./output.ts";
import { uiOf } from "./session.ts";

export const POLL_MS = 250;
const DONE = ["SENT", "CANCELLED", "FAILED"];
const NAMES = ["Zoë", "Jürgen", "Łukasz", "李", "Amélie", "Søren", "Ναταλία", "O'Brien"];

export const say = (text: string): void => console.log(text);
export const count = (value: number): string => value.toLocaleString("en");
export const seconds = (ms: number): string => `${(ms / 1_000).toFixed(1)} s`;

/** Lines of a CSV file with this many people of a domain in it. */
export function* generateCsv(recipients: number, domain: string): Generator<string> {
  yield "email,first_name,last_name\r\n";
  for (let i = 1; i <= recipients; i++) {
    yield `reader${i}@${domain},${NAMES[i % NAMES.length]},"Reader, no. ${i}"\r\n`;
  }
}

type Broadcast = NewsletterWithRecipients | CampaignWithRecipients;

/** The operations on newsletters or campaigns that a demo needs. */
interface Resource {
  previewSend(id: string): Promise<{ data: { recipients: Record<string, number>; confirmation: { token: string } } }>;
  send(id: string, body: { confirmation_token: string }): Promise<{ data: { send_at: string } }>;
  retrieve(id: string): Promise<{ data: Broadcast }>;
}

/**
 * Previews and confirms a draft, and shows the progress of its send until it has ended.
 * @param onProgress is called with the part that is done, 0 to 1
 */
export async function sendDraft(
  resource: Resource,
  id: string,
  onProgress?: (part: number) => Promise<void>,
): Promise<Broadcast> {
  const startedAt = performance.now();
  say("4. Preview: the recipients");
  const { data: preview } = await resource.previewSend(id);
  const { total = 0, eligible = 0, ...left } = preview.recipients;
  const others = Object.entries(left).map(([why, people]) => `${count(people)} ${why.replaceAll("_", " ")}`);
  say(`  ${count(eligible)} of ${count(total)} (${others.join(", ")})`);

  say("5. Confirm with the preview's token");
  const previewedAt = performance.now();
  const { data: send } = await resource.send(id, { confirmation_token: preview.confirmation.token });
  const confirmedAt = performance.now();
  say(`  scheduled for ${send.send_at}`);

  say("6. It goes out");
  const sent = await watch(() => resource.retrieve(id), onProgress);
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

async function watch(
  retrieve: () => Promise<{ data: Broadcast }>,
  onProgress?: (part: number) => Promise<void>,
): Promise<Broadcast> {
  const line = progressLine();
  for (;;) {
    const { data: broadcast } = await retrieve();
    const { total, queued, sending } = broadcast.recipients ?? { total: 0, queued: 0, sending: 0 };
    const done = total - queued - sending;
    const part = total === 0 ? 0 : done / total;
    const filled = Math.round(part * 30);
    line.show(`  ${broadcast.status} ${"█".repeat(filled).padEnd(30, "░")} ${count(done)} of ${count(total)}`);
    if (DONE.includes(broadcast.status)) {
      line.clear();
      return broadcast;
    }
    await onProgress?.(part);
    await delay(POLL_MS);
  }
}

/** Prints where to look at a send. @param collection path of the newsletters or campaigns in the API */
export function sayPlaces(stack: StackFile, collection: string, { id, send_id: sendId }: Broadcast): void {
  say("");
  const workflow = sendId && uiOf({ stack }, sendWorkflowId(sendId));
  say(`The mails:     ${stack.mail.api}`);
  if (workflow) say(`The workflow:  ${workflow}`);
  say(`The numbers:   ${stack.api}${collection}/${id}`);
}

import { setTimeout as delay } from "node:timers/promises";
import { type EntityManager, forTenant, type Tenant } from "../../db/orm.ts";
import { ApiError } from "../../domain/errors.ts";
import { EVENT_NAMES, type EventName } from "../../domain/webhooks/catalogue.ts";
import { userAgent } from "../../domain/webhooks/headers.ts";
import {
  closeListener,
  dropListenerDelivery,
  exampleDelivery,
  type ListenerDelivery,
  listenerHeaders,
  listenerSecret,
  openListener,
  RENEW_EVERY_MS,
  readListenerDeliveries,
  renewListener,
} from "../../domain/webhooks/listener.ts";
import { onSignals } from "../../stack/terminal.ts";
import { type Commands, command, OF_TENANT, option, required } from "../command.ts";
import { eventNames, localUrl } from "../options.ts";
import { lineOf } from "../output.ts";
import { inTenant, type Outcome, type Session, tenantOf } from "../session.ts";

/** How often the listener looks for deliveries, and for a receiver that is down. */
const POLL_MS = 250;
const AGAIN_MS = 1_000;

/** Forwards a team's events to a developer's own machine. */
export const commands: Commands = {
  "webhook:listen": command(
    "forward a team's events to a URL of this machine, for development, until Ctrl-C",
    {
      ...OF_TENANT,
      url: required("<url>", "where this command posts the events", localUrl),
      events: option("<names>", "comma-separated events, or * for all", eventNames, [...EVENT_NAMES]),
      example: option("<names>", "send the examples of these events, or of all with *, and end", eventNames),
    },
    async (session, { url, events, example, ...options }) =>
      forward(session, await tenantOf(session, options), url, events, example),
  ),
};

async function forward(
  session: Session,
  tenant: Tenant,
  url: string,
  events: EventName[],
  examples: readonly EventName[] | undefined,
): Promise<Outcome> {
  const ended = new AbortController();
  const say = (line: string) => void session.terminal.stderr.write(`${line}\n`);
  const secret = listenerSecret(session.vault, tenant);
  const { post, counts } = openForwarder(session, { secret, url, say, ended: ended.signal });
  say(`${secret} signs the deliveries: the secret for the receiver, the same each time.`);
  if (examples) {
    const { exampleRecord } = await import("../../api/openapi/event-examples.ts");
    for (const type of examples) await post(exampleDelivery(type, exampleRecord(type)));
    const taken = counts.forwarded - counts.failed;
    if (taken < examples.length) {
      throw new Error(`${examples.length - taken} of ${examples.length} examples were not taken.`);
    }
    return { text: `${taken} taken`, data: counts };
  }

  onSignals(
    () => ended.abort(),
    () => process.exit(1),
  );
  const webhookId = await inTenant(session, tenant, (em) => openListener(em, session.vault, tenant, { url, events }));
  try {
    say(`Forwarding to ${url}, and waiting for it while it is down. Ctrl-C ends it.`);
    await listen(forTenant(session.orm.em, tenant), tenant, webhookId, post, ended.signal);
  } finally {
    await inTenant(session, tenant, (em) => closeListener(em, webhookId));
  }
  return { text: `${counts.forwarded} forwarded, ${counts.failed} of them refused`, data: counts };
}

/** Forwards deliveries in the order in which they were written, until the signal ends it. */
async function listen(
  em: EntityManager,
  tenant: Tenant,
  webhookId: string,
  post: Post,
  ended: AbortSignal,
): Promise<void> {
  const pause = (ms: number) => delay(ms, undefined, { signal: ended }).catch(() => undefined);
  let renewedAt = performance.now();
  const renew = async () => {
    if (performance.now() - renewedAt < RENEW_EVERY_MS) return;
    renewedAt = performance.now();
    if (await renewListener(em, tenant, webhookId)) return;
    throw new ApiError(
      "not_found",
      "The clean-up has deleted this listener, because it was not renewed for minutes; start it again.",
    );
  };
  while (!ended.aborted) {
    await renew();
    for (const delivery of await readListenerDeliveries(em, tenant, webhookId)) {
      await renew();
      // A delivery waits for a receiver that is down, and those after it wait with it.
      while (!ended.aborted && !(await post(delivery))) {
        await renew();
        await pause(AGAIN_MS);
      }
      if (ended.aborted) break;
      await dropListenerDelivery(em, tenant, delivery.facts.deliveryId);
    }
    await pause(POLL_MS);
  }
}

/** Posts a delivery. @returns whether the receiver answered */
type Post = (delivery: ListenerDelivery) => Promise<boolean>;

interface Forwarding {
  secret: string;
  url: string;
  /** Writes a line. Standard output is for the result. */
  say(line: string): void;
  ended: AbortSignal;
}

/** Posts deliveries to one URL, prints a line for each, and counts those that got an answer, and another status than 2xx. */
function openForwarder({ env, stack }: Session, { secret, url, say, ended }: Forwarding) {
  const agent = userAgent(stack ? new URL(stack.api).origin : env.PUBLIC_URL);
  const counts = { forwarded: 0, failed: 0 };
  let isDown = false;
  const post: Post = async (delivery) => {
    const { type, eventId } = delivery.facts;
    try {
      const answer = await fetch(url, {
        method: "POST",
        headers: { ...listenerHeaders(delivery, secret), "User-Agent": agent },
        body: delivery.body,
        redirect: "manual",
        signal: AbortSignal.any([ended, AbortSignal.timeout(env.WEBHOOK_TIMEOUT_MS)]),
      });
      await answer.body?.cancel();
      isDown = false;
      counts.forwarded++;
      if (!answer.ok) counts.failed++;
      say(`${type}  ${eventId}  ${answer.status}`);
      return true;
    } catch (error) {
      const why = error instanceof Error && error.cause !== undefined ? error.cause : error;
      if (!isDown && !ended.aborted) say(`${type}  ${eventId}  no answer: ${lineOf(why)}`);
      isDown = true;
      return false;
    }
  };
  return { post, counts };
}

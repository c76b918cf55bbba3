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
  example: readonly EventName[] | undefined,
): Promise<Outcome> {
  const ended = new AbortController();
  const forwarder = new Forwarder(session, listenerSecret(session.vault, tenant), url, ended.signal);
  forwarder.say(`${forwarder.secret} signs the deliveries: the secret for the receiver, the same each time.`);
  if (example) return sendExamples(forwarder, example);

  onSignals(
    () => ended.abort(),
    () => process.exit(1),
  );
  const webhookId = await inTenant(session, tenant, (em) => openListener(em, session.vault, tenant, { url, events }));
  try {
    forwarder.say(`Forwarding to ${url}, and waiting for it while it is down. Ctrl-C ends it.`);
    const em = forTenant(session.orm.em, tenant);
    await listen(em, tenant, webhookId, forwarder, ended.signal);
  } finally {
    await inTenant(session, tenant, (em) => closeListener(em, webhookId));
  }
  const { forwarded, failed } = forwarder;
  return { text: `${forwarded} forwarded, ${failed} of them refused`, data: { forwarded, failed } };
}

/** @throws {Error} when the receiver did not take every one */
async function sendExamples(forwarder: Forwarder, types: readonly EventName[]): Promise<Outcome> {
  for (const type of types) await forwarder.post(exampleDelivery(type));
  const { forwarded, failed } = forwarder;
  if (failed > 0 || forwarded < types.length) {
    throw new Error(`${types.length - forwarded + failed} of ${types.length} examples were not taken.`);
  }
  return { text: `${forwarded} taken`, data: { forwarded, failed } };
}

/** Forwards deliveries in the order in which they were written, until the signal ends it. */
async function listen(
  em: EntityManager,
  tenant: Tenant,
  webhookId: string,
  forwarder: Forwarder,
  ended: AbortSignal,
): Promise<void> {
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
      while (!ended.aborted && !(await forwarder.post(delivery))) {
        await renew();
        await pause(AGAIN_MS, ended);
      }
      if (ended.aborted) break;
      await dropListenerDelivery(em, tenant, delivery.facts.deliveryId);
    }
    await pause(POLL_MS, ended);
  }
}

const pause = (ms: number, signal: AbortSignal): Promise<void> =>
  delay(ms, undefined, { signal }).catch(() => undefined);

/** Posts deliveries to one URL, and prints a line for each. */
class Forwarder {
  readonly secret: string;
  /** Writes a line. Standard output is for the result. */
  readonly say: (line: string) => void;
  /** Deliveries that got an answer, and those of them with another status than 2xx. */
  forwarded = 0;
  failed = 0;
  readonly #url: string;
  readonly #ended: AbortSignal;
  readonly #timeoutMs: number;
  readonly #userAgent: string;
  #isDown = false;

  constructor({ env, stack, terminal }: Session, secret: string, url: string, ended: AbortSignal) {
    this.secret = secret;
    this.say = (line) => void terminal.stderr.write(`${line}\n`);
    this.#url = url;
    this.#ended = ended;
    this.#timeoutMs = env.WEBHOOK_TIMEOUT_MS;
    this.#userAgent = userAgent(stack ? new URL(stack.api).origin : env.PUBLIC_URL);
  }

  /** @returns whether the receiver answered */
  async post(delivery: ListenerDelivery): Promise<boolean> {
    const { type, eventId } = delivery.facts;
    const headers = { ...listenerHeaders(delivery, this.secret), "User-Agent": this.#userAgent };
    try {
      const answer = await fetch(this.#url, {
        method: "POST",
        headers,
        body: delivery.body,
        redirect: "manual",
        signal: AbortSignal.any([this.#ended, AbortSignal.timeout(this.#timeoutMs)]),
      });
      await answer.body?.cancel();
      this.#isDown = false;
      this.forwarded++;
      if (!answer.ok) this.failed++;
      this.say(`${type}  ${eventId}  ${answer.status}`);
      return true;
    } catch (error) {
      const why = error instanceof Error && error.cause !== undefined ? error.cause : error;
      if (!this.#isDown && !this.#ended.aborted) this.say(`${type}  ${eventId}  no answer: ${lineOf(why)}`);
      this.#isDown = true;
      return false;
    }
  }
}

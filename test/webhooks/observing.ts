import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { dirname } from "node:path";
import type { Client } from "@temporalio/client";
import Stripe from "stripe";
import type { Environment } from "../../db/entities/shared.ts";
import type { DeliveryStatus } from "../../db/entities/webhook.ts";
import { kysely } from "../../db/orm.ts";
import { transaction } from "../../db/transaction.ts";
import { emit } from "../../domain/webhooks/emit.ts";
import { sealSecret } from "../../domain/webhooks/secrets.ts";
import { endpointWorkflowId } from "../../temporal/ids.ts";
import { eventually } from "../support/eventually.ts";
import type { TestTeam } from "../support/factories.ts";
import { type Behaviour, openReceiver, type Received, type Receiver } from "../support/receiver.ts";
import { temporalClient, untilDetails } from "../support/temporal.ts";
import { logOf, recordsOf, type TestEndpoint } from "../support/webhooks.ts";

const TOLERANCE_SECONDS = 300;

// An independent implementation of the same scheme, the one most receivers will use.
const verifier = Stripe.webhooks.signature;
assert.ok(verifier);
const verify: typeof verifier.verifyHeader = verifier.verifyHeader.bind(verifier);

/** Opens a receiver and a client of Temporal before the tests of a suite, and closes both after them. */
export function receivingBesideTemporal(given: (receiver: Receiver, temporal: Client) => void): void {
  let close: () => Promise<unknown>;
  before(async () => {
    const receiver = await openReceiver();
    const { client, close: disconnect } = await temporalClient();
    close = () => Promise.all([receiver.close(), disconnect()]);
    given(receiver, client);
  });
  after(() => close());
}

export type Row = Awaited<ReturnType<typeof logOf>>[number];

export const header = ({ headers }: Received, name: string): string => String(headers[name.toLowerCase()]);

export const deliveryIdOf = (received: Received): string => header(received, "X-Service-Delivery-Id");
export const eventIdOf = (received: Received): string => header(received, "X-Service-Event-Id");

export function isSigned(received: Received, secret: string): boolean {
  try {
    return verify(received.body, header(received, "X-Service-Signature"), secret, TOLERANCE_SECONDS);
  } catch {
    return false;
  }
}

/** Checks the headers of a delivery against its row in the log. */
export function assertHeaders(received: Received, row: Row | undefined, endpoint: TestEndpoint): void {
  assert.ok(row, `a row of ${deliveryIdOf(received)} is in the log`);
  const timestamp = header(received, "X-Service-Timestamp");
  assert.match(timestamp, /^\d{10}$/);
  assert.match(header(received, "X-Service-Signature"), new RegExp(`^t=${timestamp}(,v1=[0-9a-f]{64})+$`));
  assert.ok(isSigned(received, endpoint.secret), "the signature verifies");
  const of = (name: string) => received.headers[name.toLowerCase()];
  const { id, object, type, api_version, data, ...more } = JSON.parse(received.body);
  assert.deepEqual(
    {
      deliveryId: of("X-Service-Delivery-Id"),
      event: of("X-Service-Event"),
      eventId: of("X-Service-Event-Id"),
      webhookId: of("X-Service-Webhook-Id"),
      version: of("X-Service-Api-Version"),
      replay: of("X-Service-Replay"),
      contentType: of("Content-Type"),
      userAgent: header(received, "User-Agent").replace(
        /\(\+http:\/\/127\.0\.0\.1:\d+\/docs\/webhooks\)$/,
        "(the page)",
      ),
    },
    {
      deliveryId: row.id,
      event: row.event_type,
      eventId: row.event_id,
      webhookId: endpoint.id,
      version: "2026-08-15",
      replay: row.is_replay ? "true" : undefined,
      contentType: "application/json",
      userAgent: "Mailkeel-Webhooks/1 (the page)",
    },
  );
  assert.deepEqual(
    { id, object, type, api_version, more: Object.keys(more) },
    { id: row.event_id, object: "event", type: row.event_type, api_version: "2026-08-15", more: ["created_at"] },
  );
  assert.ok(data.object);
}

/** Checks each delivery that arrived at a path against its row. @returns them in order */
export function assertAllHeaders(receiver: Receiver, path: string, log: readonly Row[], endpoint: TestEndpoint) {
  const arrived = receiver.received.filter((one) => one.path === path);
  const rows = new Map(log.map((row) => [row.id, row]));
  for (const one of arrived) assertHeaders(one, rows.get(deliveryIdOf(one)), endpoint);
  assert.equal(new Set(arrived.map(deliveryIdOf)).size, arrived.length, "each attempt has an id of its own");
  return arrived;
}

/** The state of each row, oldest attempt first. */
export const states = (log: readonly Row[]): [number, DeliveryStatus][] =>
  log.map(({ attempt, status }): [number, DeliveryStatus] => [attempt, status]).sort(([a], [b]) => a - b);

/** Why an attempt is made again that its endpoint did not refuse: the machine was too slow, or the service was cut off. */
const TOO_LATE = /within \d+ s|outcome is unknown/;

/** The status of each attempt of a delivery, oldest first, but for those that were too late: a busy machine may have some. */
export const statesInTime = (log: readonly Row[]): DeliveryStatus[] =>
  log
    .toSorted((a, b) => a.attempt - b.attempt)
    .flatMap(({ status, error_message }) =>
      status === "FAILED" && TOO_LATE.test(error_message ?? "") ? [] : [status],
    );

/** Checks that each of some events arrived, at its first attempt that was not too late. */
export function assertEachSucceeded(log: readonly Row[], events: number): void {
  const attempts = [...Map.groupBy(log, ({ event_id }) => event_id).values()];
  assert.equal(attempts.length, events);
  for (const rows of attempts) assert.deepEqual(statesInTime(rows), ["SUCCEEDED"], JSON.stringify(rows));
}

export function untilLog(
  team: Pick<TestTeam, "em">,
  webhookId: string,
  wanted: (log: Row[]) => boolean,
  what = "the log",
): Promise<Row[]> {
  return eventually(
    async () => {
      const log = await logOf({ em: team.em.fork() }, webhookId);
      if (!wanted(log)) throw new Error(JSON.stringify(states(log)));
      return log;
    },
    { what: `${what} of ${webhookId}` },
  );
}

/** The log of an endpoint once all deliveries of its events have ended. @param events how many */
export const untilOver = (team: Pick<TestTeam, "em">, webhookId: string, events = 1): Promise<Row[]> =>
  untilLog(
    team,
    webhookId,
    (log) =>
      new Set(log.map(({ event_id }) => event_id)).size >= events &&
      log.every(({ status }) => status !== "PENDING" && status !== "RETRYING"),
    "the end of the log",
  );

/** The log of an endpoint once something in it waits for its next attempt and nothing is under way. */
export const untilWaiting = (team: Pick<TestTeam, "em">, webhookId: string): Promise<Row[]> =>
  untilLog(
    team,
    webhookId,
    (log) => log.some(({ status }) => status === "RETRYING") && log.every(({ status }) => status !== "PENDING"),
    "a retry in the log",
  );

export async function emitIn(team: Pick<TestTeam, "team" | "em">, environment: Environment, objects: object[]) {
  await transaction(team.em, (tx) =>
    emit(tx, { teamId: team.team.id, environment }, "newsletter.started", recordsOf(objects)),
  );
}

/** The workflow of all deliveries to an endpoint. */
export const workflowOf = (temporal: Client, webhookId: string) =>
  temporal.workflow.getHandle(endpointWorkflowId(webhookId));

/** Waits until the workflow of an endpoint sleeps until the next attempt. The log says so a moment before. */
export async function untilAtRest(temporal: Client, webhookId: string): Promise<void> {
  await untilDetails(workflowOf(temporal, webhookId), /^Endpoint \S+\. (?!Delivering).*Next attempt at/);
}

export async function setEndpoint(team: Pick<TestTeam, "em">, webhookId: string, set: Record<string, unknown>) {
  await kysely(team.em).updateTable("webhook_endpoints").set(set).where("id", "=", webhookId).execute();
}

export async function setHealth(team: Pick<TestTeam, "em">, webhookId: string, set: Record<string, unknown>) {
  await kysely(team.em.fork()).updateTable("webhook_health").set(set).where("webhook_id", "=", webhookId).execute();
}

/** Gives an endpoint its secret again whose column was overwritten. */
export const repairSecret = (team: Pick<TestTeam, "em" | "vault">, { id, secret }: TestEndpoint): Promise<void> =>
  setEndpoint(team, id, { encrypted_secret: sealSecret(team.vault, id, secret) });

export function readLogs(): string {
  const folder = `${dirname(process.env["MAILKEEL_STACK"] ?? "")}/logs`;
  return readdirSync(folder)
    .map((name) => readFileSync(`${folder}/${name}`, "utf8"))
    .join("\n");
}

export const answerWith =
  (status: number): Behaviour =>
  (_, response) =>
    void response.writeHead(status).end();

/** Asks to come back in this many seconds. */
export const askToWait =
  (seconds: number): Behaviour =>
  (_, response) =>
    void response.writeHead(429, { "Retry-After": String(seconds) }).end("later");

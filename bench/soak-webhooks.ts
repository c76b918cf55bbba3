import { once } from "node:events";
import { createServer, type Server } from "node:http";
import { sql } from "kysely";
import { kysely, type MikroORM } from "../db/orm.ts";
import { transaction } from "../db/transaction.ts";
import type { EventName } from "../domain/webhooks/catalogue.ts";
import { reservePorts } from "../stack/infra.ts";
import { backdoor, unique } from "../test/support/factories.ts";
import type { Sender } from "../test/support/sending.ts";
import { makeEndpoint } from "../test/support/webhooks.ts";
import { type Random, random } from "./soak-chance.ts";

/** Events that sends and their readers cause. */
const EVENTS = [
  "newsletter.scheduled",
  "newsletter.started",
  "newsletter.paused",
  "newsletter.completed",
  "newsletter.cancelled",
  "email.sent",
  "email.rejected",
  "subscriber.updated",
  "subscription.removed",
  "suppression.added",
  "unsubscribe.created",
  "account.error",
  "account.recovered",
] satisfies EventName[];
/** Few, for an endpoint that answers nothing until the end of the soak. */
const FEW = EVENTS.filter((name) => name.startsWith("newsletter."));

/** The behaviour of an endpoint, or of its owner. */
const KINDS = ["working", "flaky", "hanging", "stopped", "deleted"] as const;
type Kind = (typeof KINDS)[number];

interface Endpoint {
  id: string;
  kind: Kind;
  sender: Sender;
  /** Ids of the events that arrived, and how often. */
  arrived: Map<string, number>;
  /** Ids of the events that it took with a 2xx. */
  taken: Set<string>;
  gone: boolean;
}

/** Endpoints of every kind at every team of a soak, and the checks of their deliveries. */
export class Webhooks {
  readonly #orm: MikroORM;
  readonly #server: Server;
  readonly #origin: string;
  readonly #chance: Random;
  readonly #endpoints: Endpoint[] = [];
  readonly #byPath = new Map<string, Endpoint>();
  #isRepaired = false;

  private constructor(orm: MikroORM, server: Server, port: number, seed: number) {
    this.#orm = orm;
    this.#server = server;
    this.#origin = `http://127.0.0.1:${port}`;
    this.#chance = random(seed, "webhooks");
  }

  /** A port for the receiver, before the stack is told that it may deliver there. */
  static async reservePort(): Promise<number> {
    return (await reservePorts({ receiver: { port: 0 } })).receiver;
  }

  static async open(port: number, seed: number): Promise<Webhooks> {
    const server = createServer((request, response) => {
      const endpoint = webhooks.#byPath.get(request.url ?? "");
      request.resume().once("end", () => {
        if (!endpoint) return void response.writeHead(404).end();
        const event = String(request.headers["x-service-event-id"]);
        endpoint.arrived.set(event, (endpoint.arrived.get(event) ?? 0) + 1);
        if (endpoint.kind === "hanging" && !webhooks.#isRepaired) return;
        const failing = endpoint.kind === "flaky" && webhooks.#chance.oneIn(10);
        if (!failing) endpoint.taken.add(event);
        response.writeHead(failing ? 500 : 204).end();
      });
    });
    const webhooks = new Webhooks((await backdoor()).orm, server, port, seed);
    await once(server.listen(port, "127.0.0.1"), "listening");
    return webhooks;
  }

  async close(): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  /** Has the endpoints answer that did not: what waits for them follows. */
  repair(): void {
    this.#isRepaired = true;
  }

  /** Deliveries that arrived so far. */
  get arrivals(): number {
    return this.#endpoints.reduce((sum, { arrived }) => sum + [...arrived.values()].reduce((a, b) => a + b, 0), 0);
  }

  /** Gives a team one endpoint of each kind; before its first event, so that those that stay get all. */
  async addTeam(sender: Sender): Promise<void> {
    for (const kind of KINDS) {
      const path = `/${unique(kind)}`;
      const events = kind === "hanging" ? FEW : EVENTS;
      // Requests may come as soon as it is there.
      const endpoint: Endpoint = { id: "", kind, sender, arrived: new Map(), taken: new Set(), gone: false };
      this.#byPath.set(path, endpoint);
      const made = await transaction(sender.em, (em) =>
        makeEndpoint({ ...sender, em }, { url: `${this.#origin}${path}`, events }),
      );
      endpoint.id = made.id;
      this.#endpoints.push(endpoint);
    }
  }

  /** Acts as an owner: stops an endpoint, activates it again, or deletes it. @returns a name of the action */
  async meddle(sender: Sender, chance: Random): Promise<string | undefined> {
    const own = this.#endpoints.filter((endpoint) => endpoint.sender.team.id === sender.team.id && !endpoint.gone);
    const deleted = own.find(({ kind }) => kind === "deleted");
    if (deleted && chance.oneIn(4)) {
      const { status } = await sender.client.delete(`/webhooks/${deleted.id}`);
      if (status === 404 || (status >= 200 && status < 300)) deleted.gone = true;
      return "webhooks deleted";
    }
    const stopped = own.find(({ kind }) => kind === "stopped");
    if (!stopped) return undefined;
    const active = chance.oneIn(2);
    await sender.client.patch(`/webhooks/${stopped.id}`, { active });
    return active ? "webhooks re-activated" : "webhooks stopped";
  }

  get #db() {
    return kysely(this.#orm.em.fork());
  }

  get #teamIds(): string[] {
    return [...new Set(this.#endpoints.map(({ sender }) => sender.team.id))];
  }

  /** Counts the teams' events that are on their way. @returns undefined when all have been delivered or have failed */
  async underWay(): Promise<string | undefined> {
    const teams = this.#teamIds;
    const { rows } = await sql<Record<string, number>>`select
      (select count(*)::int from webhook_outbox where team_id = any(${teams}::text[])) as outbox,
      (select count(*)::int from webhook_deliveries
        where team_id = any(${teams}::text[]) and status = 'PENDING') as pending,
      (select count(*)::int from webhook_deliveries
        where team_id = any(${teams}::text[]) and status = 'RETRYING') as retrying`.execute(this.#db);
    const left = Object.entries(rows[0] ?? {}).filter(([, count]) => count > 0);
    return left.length === 0 ? undefined : left.map(([what, count]) => `${what} ${count}`).join(", ");
  }

  /** Once nothing is on its way: every event at every endpoint that wanted it, or in its log as given up. */
  async check(violated: (what: string) => void): Promise<void> {
    await this.#checkMails(violated);
    await this.#checkAccounts(violated);
    for (const endpoint of this.#endpoints) await this.#checkEndpoint(endpoint, violated);
  }

  /** No accepted mail without its event, and none with two. */
  async #checkMails(violated: (what: string) => void): Promise<void> {
    const { rows } = await sql<{ team_id: string; sent: number; told: number }>`
      select t.team_id,
        (select count(*)::int from send_recipients r join sends s on s.id = r.send_id
          where s.team_id = t.team_id and r.state = 'SENT') as sent,
        (select count(*)::int from webhook_events e where e.team_id = t.team_id and e.type = 'email.sent') as told
      from unnest(${this.#teamIds}::text[]) as t (team_id)`.execute(this.#db);
    for (const { team_id, sent, told } of rows) {
      if (sent !== told) violated(`${team_id}: ${told} events email.sent of ${sent} mails sent`);
    }
  }

  /** Every account works at the end: it has recovered as often as it has failed. */
  async #checkAccounts(violated: (what: string) => void): Promise<void> {
    for (const [team, { failed, recovered }] of await this.#accountEvents()) {
      if (failed !== recovered)
        violated(`${team}: its account failed ${failed} times and recovered ${recovered} times`);
    }
  }

  /** By team, how many events say that its account failed, and that it recovered. */
  async #accountEvents(): Promise<Map<string, { failed: number; recovered: number }>> {
    const { rows } = await sql<{ team_id: string; failed: number; recovered: number }>`
      select team_id, count(*) filter (where type = 'account.error')::int as failed,
        count(*) filter (where type = 'account.recovered')::int as recovered
      from webhook_events where team_id = any(${this.#teamIds}::text[]) group by team_id`.execute(this.#db);
    return new Map(rows.map(({ team_id, ...counts }) => [team_id, counts]));
  }

  async #checkEndpoint(
    { id, kind, sender, arrived, taken, gone }: Endpoint,
    violated: (what: string) => void,
  ): Promise<void> {
    const wanted = kind === "hanging" ? FEW : EVENTS;
    const { rows } = await sql<{ id: string; statuses: string[]; attempts: number[] }>`
      select e.id, coalesce(array_agg(d.status order by d.attempt) filter (where d.id is not null), '{}') as statuses,
        coalesce(array_agg(d.attempt::int order by d.attempt) filter (where d.id is not null), '{}') as attempts
      from webhook_events e left join webhook_deliveries d on d.event_id = e.id and d.webhook_id = ${id}
      where e.team_id = ${sender.team.id} and e.type = any(${wanted}::text[])
      group by e.id`.execute(this.#db);
    for (const { id: event, statuses, attempts } of rows) {
      const told = `${kind} ${id}, ${event}: ${statuses.join(", ") || "no row"}`;
      const stays = kind !== "stopped" && kind !== "deleted";
      if (statuses.length === 0 && stays) violated(`${told}, of an endpoint that stayed`);
      if (gone || statuses.length === 0) continue;
      if (attempts.some((attempt, i) => attempt !== i + 1))
        violated(`${told}: its attempts are ${attempts.join(", ")}`);
      const last = statuses.at(-1);
      if (statuses.slice(0, -1).some((status) => status !== "FAILED")) violated(`${told}: more than one final row`);
      if (last === "SUCCEEDED" && !taken.has(event)) violated(`${told}, and it never took it`);
    }
    const known = new Set(rows.map((row) => row.id));
    for (const event of arrived.keys()) {
      if (!known.has(event)) violated(`${kind} ${id}: ${event} arrived and is no event of its team`);
    }
  }

  /** How the last attempts ended, and how often a working endpoint received an event again. */
  async summary(): Promise<Record<string, number>> {
    const { rows } = await sql<{ status: string; count: number }>`
      select status, count(*)::int as count from webhook_deliveries
      where team_id = any(${this.#teamIds}::text[]) group by status`.execute(this.#db);
    const repeated = this.#endpoints
      .filter(({ kind }) => kind === "working")
      .flatMap(({ arrived }) => [...arrived.values()])
      .reduce((sum, times) => sum + times - 1, 0);
    const accounts = [...(await this.#accountEvents()).values()];
    return {
      "account failures": accounts.reduce((sum, { failed }) => sum + failed, 0),
      ...Object.fromEntries(rows.map(({ status, count }) => [`deliveries ${status}`, count])),
      "delivered again to working endpoints": repeated,
    };
  }
}

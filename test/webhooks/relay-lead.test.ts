import assert from "node:assert/strict";
import type { Client } from "@temporalio/client";
import { sql } from "kysely";
import pino from "pino";
import { Progress } from "../../config/progress.ts";
import { kysely } from "../../db/orm.ts";
import { giveLeadUp, LEAD_SECONDS, takeLead } from "../../domain/webhooks/relay-lead.ts";
import { OutboxRelay } from "../../workers/outbox-relay.ts";
import { eventually } from "../support/eventually.ts";
import type { TestTeam } from "../support/factories.ts";
import { makeDatabase, type OwnDatabase } from "../support/own-database.ts";
import { startWorker, type TestWorker } from "../support/processes.ts";
import { RECEIVER_HOSTS, type Receiver } from "../support/receiver.ts";
import { stack } from "../support/stack.ts";
import { emitSome, makeEndpoint, makeTeam, PUBLIC_URL } from "../support/webhooks.ts";
import { receivingBesideTemporal, setHealth, workflowOf } from "./observing.ts";

describe("The lead among relays", () => {
  let own: OwnDatabase;
  before(async () => {
    own = await makeDatabase();
  });
  after(() => own.drop());
  beforeEach(() => sql`delete from webhook_relay_lead`.execute(kysely(own.orm.em)));

  const take = (holder: string) => takeLead(own.orm.em.fork(), holder);
  /** Who leads at present, and for how many seconds. */
  async function leader() {
    const { rows } = await sql<{ holder: string; seconds: number }>`
      select holder, extract(epoch from lead_until - now())::float8 as seconds from webhook_relay_lead
      where lead_until > now()`.execute(kysely(own.orm.em.fork()));
    return rows[0];
  }

  it("goes to one of them, which keeps it until it gives it up", async () => {
    assert.deepEqual(await Promise.all(["a", "a", "a"].map(take)), [true, true, true]);
    assert.equal(await take("b"), false);
    const { seconds = 0 } = (await leader()) ?? {};
    assert.ok(seconds > LEAD_SECONDS / 2 && seconds <= LEAD_SECONDS, `${seconds} s`);
    await giveLeadUp(own.orm.em.fork(), "b");
    assert.equal(await take("b"), false, "another one's lead is not given up");
    await giveLeadUp(own.orm.em.fork(), "a");
    assert.equal(await take("b"), true);
    assert.equal(await take("a"), false);
  });

  it("goes to another one when it was not renewed", async () => {
    await take("a");
    await sql`update webhook_relay_lead set lead_until = now() - interval '1 ms'`.execute(kysely(own.orm.em));
    assert.equal(await take("b"), true);
    assert.equal(await take("a"), false);
  });

  it("leaves a relay that cannot start workflows, and one that stops", async () => {
    const { team, vault } = await makeTeam();
    const em = own.orm.em.fork();
    await sql`insert into teams (id, name, plan) values (${team.id}, 'Team', 'BUSINESS')`.execute(kysely(em));
    await makeEndpoint({ team, em, vault }, { url: PUBLIC_URL });
    const { env } = await stack();
    const openRelay = (workerId: string, start: () => Promise<unknown>) => {
      const stop = new AbortController();
      const deps = {
        ...{ env: { ...env, DATABASE_URL: own.url }, orm: own.orm, vault, workerId, stopping: stop.signal },
        ...{ progress: new Progress(), log: pino({ level: "silent" }) },
        ...{ countRelayFailure: () => undefined, countAttempts: () => undefined, countMails: () => undefined },
      };
      const relay = new OutboxRelay(deps as unknown as ConstructorParameters<typeof OutboxRelay>[0]);
      relay.connected({ workflow: { start } } as unknown as Client);
      const close = () => {
        stop.abort();
        return relay.close();
      };
      return { relay, close };
    };
    const untilLed = (holder: string) =>
      eventually(async () => (await leader())?.holder === holder, { what: `${holder} to lead` });

    let started = 0;
    const broken = openRelay("broken", () => Promise.reject(new Error("no cluster")));
    await untilLed("broken");
    const working = openRelay("working", async () => started++);
    try {
      await emitSome({ team, em }, 1);
      broken.relay.wake();
      await untilLed("working");
      await eventually(() => started > 0, { what: "the group to be started" });
      await working.close();
      assert.notEqual((await leader())?.holder, "working");
      await untilLed("broken");
    } finally {
      await Promise.all([broken.close(), working.close()]);
    }
  });
});

describe("Two webhooks processes", () => {
  let receiver: Receiver;
  let temporal: Client;
  let team: TestTeam;
  let second: TestWorker;
  receivingBesideTemporal((givenReceiver, client) => {
    receiver = givenReceiver;
    temporal = client;
  });
  before(async () => {
    team = await makeTeam();
    second = await startWorker("webhooks", { WEBHOOK_ALLOWED_HOSTS: RECEIVER_HOSTS.join(",") });
  });
  after(() => second?.stop());

  it("begin new groups in the one whose relay leads, while it has a processor to spare", async () => {
    const endpoints = await Promise.all(Array.from({ length: 10 }, () => makeEndpoint(team, { url: receiver.origin })));
    await Promise.all(endpoints.map(({ id }) => setHealth(team, id, { last_success_at: new Date() })));
    const readHolder = async () => {
      const { rows } = await sql<{ holder: string }>`select holder from webhook_relay_lead`.execute(kysely(team.em));
      return rows[0]?.holder;
    };
    const holder = await readHolder();
    await emitSome(team, 1);
    await eventually(() => receiver.received.length === endpoints.length, { what: "the deliveries" });
    assert.equal(await readHolder(), holder, "the lead stayed");
    const { rows } = await sql<{ group_id: string }>`
      select group_id from webhook_deliveries where team_id = ${team.team.id}`.execute(kysely(team.em));
    assert.equal(rows.length, endpoints.length);
    for (const row of rows) {
      const { events } = await workflowOf(temporal, row).fetchHistory();
      const [identity] = (events ?? []).flatMap(({ workflowTaskStartedEventAttributes: task }) => task?.identity ?? []);
      assert.equal(identity, holder);
    }
  });
});

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { promisify } from "node:util";
import { claimPort } from "../../config/ports.ts";
import { embeddedPostgres, removeDataDir } from "../../stack/postgres.ts";
import { Processes } from "../../stack/processes.ts";
import { accepts } from "../../stack/temporal.ts";
import { until } from "../../stack/until.ts";
import type { ApiAnswer } from "../support/api.ts";
import { eventually } from "../support/eventually.ts";
import { unique } from "../support/factories.ts";
import { openNamespace } from "../support/namespace.ts";
import { outcomesOf } from "../support/outcomes.ts";
import { makeDatabase } from "../support/own-database.ts";
import { needs } from "../support/programs.ts";
import { openReceiver, RECEIVER_HOSTS, type Received } from "../support/receiver.ts";
import {
  anotherNewsletter,
  caughtMails,
  freshKey,
  makeSender,
  preview,
  type Sender,
  setFaults,
  startSend,
  untilStatus,
} from "../support/sending.ts";
import { startTcpBalancer, type TcpBalancer } from "../support/tcp-proxy.ts";
import { makeEndpoint } from "../support/webhooks.ts";

const TIMEOUT_MS = 300_000;
const DYNAMIC_CONFIG = `${import.meta.dirname}/../../deploy/temporal/dynamicconfig.yaml`;
/** The databases of a cluster, and the schema that the server has for each. */
const SCHEMAS = { temporal: "postgresql/v12/temporal", temporal_visibility: "postgresql/v12/visibility" };
const CORE = ["history", "matching", "worker"];
const FRONTEND = ["frontend"];
const RECIPIENTS = 400;
/** Of the endpoints that take the events. */
const PATHS = ["/a", "/b", "/c", "/d", "/e"];

/** Asks as a client does: again under the same key while the answer is 503. @returns all answers */
async function askForPreview(sender: Sender): Promise<ApiAnswer[]> {
  const answers: ApiAnswer[] = [];
  const key = freshKey();
  const isAnswered = async () => answers.push(await preview(sender, key)) && answers.at(-1)?.status !== 503;
  await eventually(isAnswered, { what: "an answer other than 503" });
  return answers;
}

describe("A Temporal cluster with a Postgres of its own and two frontends", function () {
  this.timeout(TIMEOUT_MS);
  const server = needs("temporal-server");
  const sqlTool = needs("temporal-sql-tool");
  const processes = new Processes();
  const password = unique("password");
  /** Ports of the frontends, by the names of their processes. */
  const frontends: Record<string, number> = {};
  let folder: string;
  let postgresPort: number;
  let balancer: TcpBalancer;

  const common = (name: string) => ({ name, log: `${folder}/${name}.log`, env: { PATH: process.env["PATH"] } });

  async function startPostgres(): Promise<void> {
    postgresPort = await claimPort();
    const passwords = { owner: password, application: password };
    const postgres = await embeddedPostgres({ dataDir: folder, port: postgresPort, passwords, ephemeral: true });
    await processes.start({ ...common("postgres"), ...postgres });
    const login = ["--plugin=postgres12", "--ep=127.0.0.1", `--port=${postgresPort}`, "--user=mailkeel"];
    for (const [database, schema] of Object.entries(SCHEMAS))
      for (const step of [
        ["create-database", "--defaultdb=postgres"],
        ["setup-schema", "--version=0.0"],
        ["update-schema", `--schema-name=${schema}`],
      ])
        await promisify(execFile)(sqlTool(), [...login, `--password=${password}`, `--database=${database}`, ...step]);
  }

  /** Starts a process of the cluster, and again when it dies. @returns the port of its first service */
  async function startServer(name: string, ofProcess: readonly string[]): Promise<number> {
    // Each process names all services: it finds those of other processes by the ports that they announce.
    const services: Record<string, object> = {};
    let port = 0;
    for (const service of [...CORE, ...FRONTEND]) {
      const grpcPort = await claimPort();
      if (service === ofProcess[0]) port = grpcPort;
      services[service] = { rpc: { grpcPort, membershipPort: await claimPort(), bindOnLocalHost: true } };
    }
    const login = { pluginName: "postgres12", connectAddr: `127.0.0.1:${postgresPort}`, connectProtocol: "tcp" };
    const storeOf = (databaseName: string) => ({ sql: { ...login, user: "mailkeel", password, databaseName } });
    const config = {
      log: { stdout: true, level: "error" },
      persistence: {
        defaultStore: "temporal",
        visibilityStore: "temporal_visibility",
        numHistoryShards: 4,
        datastores: Object.fromEntries(Object.keys(SCHEMAS).map((each) => [each, storeOf(each)])),
      },
      global: { membership: { broadcastAddress: "127.0.0.1" } },
      services,
      clusterMetadata: {
        failoverVersionIncrement: 10,
        masterClusterName: "active",
        currentClusterName: "active",
        clusterInformation: { active: { enabled: true, initialFailoverVersion: 1, rpcAddress: "127.0.0.1:7233" } },
      },
      dynamicConfigClient: { filepath: DYNAMIC_CONFIG, pollInterval: "10s" },
    };
    // The server reads YAML, of which JSON is a part.
    writeFileSync(`${folder}/${name}.yaml`, JSON.stringify(config), { mode: 0o600 });
    const args = [`--root=${folder}`, "--config=.", `--env=${name}`, "--allow-no-auth", "start"];
    await processes.start({
      ...common(name),
      command: {
        command: server(),
        args: [...args, ...ofProcess.map((service) => `--service=${service}`)],
        stopSignal: "SIGTERM",
        graceMs: 2_000,
      },
      ready: (_pid, signal) => until(name, () => accepts(port), { timeoutMs: TIMEOUT_MS, signal }),
    });
    return port;
  }

  before(async () => {
    folder = mkdtempSync(`${tmpdir()}/mailkeel-temporal-`);
    await startPostgres();
    await startServer("core", CORE);
    for (const name of ["frontend-1", "frontend-2"]) frontends[name] = await startServer(name, FRONTEND);
    balancer = await startTcpBalancer(Object.values(frontends));
  });
  after(async () => {
    balancer?.close();
    await processes.killAll();
    if (folder) await removeDataDir(folder);
  });

  /** Kills the frontend of most connections. `again` resolves once another process has taken its place. */
  function killFrontend(): { again: Promise<unknown> } {
    const byUse = Object.entries(frontends).map(([name, port]) => [name, balancer.connectionsTo(port)] as const);
    const [name, connections] = byUse.reduce((most, each) => (each[1] > most[1] ? each : most));
    assert.ok(connections > 0, `${name} has connections`);
    const pid = processes.pids()[name] ?? 0;
    process.kill(pid, "SIGKILL");
    return { again: eventually(() => processes.pids()[name] !== pid, { what: `another ${name}` }) };
  }

  it("sends each mail once and each event, and answers, when one frontend dies in a send and then the other", async () => {
    // The relays of the stack's own workers would take the events of the stack's database.
    const database = await makeDatabase();
    const receiver = await openReceiver();
    const own = await openNamespace({ TEMPORAL_ADDRESS: balancer.address, DATABASE_URL: database.url });
    try {
      await own.app.deps.connectDatabase();
      const settings = { DATABASE_URL: database.url, WEBHOOK_ALLOWED_HOSTS: RECEIVER_HOSTS.join() };
      await Promise.all((["sends", "dispatch", "webhooks"] as const).map((pool) => own.startWorker(pool, settings)));
      const sender = await makeSender({
        base: own.app.base,
        database: { orm: database.orm, vault: own.app.deps.vault },
        recipients: RECIPIENTS,
        account: { maxConnections: 4 },
      });
      for (const path of PATHS) await makeEndpoint(sender, { url: receiver.origin + path, events: ["email.sent"] });
      const another = await anotherNewsletter(sender);

      await setFaults([{ stage: "data", match: sender.audience, delayMs: 100 }]);
      await startSend(sender);
      for (const mails of [80, 160]) {
        await eventually(async () => (await caughtMails(sender)).length > mails, { what: `${mails} mails` });
        const { again } = killFrontend();
        const answers = await askForPreview(another);
        assert.equal(answers.pop()?.status, 200);
        for (const { headers, text } of answers) assert.ok(Number(headers.get("retry-after")) > 0, text);
        await again;
      }
      assert.ok((await caughtMails(sender)).length < RECIPIENTS, "the send is under way");

      await untilStatus(sender, ["SENT"]);
      const outcomes = await outcomesOf(sender);
      assert.equal(outcomes.length, RECIPIENTS);
      assert.deepEqual(
        outcomes.filter(({ state, caught }) => state !== "SENT" || caught !== 1),
        [],
      );
      for (const path of PATHS) {
        const emailOf = (each: Received) => (each.path === path ? JSON.parse(each.body).data.object.email : []);
        const delivered = () => new Set(receiver.received.flatMap(emailOf));
        await eventually(() => delivered().size === RECIPIENTS, { what: `all events at ${path}` });
        assert.deepEqual(delivered(), new Set(outcomes.map(({ email }) => email)));
      }
    } finally {
      await setFaults([]);
      await own.close();
      await receiver.close();
      await database.drop();
    }
  });
});

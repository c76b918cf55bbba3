import { once } from "node:events";
import { connect, createServer, type Socket } from "node:net";
import { pipeline } from "node:stream";
import { listenLocally } from "./listen-locally.ts";
import { stack } from "./stack.ts";

export interface Target {
  host: string;
  port: number;
}

/** A way to a server of a test's own, which counts the connections that come along it. */
export interface TcpProxy extends Target {
  /** Connections that are open now. */
  readonly open: number;
  /** How many connections were open at the same time at most. */
  readonly most: number;
  /** Lets the held connections through. */
  release(): void;
  /** Passes nothing on any more and closes nothing, as a network that is gone: connections that are open get no answer. */
  silence(): void;
  /** Ends the connections that are open, and new ones at once. */
  cut(): void;
  /** As when the network goes between a commit and its answer. Resolves once the next request with the text has passed. */
  loseAnswerTo(text: string): Promise<void>;
  /** Lets new connections through again; those that were silenced stay silent. */
  heal(): void;
  /** Takes new connections to another server; those that are open stay where they are. */
  redirect(target: Target): void;
  close(): void;
}

/** @param held connections are taken, and get no answer until `release` */
export async function startTcpProxy(first: Target, { held = false } = {}): Promise<TcpProxy> {
  let { host, port } = first;
  const open = new Map<Socket, Socket>();
  const gate = Promise.withResolvers<void>();
  if (!held) gate.resolve();
  let most = 0;
  let isSilent = false;
  let isCut = false;
  let lost: { text: string; hasPassed: () => void } | undefined;
  const server = createServer((client) => {
    if (isCut) return void client.destroy();
    const target = connect(port, host);
    open.set(client, target);
    most = Math.max(most, open.size);
    client.on("error", () => target.destroy()).on("close", () => open.delete(client) && target.destroy());
    target.on("error", () => client.destroy()).on("close", () => client.destroy());
    if (isSilent) return;
    client.on("data", (request: Buffer) => {
      if (!lost || !request.includes(lost.text)) return;
      target.unpipe(client);
      lost.hasPassed();
      lost = undefined;
    });
    client.pipe(target);
    void gate.promise.then(() => target.pipe(client));
  });
  const ownPort = await listenLocally(server);
  const endAll = () => {
    for (const client of open.keys()) client.destroy();
  };
  return {
    host: "127.0.0.1",
    port: ownPort,
    get open() {
      return open.size;
    },
    get most() {
      return most;
    },
    release: () => gate.resolve(),
    silence: () => {
      isSilent = true;
      for (const [client, target] of open) {
        client.unpipe(target);
        target.unpipe(client);
      }
    },
    cut: () => {
      isCut = true;
      endAll();
    },
    loseAnswerTo: (text) =>
      new Promise((hasPassed) => {
        lost = { text, hasPassed };
      }),
    heal: () => {
      isSilent = false;
      isCut = false;
    },
    redirect: (target) => {
      ({ host, port } = target);
    },
    close: () => {
      server.close();
      endAll();
    },
  };
}

/** A way to the stack's database that can be cut, for processes of which Postgres is away. `url`: a DATABASE_URL. */
export type DatabaseProxy = TcpProxy & { url: string };

export async function openDatabaseProxy(): Promise<DatabaseProxy> {
  const url = new URL((await stack()).env.DATABASE_URL);
  const proxy = await startTcpProxy({ host: url.hostname, port: Number(url.port) });
  url.host = `${proxy.host}:${proxy.port}`;
  return Object.assign(proxy, { url: url.href });
}

/** One address for several servers of this machine. */
export interface TcpBalancer {
  /** host:port */
  address: string;
  /** How many connections are open to a server's port. */
  connectionsTo(port: number): number;
  close(): void;
}

/** Takes connections to the ports in turn, as a load balancer does, and passes over one that refuses. */
export async function startTcpBalancer(ports: readonly number[]): Promise<TcpBalancer> {
  const open = new Map<Socket, number>();
  let turn = 0;
  async function pass(client: Socket): Promise<void> {
    client.on("error", () => {});
    for (let tries = 0; tries < ports.length; tries++) {
      const port = ports[turn++ % ports.length] ?? 0;
      const target = connect(port, "127.0.0.1");
      if (!(await once(target, "connect").catch(() => undefined))) continue;
      open.set(client, port);
      return void pipeline(client, target, client, () => open.delete(client));
    }
    client.destroy();
  }
  const server = createServer((client) => void pass(client));
  return {
    address: `127.0.0.1:${await listenLocally(server)}`,
    connectionsTo: (port) => [...open.values()].filter((each) => each === port).length,
    close: () => {
      server.close();
      for (const client of open.keys()) client.destroy();
    },
  };
}

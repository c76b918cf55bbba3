import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { stack } from "./stack.ts";

/** A way to the stack's database that can be cut, for processes of which Postgres is away. */
export interface DatabaseProxy {
  /** A DATABASE_URL. */
  url: string;
  /** Ends the connections and refuses new ones, or accepts them again. */
  cut(isCut: boolean): void;
  close(): void;
}

export async function openDatabaseProxy(): Promise<DatabaseProxy> {
  const { env } = await stack();
  const database = new URL(env.DATABASE_URL);
  const open = new Set<Socket>();
  const state = { isCut: false };
  const server = createServer((client) => {
    if (state.isCut) return void client.destroy();
    const upstream = connect(Number(database.port), database.hostname);
    open.add(client).add(upstream);
    client.pipe(upstream).pipe(client);
    for (const [one, other] of [
      [client, upstream],
      [upstream, client],
    ] as const) {
      one.on("error", () => other.destroy()).on("close", () => open.delete(one) && other.destroy());
    }
  });
  await once(server.listen(0, "127.0.0.1"), "listening");
  const url = new URL(database);
  url.host = `127.0.0.1:${(server.address() as AddressInfo).port}`;
  const cut = (isCut: boolean) => {
    state.isCut = isCut;
    if (isCut) for (const socket of open) socket.destroy();
  };
  const close = () => {
    cut(true);
    server.close();
  };
  return { url: url.href, cut, close };
}

import { stack } from "./stack.ts";
import { startTcpProxy, type TcpProxy } from "./tcp-proxy.ts";

/** A way to the stack's database that can be cut. `url`: a DATABASE_URL. */
export type DatabaseProxy = TcpProxy & { url: string };

/** Opens such a way, for processes of which Postgres is away. */
export async function openDatabaseProxy(): Promise<DatabaseProxy> {
  const { env } = await stack();
  const url = new URL(env.DATABASE_URL);
  const proxy = await startTcpProxy({ host: url.hostname, port: Number(url.port) });
  url.host = `${proxy.host}:${proxy.port}`;
  return Object.assign(proxy, { url: url.href });
}

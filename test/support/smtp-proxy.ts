import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { stack } from "./stack.ts";

/** A way to the mail catcher of a test's own, which counts the connections that come along it. */
export interface SmtpProxy {
  /** For the columns of a sending account. */
  account: { host: string; port: number };
  /** Connections that are open now. */
  readonly open: number;
  /** How many connections were open at the same time at most. */
  readonly most: number;
  /** Lets the held connections through. */
  release(): void;
  close(): void;
}

/** @param held connections are taken, and get no answer until `release` */
export async function startSmtpProxy({ held = false } = {}): Promise<SmtpProxy> {
  const { hostname, port } = new URL((await stack()).mail.smtp);
  const open = new Set<Socket>();
  const gate = Promise.withResolvers<void>();
  if (!held) gate.resolve();
  let most = 0;
  const server = createServer((client) => {
    open.add(client);
    most = Math.max(most, open.size);
    const catcher = connect(Number(port), hostname);
    client.pipe(catcher);
    void gate.promise.then(() => catcher.pipe(client));
    client.on("error", () => catcher.destroy()).on("close", () => open.delete(client) && catcher.destroy());
    catcher.on("error", () => client.destroy()).on("close", () => client.destroy());
  });
  await once(server.listen(0, "127.0.0.1"), "listening");
  return {
    account: { host: "127.0.0.1", port: (server.address() as AddressInfo).port },
    get open() {
      return open.size;
    },
    get most() {
      return most;
    },
    release: () => gate.resolve(),
    close: () => {
      server.close();
      for (const client of open) client.destroy();
    },
  };
}

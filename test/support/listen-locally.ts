import { once } from "node:events";
import type { AddressInfo, Server } from "node:net";

/** Has a server listen at any free port. @returns the port */
export async function listenLocally(server: Server, host = "127.0.0.1"): Promise<number> {
  await once(server.listen(0, host), "listening");
  return (server.address() as AddressInfo).port;
}

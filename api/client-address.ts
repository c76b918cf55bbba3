import type { IncomingMessage } from "node:http";
import { isIP } from "node:net";
import { holdsAddress, networkOf, plainAddress } from "../config/client-network.ts";
import type { Env } from "../config/env.ts";

/** An address as a proxy may write it: `203.0.113.7`, `203.0.113.7:4000`, `2001:db8::7`, `[2001:db8::7]:4000`. */
function readForwarded(text: string): string | null {
  const bare = text.trim().replace(/^\[([^\]]*)\](?::\d+)?$|^([\d.]+):\d+$/, "$1$2");
  return isIP(bare) !== 0 ? networkOf(plainAddress(bare)) : null;
}

/** Tells clients of the API apart by their addresses. */
export interface ClientAddresses {
  /**
   * The client of a connection, as `networkOf` counts it.
   * @returns null for a load balancer's connection, which carries the requests of many clients
   */
  ofConnection(remoteAddress: string): string | null;
  /**
   * The client of a request: that of its connection; on a load balancer's, the entry of X-Forwarded-For that the outermost
   * of PROXY_HOPS balancers has added, counted from the right: a client may have written the ones before it. Where that
   * entry is missing or unreadable, it is the next one that can be read, and without any the balancer itself.
   * @returns null where it is not known: on a balancer's connection without PROXY_HOPS
   */
  ofRequest(request: Pick<IncomingMessage, "socket" | "headersDistinct">): string | null;
}

/** Finds clients by the settings on load balancers. */
export function clientAddressesOf({
  PROXY_ADDRESSES,
  PROXY_HOPS,
}: Pick<Env, "PROXY_ADDRESSES" | "PROXY_HOPS">): ClientAddresses {
  const isProxy = holdsAddress(PROXY_ADDRESSES);
  const ofConnection = (remoteAddress: string): string | null => {
    const address = plainAddress(remoteAddress);
    return isProxy(address) ? null : networkOf(address);
  };
  return {
    ofConnection,
    ofRequest: ({ socket, headersDistinct }) => {
      const { remoteAddress } = socket;
      // The connection has gone: the answer will reach no one.
      if (remoteAddress === undefined) return null;
      const clientAddress = ofConnection(remoteAddress);
      if (clientAddress !== null || PROXY_HOPS === 0) return clientAddress;
      const forwarded = (headersDistinct["x-forwarded-for"] ?? []).join(",").split(",");
      // With fewer entries than balancers, or an unreadable one, a request still counts for an address.
      const readable = forwarded.slice(-PROXY_HOPS).map(readForwarded);
      return readable.find((address) => address !== null) ?? networkOf(plainAddress(remoteAddress));
    },
  };
}

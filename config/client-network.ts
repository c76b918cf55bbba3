import ipaddr from "ipaddr.js";

/** An address without its zone; one of IPv4 as such also on a socket that serves both versions. */
export const plainAddress = (address: string): string => ipaddr.process(address.replace(/%.*$/, "")).toString();

/** The unit that clients are counted by: an address, or an IPv6 network, because one client mostly has all its addresses. */
export function networkOf(address: string): string {
  const ip = ipaddr.parse(address);
  return ip instanceof ipaddr.IPv6 ? ip.parts.slice(0, 4).join(":") : address;
}

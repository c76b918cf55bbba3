import { BlockList, isIPv4 } from "node:net";
import ipaddr from "ipaddr.js";

/** An address without its zone; one of IPv4 as such also on a socket that serves both versions. */
export const plainAddress = (address: string): string => ipaddr.process(address.replace(/%.*$/, "")).toString();

/** The unit that clients are counted by: an address, or an IPv6 network, because one client mostly has all its addresses. */
export function networkOf(address: string): string {
  const ip = ipaddr.parse(address);
  return ip instanceof ipaddr.IPv6 ? ip.parts.slice(0, 4).join(":") : address;
}

const familyOf = (address: string) => (isIPv4(address) ? "ipv4" : "ipv6");

/** @returns whether an address, as `plainAddress` gives it, is in one of the networks */
export function holdsAddress(ranges: readonly string[]): (address: string) => boolean {
  const list = new BlockList();
  for (const range of ranges) {
    const [address = "", prefix] = range.split("/");
    const family = familyOf(address);
    list.addSubnet(address, prefix === undefined ? (family === "ipv4" ? 32 : 128) : Number(prefix), family);
  }
  return (address) => list.check(address, familyOf(address));
}

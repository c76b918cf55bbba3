import { isIPv6 } from "node:net";
import type { Env } from "../../config/env.ts";
import { type AddressGuard, AddressRefused, literalAddress, openAddressGuard } from "../../lib/address-guard.ts";

/**
 * Ports at which mail servers take mail from clients: SMTP (25), submission over TLS (465) and with STARTTLS (587), and
 * those that providers offer besides for networks that block them.
 */
export const SMTP_PORTS: readonly number[] = [25, 465, 587, 2465, 2525, 2587];

/** The guard between sending accounts and the networks of the operator. */
export interface SmtpGuard {
  /**
   * Looks a server up, once, and checks its port and every address. Connect to these and to no others.
   * @param host a name or an IP address, as a customer writes it
   * @throws {AddressRefused}
   * @throws {NameNotResolved} when it has no address, or the look-up failed
   */
  resolve(host: string, port: number): ReturnType<AddressGuard["resolve"]>;
}

type GuardSettings = Pick<Env, "EGRESS_DENIED_NETWORKS" | "SMTP_ALLOWED_HOSTS">;

/** For the check of a new account and for every connection of one. */
export function openSmtpGuard(
  { EGRESS_DENIED_NETWORKS, SMTP_ALLOWED_HOSTS }: GuardSettings,
  { dnsServers = [] }: { dnsServers?: readonly string[] } = {},
): SmtpGuard {
  const guard = openAddressGuard({
    allowedHosts: SMTP_ALLOWED_HOSTS,
    deniedNetworks: EGRESS_DENIED_NETWORKS,
    dnsServers,
  });
  return {
    async resolve(host, port) {
      const hostname = hostnameOf(host);
      if (!SMTP_PORTS.includes(port) && !guard.isAllowed(hostname, port)) throw new AddressRefused("port");
      return guard.resolve(hostname, port);
    },
  };
}

/** The host as URLs spell it: in lower case and ASCII, an IPv6 address in brackets, without the dot that may end a name. */
function hostnameOf(host: string): string {
  if (!isIPv6(host) && !/^[\p{L}\p{M}\p{N}._-]+$/u.test(host)) throw new AddressRefused("invalid_host");
  const url = `http://${isIPv6(host) ? `[${host}]` : host.replace(/\.$/, "")}/`;
  if (!URL.canParse(url)) throw new AddressRefused("invalid_host");
  const { hostname } = new URL(url);
  // The parser reads 2130706433 and 127.1 as the IPv4 addresses they can stand for.
  if (literalAddress(hostname)?.family === 4 && hostname !== host) throw new AddressRefused("address_spelling");
  return hostname;
}

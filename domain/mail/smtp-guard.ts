import { isIPv6 } from "node:net";
import type { Env } from "../../config/env.ts";
import { type AddressGuard, AddressRefused, literalAddress, openAddressGuard } from "../../lib/address-guard.ts";

/** SMTP, submission, and those that providers offer for networks that block them. */
export const SMTP_PORTS: readonly number[] = [25, 465, 587, 2465, 2525, 2587];

export interface SmtpGuard {
  /**
   * Looks a server up, once, and checks its port and every address. Connect to no others.
   * @throws {AddressRefused} @throws {NameNotResolved} also when the look-up failed
   */
  resolve(host: string, port: number): ReturnType<AddressGuard["resolve"]>;
}

type GuardSettings = Pick<Env, "EGRESS_DENIED_NETWORKS" | "SMTP_ALLOWED_HOSTS">;

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

/** As URLs spell it: lower case, ASCII, IPv6 in brackets, without a dot at the end. */
function hostnameOf(host: string): string {
  if (!isIPv6(host) && !/^[\p{L}\p{M}\p{N}._-]+$/u.test(host)) throw new AddressRefused("invalid_host");
  const url = `http://${isIPv6(host) ? `[${host}]` : host.replace(/\.$/, "")}/`;
  if (!URL.canParse(url)) throw new AddressRefused("invalid_host");
  const { hostname } = new URL(url);
  // The parser reads 2130706433 and 127.1 as IPv4 addresses.
  if (literalAddress(hostname)?.family === 4 && hostname !== host) throw new AddressRefused("address_spelling");
  return hostname;
}

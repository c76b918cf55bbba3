import type { Env } from "../config/env.ts";
import { type AddressGuard, AddressRefused, literalAddress, openAddressGuard } from "./address-guard.ts";

export interface UrlGuard extends Pick<AddressGuard, "resolve"> {
  /** Checks a URL by its text alone. @returns it without the dot that may end its host name @throws {AddressRefused} */
  checkUrl(text: string): URL;
}

/** "Bad ports" of the Fetch standard, section 2.9: their servers could take a request for a command of their protocol. */
const BAD_PORTS = new Set([
  ...[
    0, 1, 7, 9, 11, 13, 15, 17, 19, 20, 21, 22, 23, 25, 37, 42, 43, 53, 69, 77, 79, 87, 95, 101, 102, 103, 104, 109,
    110,
  ],
  ...[
    111, 113, 115, 117, 119, 123, 135, 137, 139, 143, 161, 179, 389, 427, 465, 512, 513, 514, 515, 526, 530, 531, 532,
  ],
  ...[540, 548, 554, 556, 563, 587, 601, 636, 989, 990, 993, 995, 1719, 1720, 1723, 2049, 3659, 4045, 4190, 5060, 5061],
  ...[6000, 6566, 6665, 6666, 6667, 6668, 6669, 6679, 6697, 10080],
]);

type GuardSettings = Pick<
  Env,
  "EGRESS_DENIED_NETWORKS" | "WEBHOOK_ALLOWED_HOSTS" | "WEBHOOK_DNS_SERVERS" | "WEBHOOK_HTTPS_ONLY"
>;

export function effectivePort({ port, protocol }: URL): number {
  if (port !== "") return Number(port);
  return protocol === "https:" ? 443 : 80;
}

export const allowedHostsWarning = ({
  WEBHOOK_ALLOWED_HOSTS: hosts,
}: Pick<GuardSettings, "WEBHOOK_ALLOWED_HOSTS">): string | undefined =>
  hosts.length === 0
    ? undefined
    : `WEBHOOK_ALLOWED_HOSTS lets webhooks into this network: ${hosts.join(", ")}. Not for production.`;

export function openUrlGuard(
  { EGRESS_DENIED_NETWORKS, WEBHOOK_ALLOWED_HOSTS, WEBHOOK_DNS_SERVERS, WEBHOOK_HTTPS_ONLY }: GuardSettings,
  { lookupTimeoutMs }: { lookupTimeoutMs?: number } = {},
): UrlGuard {
  const guard = openAddressGuard({
    allowedHosts: WEBHOOK_ALLOWED_HOSTS,
    deniedNetworks: EGRESS_DENIED_NETWORKS,
    dnsServers: WEBHOOK_DNS_SERVERS,
    lookupTimeoutMs,
  });
  return {
    checkUrl(text) {
      const url = parseUrl(text);
      if (WEBHOOK_HTTPS_ONLY && url.protocol !== "https:") throw new AddressRefused("https_only");
      const port = effectivePort(url);
      guard.checkHost(url.hostname, port);
      if (BAD_PORTS.has(port) && !guard.isAllowed(url.hostname, port)) throw new AddressRefused("bad_port");
      return url;
    },
    resolve: guard.resolve,
  };
}

/** @throws {AddressRefused} unless the text means the same to every reader */
function parseUrl(text: string): URL {
  // The parser would take tabs and line breaks out, and read a backslash as a slash.
  if (/[\s\p{Cc}\\]/u.test(text) || !URL.canParse(text)) throw new AddressRefused("invalid_url");
  const url = new URL(text);
  if (url.protocol !== "http:" && url.protocol !== "https:") throw new AddressRefused("scheme");
  // The parser would also take one slash for two, or three.
  const authority = /^https?:\/\/([^/?#]+)/i.exec(text)?.[1];
  if (authority === undefined) throw new AddressRefused("invalid_url");
  if (authority.includes("@")) throw new AddressRefused("credentials");
  // It reads 2130706433, 0x7f.1, 127.1 and full-width digits as the IPv4 addresses they can stand for.
  if (literalAddress(url.hostname)?.family === 4 && authority.replace(/:\d*$/, "") !== url.hostname)
    throw new AddressRefused("address_spelling");
  if (url.hostname.endsWith(".")) url.hostname = url.hostname.slice(0, -1);
  if (url.hostname.endsWith(".") || url.hostname === "") throw new AddressRefused("invalid_url");
  return url;
}

import type { LookupAddress } from "node:dns";
import { Resolver } from "node:dns/promises";
import ipaddr from "ipaddr.js";
import type { Env } from "../../config/env.ts";

/**
 * Addresses that are not of the public Internet, from IANA's registries of special-purpose addresses
 * (https://www.iana.org/assignments/iana-ipv4-special-registry and iana-ipv6-special-registry), with multicast and
 * reserved ranges. Some of these ranges are reachable from everywhere; none of them has a webhook receiver in it.
 */
export const SPECIAL_IPV4 = [
  "0.0.0.0/8", // this network
  "10.0.0.0/8", // private
  "100.64.0.0/10", // carrier-grade NAT
  "127.0.0.0/8", // loopback
  "169.254.0.0/16", // link-local, metadata of clouds
  "168.63.129.16/32", // the platform of a cloud, as its machines reach it; in no registry
  "172.16.0.0/12", // private
  "192.0.0.0/24", // protocol assignments
  "192.0.2.0/24", // documentation
  "192.31.196.0/24", // AS112
  "192.52.193.0/24", // AMT
  "192.88.99.0/24", // 6to4 relays
  "192.168.0.0/16", // private
  "192.175.48.0/24", // AS112
  "198.18.0.0/15", // benchmarks
  "198.51.100.0/24", // documentation
  "203.0.113.0/24", // documentation
  "224.0.0.0/4", // multicast
  "240.0.0.0/4", // reserved, broadcast
] as const;

/**
 * Global unicast: all public addresses. Addresses that carry an IPv4 address (mapped, compatible, NAT64), unique local,
 * site-local and link-local addresses, multicast and segment routing lie outside.
 */
export const GLOBAL_IPV6 = "2000::/3";

/** Special ranges within global unicast; same sources as SPECIAL_IPV4. */
export const SPECIAL_IPV6 = [
  "2001::/23", // protocol assignments: Teredo, ORCHID, benchmarks
  "2001:db8::/32", // documentation
  "2002::/16", // 6to4
  "2620:4f:8000::/48", // AS112
  "3fff::/20", // documentation
] as const;

const specialIpv4 = SPECIAL_IPV4.map((range) => ipaddr.IPv4.parseCIDR(range));
const globalIpv6 = ipaddr.IPv6.parseCIDR(GLOBAL_IPV6);
const specialIpv6 = SPECIAL_IPV6.map((range) => ipaddr.IPv6.parseCIDR(range));

/** Whether an IP address is one of the public Internet. False for text that is not a plainly written address. */
export function isPublic(address: string): boolean {
  if (ipaddr.IPv4.isValidFourPartDecimal(address)) {
    const ip = ipaddr.IPv4.parse(address);
    return !specialIpv4.some((range) => ip.match(range));
  }
  if (!ipaddr.IPv6.isValid(address)) return false;
  const ip = ipaddr.IPv6.parse(address);
  return !ip.zoneId && ip.match(globalIpv6) && !specialIpv6.some((range) => ip.match(range));
}

const REFUSALS = {
  invalid_url: "Give an absolute URL such as https://example.com/hooks, without spaces, line breaks or backslashes.",
  scheme: "Use a URL that starts with https:// or http://.",
  credentials: "Take the user name and password out of the URL; authenticate with a custom header instead.",
  address_spelling: "Write the IPv4 address as four decimal numbers without leading zeros.",
  address_not_public: "The URL's host is not on the public Internet; use one that can be reached from there.",
  resolves_not_public:
    "The URL's host name resolves to an address that is not on the public Internet; all of its addresses have to be.",
} as const;

export type RefusalReason = keyof typeof REFUSALS;

/** A URL that webhooks are not sent to. The message says how its owner can correct it, and names no address. */
export class AddressRefused extends Error {
  override name = "AddressRefused";
  readonly reason: RefusalReason;

  constructor(reason: RefusalReason) {
    super(REFUSALS[reason]);
    this.reason = reason;
  }
}

/** A host name without an address, at least for now. The message is fit for the endpoint's owner. */
export class NameNotResolved extends Error {
  override name = "NameNotResolved";
}

export interface AddressGuard {
  /**
   * Checks a URL by its text alone.
   * @returns the URL parsed, the dot that may end its host name taken off
   * @throws {AddressRefused}
   */
  checkUrl(text: string): URL;
  /**
   * Looks a host up, once, and checks every address it has. Connect to these and to no others.
   * @param hostname as `URL.hostname` gives it; an IP address is checked and returned
   * @returns one address at least, IPv4 before IPv6
   * @throws {AddressRefused} when an address is not public
   * @throws {NameNotResolved} when there is none, or the look-up failed
   */
  resolve(hostname: string, port: number): Promise<LookupAddress[]>;
}

type GuardSettings = Pick<Env, "WEBHOOK_ALLOWED_HOSTS" | "WEBHOOK_DNS_SERVERS">;

/** The port a URL's connection goes to. */
export function effectivePort({ port, protocol }: URL): number {
  if (port !== "") return Number(port);
  return protocol === "https:" ? 443 : 80;
}

/** The warning to log at the start when receivers that are not public are allowed; undefined when none are. */
export const allowedHostsWarning = ({ WEBHOOK_ALLOWED_HOSTS: hosts }: GuardSettings): string | undefined =>
  hosts.length === 0
    ? undefined
    : `WEBHOOK_ALLOWED_HOSTS lets webhooks into this network: ${hosts.join(", ")}. Not for production.`;

/** A query waits this long for its answer, twice. */
const QUERY_TIMEOUT_MS = 1_500;
/** A look-up never takes longer, however many DNS servers are asked. */
const LOOKUP_TIMEOUT_MS = 5_000;
/** A name with more addresses would make one delivery connect to that many hosts. */
const MAX_ADDRESSES_PER_FAMILY = 4;

/**
 * The guard between webhooks and this network: for the registration of an endpoint and for every connection to one.
 * @param lookupTimeoutMs how long a look-up may take in all
 */
export function openAddressGuard(
  { WEBHOOK_ALLOWED_HOSTS, WEBHOOK_DNS_SERVERS }: GuardSettings,
  { lookupTimeoutMs = LOOKUP_TIMEOUT_MS }: { lookupTimeoutMs?: number } = {},
): AddressGuard {
  const allowed = new Set<string>(WEBHOOK_ALLOWED_HOSTS);
  // Not dns.lookup: it occupies a thread for as long as the slowest server likes, and asks the system's servers alone.
  const resolver = new Resolver({ timeout: QUERY_TIMEOUT_MS, maxTimeout: QUERY_TIMEOUT_MS, tries: 2 });
  if (WEBHOOK_DNS_SERVERS.length > 0) resolver.setServers(WEBHOOK_DNS_SERVERS);
  const isAllowed = (hostname: string, port: number) => allowed.has(`${hostname}:${port}`);

  return {
    checkUrl(text) {
      const url = parseUrl(text);
      if (!isAllowed(url.hostname, effectivePort(url)) && (isLocalName(url.hostname) || isPrivateLiteral(url.hostname)))
        throw new AddressRefused("address_not_public");
      return url;
    },

    async resolve(hostname, port) {
      const literal = literalAddress(hostname);
      if (literal) {
        if (!isPublic(literal.address) && !isAllowed(hostname, port)) throw new AddressRefused("address_not_public");
        return [literal];
      }
      if (isLocalName(hostname)) {
        if (!isAllowed(hostname, port)) throw new AddressRefused("address_not_public");
        return [
          { address: "127.0.0.1", family: 4 },
          { address: "::1", family: 6 },
        ];
      }
      const [v4, v6] = await lookUp(resolver, hostname, lookupTimeoutMs);
      if (!isAllowed(hostname, port) && ![...v4, ...v6].every(isPublic))
        throw new AddressRefused("resolves_not_public");
      return [
        ...v4.slice(0, MAX_ADDRESSES_PER_FAMILY).map((address) => ({ address, family: 4 })),
        ...v6.slice(0, MAX_ADDRESSES_PER_FAMILY).map((address) => ({ address, family: 6 })),
      ];
    },
  };
}

/** The URL in `text`, if its form is one that means the same to every reader. */
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

/** The IP address that a URL's host is, or undefined for a name. */
function literalAddress(hostname: string): LookupAddress | undefined {
  if (hostname.startsWith("[")) return { address: hostname.slice(1, -1), family: 6 };
  return ipaddr.IPv4.isValidFourPartDecimal(hostname) ? { address: hostname, family: 4 } : undefined;
}

function isPrivateLiteral(hostname: string): boolean {
  const literal = literalAddress(hostname);
  return literal !== undefined && !isPublic(literal.address);
}

/** Loopback by name (RFC 6761), even when a DNS server says otherwise. */
const isLocalName = (hostname: string): boolean => hostname === "localhost" || hostname.endsWith(".localhost");

/** IPv4 and IPv6 addresses of a name; one of the two may be missing. */
async function lookUp(resolver: Resolver, hostname: string, timeoutMs: number): Promise<[string[], string[]]> {
  const { promise: deadline, reject } = Promise.withResolvers<never>();
  const timer = setTimeout(() => reject(new Error("no answer in time")), timeoutMs);
  const answers = await Promise.allSettled([
    Promise.race([resolver.resolve4(hostname), deadline]),
    Promise.race([resolver.resolve6(hostname), deadline]),
  ]).finally(() => clearTimeout(timer));
  const [v4, v6] = answers.map((answer) => (answer.status === "fulfilled" ? answer.value : [])) as [string[], string[]];
  if (v4.length > 0 || v6.length > 0) return [v4, v6];
  const failures = answers.map((answer) =>
    answer.status === "rejected" ? (answer.reason as { code?: string }).code : "",
  );
  throw new NameNotResolved(
    failures.every((code) => NO_SUCH_NAME.has(code ?? ""))
      ? "The URL's host name has no address in the DNS."
      : "The URL's host name could not be looked up: its DNS servers did not answer, or not well.",
  );
}

/** Codes of a look-up that found no address. */
const NO_SUCH_NAME = new Set(["ENOTFOUND", "ENODATA", "EBADNAME", ""]);
